"""What users can get wrong: each error has the code that programs end with."""

import contextlib
import sys
import traceback
from collections.abc import Iterator

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
    """Learning that does not become finite again.

    Not a temporary failure: another start would resume from the same parameters, on the same data.
    """

    exit_code = ExitCode.USAGE


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


# Packages whose frames may lie between a mistake in a user's code and the place where it shows.
_LIBRARIES = frozenset(
    (
        *("chex", "distrax", "einops", "equinox", "flax", "haiku", "jax", "jaxlib", "jaxtyping"),
        *("learner", "numpy", "optax", "rlax", "seedrl", "tyro"),
    )
)
_LONGEST_TEXT = 300


def own_place(error: BaseException) -> str:
    """The innermost line of a user's own code that led to an error; empty if there is none."""
    places = [
        f"{frame.f_code.co_filename}:{line}"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if _is_own(str(frame.f_globals.get("__name__"))) and frame.f_code.co_filename[0] != "<"
    ]
    return places[-1] if places else ""


def _is_own(module: str) -> bool:
    name = module.partition(".")[0]
    return name not in _LIBRARIES and name not in sys.stdlib_module_names


@contextlib.contextmanager
def naming_own_code(field: str) -> Iterator[None]:
    """Turns an error in a user's own code into one line with the field and the place in their file.

    Any other error stays as it is: a defect of ours is no mistake of theirs.

    Raises ConfigError.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if not (place := own_place(error)):
            raise
        text = " ".join(str(error).split())
        shown = text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}..."
        raise ConfigError(f"{field}: {type(error).__name__}: {shown} ({place})") from error
