"""What can go wrong with an environment, each in one line for the learner's operator."""

from seedrl.errors import UserError

# For an environment that gymnasium knows once its package is imported.
ADVICE = "write a factory that imports its package and returns gymnasium.make(...), and name that"


class BuildError(UserError, ValueError):
    """The environment cannot be built here."""


class EnvironmentFailedError(RuntimeError):
    """An environment failed, and the stream of its group cannot continue."""


def one_line(error: BaseException) -> str:
    """The type and text of an exception, on one line of at most 300 characters."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # an exception of the environment's own, whose __str__ raises
        text = ""
    return f"{type(error).__name__}: {text}"[:300] if text else type(error).__name__
