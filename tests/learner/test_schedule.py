"""A session that has begun to act while learning is still being compiled."""

import dataclasses
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.monitoring
import numpy as np
import pytest

from learner import schedule
from learner.build import build, build_hub, plan_geometry
from learner.report.metrics import Metrics
from learner.runtime.channel import FilledPages
from learner.schedule import Session
from seedrl.agents.gradient_update import GradientUpdate
from seedrl.agents.window import WindowSpec
from seedrl.config import Config, EnvironmentConfig, LearningConfig, ReplayConfig, ServingConfig
from seedrl.errors import ConfigError
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec
from tests.compilations import compilations
from tests.patience import SECONDS, wait_until
from tests.system.oracle import HashingAgent

SLOTS = 4
SPEC = EnvSpec(ArraySpec((3,), "float32"), DiscreteSpec(2))
CONFIG = Config(
    environment=EnvironmentConfig(id="CartPole-v1"),
    # There is next to nothing of it to compile.
    agent=HashingAgent(window=WindowSpec(burn_in=0, unroll=4, bootstrap=1, stride=4)),
    serving=ServingConfig(training_slots=SLOTS, evaluation_slots=0),
    replay=ReplayConfig(capacity_steps=256, min_steps=8),
    learning=LearningConfig(num_devices=1, batch_sequences=SLOTS),
)


@pytest.fixture(params=[(1, 0, 1)])
def session(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Session]:
    """With as many devices as the parameter says: that learn, and that only act; and its slots.

    By default it has one, so that there is one size of a batch to compile.
    """
    num_devices, inference_devices, num_slots = request.param
    learning = dataclasses.replace(CONFIG.learning, num_devices=num_devices)
    serving_config = dataclasses.replace(
        CONFIG.serving, inference_devices=inference_devices, training_slots=num_slots
    )
    config = dataclasses.replace(CONFIG, learning=learning, serving=serving_config)
    geometry, metrics = plan_geometry(config), Metrics(tmp_path)
    hub = build_hub(config, geometry, session_number=0)
    system = build(config, geometry, hub=hub, spec=SPEC, metrics=metrics)
    yield Session(config, system, hub, metrics)
    metrics.close()


@pytest.fixture
def compiled() -> Iterator[list[str]]:
    """Names of what is traced or compiled meanwhile, in any thread."""
    with compilations() as names:
        yield names


