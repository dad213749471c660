"""The end of a process whose run has lost another host."""

from typing import NoReturn

from learner.threads.watchdog import exit_now
from seedrl.exit_codes import ExitCode


def exit_lost(line: str) -> NoReturn:
    """Ends this process at once, for another host is lost. Nothing is saved.

    Whatever it takes part in, a collective say, may never end: nothing here is waited for.
    """
    exit_now(
        f"learner: error: {line}; the run ends, and its newest checkpoint is that of its last "
        "save: start all hosts again to resume",
        ExitCode.TEMPORARY,
    )
    raise AssertionError("unreachable")


def why_lost(error: Exception) -> str:
    """What has become of a host, in words, by what its connection has raised."""
    if isinstance(error, EOFError | ConnectionError):
        return "is gone"
    if isinstance(error, OSError):
        return f"does not take what it is sent ({error})"
    return f"cannot be understood ({type(error).__name__}: {error})"
