"""What a run waits for before its session is built: the first environment that it can use."""

from collections.abc import Callable
from typing import TypeVar

from learner.processes.stop import StopRequest
from learner.session.sharing.joining import CommonSpec
from seedrl.errors import ConfigError
from seedrl.specs import EnvSpec

_TICK_SECONDS = 0.1

Found = TypeVar("Found")


def wait_for(
    condition: Callable[[float], Found | None],
    stop: StopRequest,
    look: Callable[[], object] = lambda: None,
) -> Found | None:
    """What `condition(timeout)` finds; None if `stop` is set before. `look` may raise meanwhile."""
    while not stop.is_set():
        look()
        if found := condition(_TICK_SECONDS):
            return found
    return None


def first_fit(
    specs: CommonSpec,
    build: Callable[[EnvSpec], Found],
    stop: StopRequest,
    look: Callable[[], object],
) -> Found | None:
    """What is built for the first environment that the run can use; None if `stop` is set before.

    What an env server has built shall not end the run: whoever has built what does not fit is told
    so, as is the user, and the next one decides. Of several hosts it ends this one, and therefore
    all. Raises ConfigError then, and if a checkpoint names the spec.
    """
    while (spec := wait_for(specs.wait, stop, look)) is not None:
        try:
            built = build(spec)
        except ConfigError as error:
            if not specs.settle(str(error)):
                raise
            continue
        specs.settle()
        return built
    return None