@pytest.fixture
def compiling(session: Session, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """An update whose compilation ends once the event is set."""
    end = threading.Event()
    compile_update = session.learning.compile_update
    late = lambda: end.wait(SECONDS) and compile_update()  # noqa: E731
    monkeypatch.setattr(session.learning, "compile_update", late)
    yield end
    end.set()


def test_acting_does_not_wait_for_the_update_to_be_compiled(
    session: Session, compiling: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_asked, next_batch = threading.Event(), session._hub.next_batch
    asked = lambda *of, **more: is_asked.set() or next_batch(*of, **more)  # noqa: E731
    monkeypatch.setattr(session._hub, "next_batch", asked)
    session.start()
    assert is_asked.wait(SECONDS)
    assert session.learning.request_snapshot(with_replay=False).result(SECONDS) is not None
    assert session.is_compiling
    compiling.set()
    while session.is_compiling:
        session.failed.wait(0.01)
    # Both threads are watched.
    wait_until(lambda: set(session.watchdog.late(-1.0)) == {"acting", "learning"})
    session.stop()
    session.raise_failure()


def test_an_update_that_the_device_has_no_memory_for_refuses_the_run(session: Session) -> None:
    parts = session._schedule._system  # type: ignore[attr-defined]
    tiny = parts._replace(scale=parts.scale._replace(device_bytes=1000))
    session._schedule._system = tiny  # type: ignore[attr-defined]
    session.start()
    assert session.failed.wait(SECONDS)
    session.stop()
    with pytest.raises(ConfigError) as caught:
        session.raise_failure()
    assert "learning.batch_sequences" in str(caught.value)


def test_what_compiling_dies_of_ends_the_session(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise MemoryError("no room for the update")

    monkeypatch.setattr(session.learning, "compile_update", fail)
    session.start()
    assert session.failed.wait(SECONDS)
    session.stop()
    with pytest.raises(RuntimeError, match="learning died: no room for the update"):
        session.raise_failure()


@pytest.mark.parametrize("has_failed", [False, True])
def test_an_update_that_takes_long_is_waited_for_at_the_end_but_after_a_failure(
    session: Session, monkeypatch: pytest.MonkeyPatch, has_failed: bool
) -> None:
    """What it has learned is saved then; after a failure nothing is."""
    monkeypatch.setattr(schedule, "GRACE_SECONDS", 0.0)
    is_learning, may_end = threading.Event(), threading.Event()

    def learn() -> None:
        is_learning.set()
        may_end.wait(SECONDS)

    monkeypatch.setattr(session.learning, "run_once", learn)
    session.start()
    assert is_learning.wait(SECONDS)
    if has_failed:
        session.failed.set()
    end = threading.Thread(target=session.stop)
    end.start()
    wait_until(lambda: session._workers[1]._stop.is_set())
    assert has_failed or end.is_alive()
    if not has_failed:
        may_end.set()
    end.join(SECONDS)
    assert not end.is_alive()
    may_end.set()


def test_no_thread_starts_another_piece_of_work_while_another_one_is_waited_for(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could be an update: the end of a run has time for the one that is under way."""
    may_act, may_learn, begun = threading.Event(), threading.Event(), threading.Semaphore(0)

    def learn() -> None:
        begun.release()
        may_learn.wait(SECONDS)

    monkeypatch.setattr(session._workers[0], "_body", lambda: may_act.wait(SECONDS))
    monkeypatch.setattr(session.learning, "run_once", learn)
    session.start()
    assert begun.acquire(timeout=SECONDS)
    end = threading.Thread(target=session.stop)
    end.start()
    wait_until(lambda: session.system.channel.is_closed)  # both are asked by then
    may_learn.set()
    learning = session._workers[1]._thread
    wait_until(lambda: begun.acquire(blocking=False) or not learning.is_alive())
    has_ended = not learning.is_alive()
    may_act.set()
    end.join(SECONDS)
    assert has_ended


@pytest.mark.parametrize(
    "session",
    [(1, 0, SLOTS), pytest.param((2, 1, SLOTS), marks=pytest.mark.gate)],
    indirect=True,
    ids=str,
)
def test_what_is_compiled_ahead_is_what_runs(
    session: Session, compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    original = GradientUpdate.__call__

    def counted(*arguments: Any, **keywords: Any) -> Any:
        calls.append(1)
        return original(*arguments, **keywords)

    monkeypatch.setattr(GradientUpdate, "__call__", counted)
    learning, parts = session.learning, session.system
    learning.compile_insertion(parts.page)
    compiled.clear()
    learning.trace_update()
    assert [name for name in compiled if "jaxpr_trace" not in name] == []
    num_traced = len(calls)
    learning.compile_update()
    assert len(calls) == num_traced > 0  # what was traced is not traced again
    geometry = plan_geometry(session._config)
    for each in [each for each in geometry.slot_ranges if each.role == "training"] * 3:
        size = each.size
        pages = jax.tree.map(lambda x, n=size: np.zeros((n, *x.shape), x.dtype), parts.page)
        own = jax.device_put(pages, geometry.inference[each.device])
        filled = FilledPages(own, each.slots, each.slots, (), [0] * size)
        parts.channel.pages.put(filled, 0.0)
    compiled.clear()
    assert learning.run_without_update()
    parts.channel.limiter.acted(SLOTS * 4)
    assert learning.run_once()
    assert learning.updates == 0  # it is being computed, and may be skipped
    session.stop()
    assert compiled == []
    assert learning.updates == 1
