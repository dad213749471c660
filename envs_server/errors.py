"""What can go wrong with an environment, each in one line for the learner's operator."""

from seedrl.errors import UserError


class BuildError(UserError, ValueError):
    """The environment cannot be built here."""


class EnvironmentFailedError(RuntimeError):
    """An environment raised, or returned what it did not promise.

    Attributes:
      position: its number among those of the env server; None if it is not known which it was.
    """

    def __init__(self, text: str, position: int | None = None) -> None:
        super().__init__(text)
        self.position = position


class FilmError(RuntimeError):
    """A film cannot be written, through no fault of the environment that it shows."""


def one_line(error: BaseException) -> str:
    """The type and text of an exception, on one line of at most 300 characters."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:300] if text else type(error).__name__
