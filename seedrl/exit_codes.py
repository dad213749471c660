"""Exit codes of every program here; docs/exit_codes.md is made from this file."""

import enum


class ExitCode(enum.IntEnum):
    """How every program here ends; a number has one meaning, whichever program it is.

    The numbers from 70 on follow sysexits.h where it has a fitting one. A process that signal n has
    killed counts as 128 + n: 137 after SIGKILL, say.

    Attributes:
      OK: done; also after the first SIGTERM, SIGINT or SIGHUP, with everything saved, or, of
        one host, before a run had begun and had anything to save.
      TARGET_MISSED: a learner took all of its steps without reaching `evaluation.target_return`.
        An env server that an environment hangs also ends with 1, all stacks printed.
      USAGE: a bad config or command line, or an environment that is refused or cannot be built.
      BROKEN_ENVIRONMENT: `seedrl check-env` or `check-env-server`: it breaks a rule.
      FAILING_ENVIRONMENT: an env server: all its environments failed too often; `seedrl train`:
        an env server has died too often.
      FAILED_RUNS: `seedrl experiment`: some of its runs have failed; the others are done.
      FAILED_FILMS: `seedrl record`: fewer videos than asked for were written.
      NOT_FINITE: a learner: `learning.max_skipped_updates` updates in a row were not finite; what
        was learned before is saved.
      INTERNAL: a defect of ours; the traceback is printed.
      UNREADABLE_CHECKPOINT: a checkpoint is missing, damaged or of another config.
      STUCK: a thread made no progress; all stacks are printed.
      EXIT_HUNG: a learner has saved all that is to be saved, but something kept it from ending; all
        stacks are printed.
      HOST_LOST: a learner of several hosts: another one is gone, hangs or never came; the newest
        checkpoint is that of the last save. Start all of them again. `seedrl launch CONFIG --on
        ray`: the cluster that it was connected to from outside cannot be reached any more.
      HOSTS_DIFFER: a learner of several hosts: their parameters were not equal, bit for bit, when
        they were to be saved; nothing was.
      ADDRESS_IN_USE: the address to serve on, or the folder of the run, is taken.
      KILLED: a second SIGTERM, SIGINT or SIGHUP, a second or more after the first, before
        everything was saved; a first one in the tenth of a second before Python has started,
        or, of a learner of several hosts, before all had begun together.
    """

    OK = 0
    TARGET_MISSED = 1
    USAGE = 2
    BROKEN_ENVIRONMENT = 3
    FAILING_ENVIRONMENT = 4
    FAILED_RUNS = 5
    FAILED_FILMS = 6
    NOT_FINITE = 7
    INTERNAL = 70
    UNREADABLE_CHECKPOINT = 74
    STUCK = 75
    EXIT_HUNG = 79
    HOST_LOST = 80
    HOSTS_DIFFER = 81
    ADDRESS_IN_USE = 98
    KILLED = 143
