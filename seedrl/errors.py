"""Exit codes, and what users can get wrong: each error has the code that programs end with."""

import enum


class ExitCode(enum.IntEnum):
    """How every program here ends; a number has one meaning, whichever program it is.

    The numbers from 70 on follow sysexits.h where it has a fitting one. A process that signal n has
    killed counts as 128 + n.

    Attributes:
      OK: done; also after the first SIGTERM or SIGINT, with everything saved.
      TARGET_MISSED: a learner took all of its steps without reaching `evaluation.target_return`.
      USAGE: a bad config or command line, or an environment that is refused or cannot be built.
      BROKEN_ENVIRONMENT: `seedrl check-env`: the environment breaks a rule.
      FAILING_ENVIRONMENT: an env server: the environment raised an error too often.
      INTERNAL: a defect of ours; the traceback is printed.
      UNREADABLE_CHECKPOINT: a checkpoint is missing, damaged or of another config.
      STUCK: a thread made no progress; all stacks are printed.
      ADDRESS_IN_USE: the address to serve on, or the folder of the run, is taken.
      KILLED: a second SIGTERM or SIGINT, before everything was saved.
    """

    OK = 0
    TARGET_MISSED = 1
    USAGE = 2
    BROKEN_ENVIRONMENT = 3
    FAILING_ENVIRONMENT = 4
    INTERNAL = 70
    UNREADABLE_CHECKPOINT = 74
    STUCK = 75
    ADDRESS_IN_USE = 98
    KILLED = 143


class UserError(Exception):
    """Something that the user can put right: one clear line, no traceback.

    The line says what was expected, what arrived, which field or peer, and what to do.
    """

    exit_code: ExitCode = ExitCode.USAGE


class ConfigError(UserError, ValueError):
    """A configuration or command line that cannot work."""


class EnvironmentRefusedError(UserError, ValueError):
    """An environment that an env server does not or may not build, or of an unexpected spec."""


class CheckpointError(UserError, OSError):
    """A checkpoint that is missing, damaged or of another configuration."""

    exit_code = ExitCode.UNREADABLE_CHECKPOINT


class AddressInUseError(UserError, OSError):
    """The address to serve on is taken, or cannot be bound."""

    exit_code = ExitCode.ADDRESS_IN_USE
