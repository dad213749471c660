"""Exit codes of every program here; docs/exit_codes.md is made from this file."""

import enum


class ExitCode(enum.IntEnum):
    """How every program here ends; a number has one meaning, whichever program it is.

    The numbers from 70 on follow sysexits.h where it has a fitting one. A process that signal n has
    killed counts as 128 + n: 137 after SIGKILL, say.

    Attributes:
      OK: done; also after the first SIGTERM, SIGINT or SIGHUP, with everything saved, or, of
        one host, before a run had started and had anything to save.
      TARGET_MISSED: a learner took all of its steps or time without `evaluation.target_return`.
        An env server that an environment hangs also ends with 1, all stacks printed.
      USAGE: a bad config or command line, a checkpoint of another config, an environment that is
        refused or cannot be built, or a variable of the environment with which jax cannot start;
        `learning.max_skipped_updates` updates in a row were not finite, everything before is saved.
      FAULTS: `seedrl check-env` or `check-env-server`: a rule is broken; `seedrl check-agent`: a
        task was not learned; `seedrl experiment`: some of its runs have failed, the others are
        done; `seedrl record`: fewer videos than asked for were written.
      INTERNAL: a defect of ours: the traceback is printed, or the parameters of a run's hosts were
        not equal, bit for bit, when they were to be saved.
      UNREADABLE_CHECKPOINT: a checkpoint is missing or damaged, or a disk or folder cannot be
        written to.
      TEMPORARY: another start may succeed, and resumes from the newest checkpoint. A thread or the
        end of the process was stuck, and all stacks are printed; another host of the run, or the
        Ray cluster, is gone; the address to serve on, or the folder of the run, is in use; an env
        server: all of its environments have failed too often.
      KILLED: a second SIGTERM, SIGINT or SIGHUP, a second or more after the first, before
        everything was saved; a first one in the tenth of a second before Python has started,
        or, of a learner of several hosts, before all had met.
    """

    OK = 0
    TARGET_MISSED = 1
    USAGE = 2
    FAULTS = 3
    INTERNAL = 70
    UNREADABLE_CHECKPOINT = 74
    TEMPORARY = 75
    KILLED = 143
