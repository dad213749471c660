"""What learning does while its programs are being compiled, and what becomes of a failure."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from learner.acting.totals import Totals
from learner.session.free_running import FreeRunning
from learner.threads.rate_limiter import RateLimiter
from seedrl.errors import ConfigError
from seedrl.replay.rate_limiter import ratio_limiter
from tests.patience import SECONDS, wait_until


class Learning:
    """Compiles when it is let, and writes down what else it is asked to do."""

    def __init__(
        self,
        insertion: BaseException | None = None,
        update: BaseException | None = None,
        trace: BaseException | None = None,
    ):
        self.mistake = trace
        self.errors = {"insertion": insertion, "update": update}
        self.released = {name: threading.Event() for name in self.errors}
        self.begun: list[str] = []
        self.calls: list[str] = []
        self.snapshots = SimpleNamespace(answer=lambda: self.calls.append("answer"))

    def _compile(self, name: str) -> None:
        self.begun.append(name)
        assert self.released[name].wait(SECONDS)
        if (error := self.errors[name]) is not None:
            raise error

    def trace_update(self) -> None:
        if self.mistake is not None:
            raise self.mistake

    def compile_insertion(self, page: Any, page_rows: tuple[int, ...]) -> None:
        self._compile("insertion")

    def compile_update(self) -> Any:
        self._compile("update")
        return SimpleNamespace(memory_analysis=lambda: None)

    def sequences_of_shards(self, steps_to_insert: int) -> list[int]:
        return [steps_to_insert]

    def run_without_update(self) -> None:
        self.calls.append("run without update")

    def run_once(self) -> None:
        self.calls.append("run")


class Acting:
    """Has acted as much as it is told."""

    def run_once(self) -> None:
        """Nothing to act on."""

    def __init__(self) -> None:
        self.compiled: list[str] = []
        self.totals = Totals(earlier_steps=100)

    def warm_up_largest(self) -> None:
        """Compiles at once."""
        self.compiled.append("largest")

    def compile_others(self) -> None:
        """Compiles at once."""
        self.compiled.append("others")


def _free_running(learning: Any, acting: Any, limiter: RateLimiter | None = None) -> FreeRunning:
    exchange = SimpleNamespace(
        limiter=limiter or _limiter(),
        wake_acting=lambda: None,
    )
    parts: Any = SimpleNamespace(
        acting=[acting],
        learning=learning,
        exchange=exchange,
        page=(),
        page_rows=(1,),
        scale=None,
        pages_bytes=0,
    )
    return FreeRunning(parts)


def _limiter() -> RateLimiter:
    limiter = ratio_limiter(
        replay_ratio=1.0, batch_steps=5, tolerance_updates=2.0, min_sequences=30
    )
    return RateLimiter(limiter)


def _begin(
    learning: Learning, acting: Acting | None = None, limiter: RateLimiter | None = None
) -> FreeRunning:
    free = _free_running(learning, acting or Acting(), limiter)
    free.warm_up()
    return free


def _until(free: FreeRunning, learning: Learning, call: str) -> set[str]:
    """Lets learning go on until it does `call`; what it did before."""
    learning.calls.clear()
    while call not in learning.calls:
        free.learn_once()
    return set(learning.calls) - {call}


@pytest.mark.timeout(SECONDS)
def test_learning_does_what_is_compiled() -> None:
    learning = Learning()
    free = _begin(learning)
    assert not _until(free, learning, "answer")
    learning.released["insertion"].set()
    assert _until(free, learning, "run without update") <= {"answer"}
    assert free.is_compiling
    learning.released["update"].set()
    assert _until(free, learning, "run") <= {"run without update"}
    assert not free.is_compiling
    learning.calls.clear()
    free.learn_once()
    assert learning.calls == ["run"]


@pytest.mark.timeout(SECONDS)
def test_acting_fills_replay_and_then_owes_what_it_does_ahead() -> None:
    learning, acting, limiter = Learning(), Acting(), _limiter()
    free = _begin(learning, acting, limiter)
    for steps, owed in ((29, 0), (1, 0), (9, 9), (1, 10)):
        acting.totals.steps[0] += steps
        limiter.acted(steps)
        _until(free, learning, "answer")
        assert limiter.now.owed_steps == owed
        assert limiter.wait_to_act(0.0) == (owed < 10)
    for released in learning.released.values():
        released.set()


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("program", ["insertion", "update"])
def test_learning_raises_what_compiling_has_raised(program: str) -> None:
    learning = Learning(**{program: MemoryError(f"no room for the {program}")})
    free = _begin(learning)
    for released in learning.released.values():
        released.set()
    with pytest.raises(MemoryError, match=f"no room for the {program}"):
        _until(free, learning, "run")


@pytest.mark.timeout(SECONDS)
def test_what_acting_lacks_is_compiled_before_anything_of_learning() -> None:
    class Failing(Acting):
        def compile_others(self) -> None:
            raise MemoryError("no room for smaller batches")

    learning, acting = Learning(), Acting()
    free = _begin(learning, acting)
    wait_until(lambda: learning.begun == ["insertion"])
    assert acting.compiled == ["largest", "others"]
    for released in learning.released.values():
        released.set()
    learning = Learning()
    free = _begin(learning, Failing())
    with pytest.raises(MemoryError, match="no room for smaller batches"):
        _until(free, learning, "run")
    assert learning.begun == []


@pytest.mark.timeout(SECONDS)
def test_a_mistake_in_the_update_shows_before_anything_more_is_compiled() -> None:
    learning, acting = (
        Learning(trace=ConfigError("agent.update.loss: expected float32[]")),
        Acting(),
    )
    free = _begin(learning, acting)
    with pytest.raises(ConfigError, match="agent.update.loss"):
        _until(free, learning, "run")
    assert (acting.compiled, learning.begun) == (["largest"], [])


def test_nothing_begins_if_acting_does_not_compile() -> None:
    def fail() -> None:
        raise MemoryError("no room for acting")

    learning = Learning()
    free = _free_running(
        learning, SimpleNamespace(warm_up_largest=fail, totals=Totals(), run_once=None)
    )
    with pytest.raises(MemoryError, match="no room for acting"):
        free.warm_up()
    assert learning.begun == []


@pytest.mark.timeout(SECONDS)
def test_what_nobody_will_need_is_not_compiled() -> None:
    stopped = Learning()
    free = _begin(stopped)
    free.end_waits()
    stopped.released["insertion"].set()
    assert _until(free, stopped, "run without update") <= {"answer"}
    free.learn_once()  # a cancelled compilation is no failure
    assert free.is_compiling  # for ever: nobody shall be told that it is done

    failed = Learning(insertion=MemoryError("no room"))
    free = _begin(failed)
    failed.released["insertion"].set()
    with pytest.raises(MemoryError, match="no room"):
        _until(free, failed, "run")
    wait_until(free._update.done)
    assert free.is_compiling  # nothing was compiled, so that must not be reported
    assert stopped.begun == failed.begun == ["insertion"]
