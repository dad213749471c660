"""What users can get wrong: each error has the code that programs end with."""

from seedrl.exit_codes import ExitCode


class UserError(Exception):
    """Something that the user can put right: one clear line, no traceback.

    The line says what was expected, what arrived, which field or peer, and what to do.
    """

    exit_code: ExitCode = ExitCode.USAGE


class ConfigError(UserError, ValueError):
    """A configuration or command line that cannot work."""


class CheckpointError(UserError, OSError):
    """A checkpoint that is missing, damaged or of another configuration."""

    exit_code = ExitCode.UNREADABLE_CHECKPOINT


class NotFiniteError(UserError, ArithmeticError):
    """Learning that does not become finite again."""

    exit_code = ExitCode.NOT_FINITE


class AddressInUseError(UserError, OSError):
    """The address to serve on is taken, or cannot be bound."""

    exit_code = ExitCode.ADDRESS_IN_USE


class HostLostError(UserError, ConnectionError):
    """Another host of the run that did not come, or is gone."""

    exit_code = ExitCode.HOST_LOST


def in_one_line(error: Exception) -> str:
    """Why something could not be done, as far as the error has it."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror} ({error.filename})" if error.filename else error.strerror
    return " ".join(str(error).split())[:500]
