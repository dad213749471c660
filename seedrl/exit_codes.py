"""Exit codes of every program here; docs/exit_codes.md is made from this file."""

import enum


class ExitCode(enum.IntEnum):
    """Exit codes of every program.

    Where a code means something else in one program, its row names the program. Codes from 70 on
    follow sysexits.h where it has a fitting one. A process that was killed by signal n has exit
    code 128 + n in a shell: 137 after SIGKILL.

    For a learner, `reason` in the run's `status.json` has the cause of its end. If the same command
    is started again after 0 or 1, a stopped run continues. A run that is over trains nothing and
    ends with the same code, at once; it needs an env server only if its last parameters were not
    evaluated.

    Attributes:
      OK: done; or stopped by a first SIGTERM, SIGINT or SIGHUP and saved, if there was anything to
        save (`reason` then starts with `stopped by`).
      TARGET_MISSED: the learner used up its steps, time or `evaluation.patience_rounds` without a
        confirmed `evaluation.target_return`; the run is saved. Without a target such an end is 0.
        An env server, `seedrl check-env`: an environment hangs; all stacks are printed. `seedrl
        launch`: Ray ends it a minute after the cluster has lost its head node.
      USAGE: a wrong configuration or command line, a checkpoint of another configuration, an
        environment that is refused, cannot be built or always fails, or an environment variable
        with which jax cannot start. Or `learning.max_skipped_updates` updates in a row were not
        finite; the run is saved.
      FAULTS: `seedrl check-env` or `check-env-server`: a rule is broken; `seedrl experiment`: some
        of its runs have failed, the others are done; `seedrl record`: fewer videos than requested
        were written.
      INTERNAL: a defect of seedrl, with a traceback; or the parameters of a run's hosts differed
        when they were to be saved.
      UNREADABLE_CHECKPOINT: a checkpoint is missing or damaged, or a disk or directory cannot be
        written to.
      TEMPORARY: another start may succeed, and resumes from the newest checkpoint. Either a thread
        was stuck (all stacks are printed), or another host of the run or the connection to Ray is
        lost. Or the address or the run directory is in use. An env server: all its environments
        have failed too often, or the learner refused a message after it had answered steps.
      KILLED: a second SIGTERM, SIGINT or SIGHUP, at least one second after the first, before
        everything was saved. Or the first one, in the first second, before the command line was
        read, or in a run on several hosts before training starts.
    """

    OK = 0
    TARGET_MISSED = 1
    USAGE = 2
    FAULTS = 3
    INTERNAL = 70
    UNREADABLE_CHECKPOINT = 74
    TEMPORARY = 75
    KILLED = 143
