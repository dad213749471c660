"""What users can get wrong: each error has the code that programs end with.

`seedrl.hints` explains errors of other code.
"""

from seedrl.exit_codes import ExitCode


class UserError(Exception):
    """A mistake that the user can correct: one line (expected, got, field or peer, what to do)."""

    exit_code: ExitCode = ExitCode.USAGE


class ConfigError(UserError, ValueError):
    """A configuration or command line that cannot work."""


class CheckpointError(UserError, OSError):
    """A checkpoint that is missing or damaged."""

    exit_code = ExitCode.UNREADABLE_CHECKPOINT


class AddressInUseError(UserError, OSError):
    """The address to serve on is taken, or cannot be bound."""

    exit_code = ExitCode.TEMPORARY


class HostLostError(UserError, ConnectionError):
    """Another host of the run that did not come, or is gone."""

    exit_code = ExitCode.TEMPORARY


def in_one_line(error: Exception) -> str:
    """Why something could not be done, as far as the error has it."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror} ({error.filename})" if error.filename else error.strerror
    return " ".join(str(error).split())[:500]
