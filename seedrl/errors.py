"""What users can get wrong, each with the exit code with which the binaries answer it."""

import enum


class ExitCode(enum.IntEnum):
    """How the binaries end. The numbers from 70 on follow sysexits.h where it has a fitting one."""

    OK = 0
    TARGET_MISSED = 1  # all steps were taken, but evaluation.target_return was not reached
    USAGE = 2  # a bad config, bad usage, or an environment that is refused
    BROKEN_ENVIRONMENT = 3  # `seedrl check-env`: the environment breaks a rule
    INTERNAL = 70  # a defect of ours: the traceback is printed
    UNREADABLE_CHECKPOINT = 74
    STUCK = 75  # a thread made no progress: all stacks are printed
    ADDRESS_IN_USE = 98
    KILLED = 143  # a second SIGTERM or SIGINT, before everything was saved


class UserError(Exception):
    """Something that the user can put right: one clear line, no traceback.

    The line says what was expected, what came, which field or peer, and what to do.
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
