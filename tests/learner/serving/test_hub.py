"""The hub: waits that end when they should, and who gets which slots; without any transport."""

import queue
import time
from typing import Any

import numpy as np
import pytest

from learner.report.env_servers import EnvServerRegistry
from learner.serving.batching import free_running
from learner.serving.connection import Connection
from learner.serving.core import Serving
from learner.serving.hub import IDLE_SECONDS, EndError, Hub
from learner.serving.leases import Role, SlotTable
from seedrl.config import EnvironmentConfig
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec
from seedrl.types import StepType, TimeStep
from seedrl.wire import contract, seedrl_pb2
from seedrl.wire.framing import StepPayload
from seedrl.wire.payload import StepLayout
from seedrl.wire.spec import spec_message

_SPEC = EnvSpec(ArraySpec((), "float32"), DiscreteSpec(2))


def _hub(evaluation: int = 2, num_devices: int = 1, **arguments: Any) -> Hub:
    slots = SlotTable(training=4, evaluation=evaluation, seed=3, num_devices=num_devices)
    serving = Serving(slots, page_steps=2, rule=free_running(0.0))
    return Hub(serving, EnvironmentConfig(id="Some-v0"), **arguments)


@pytest.fixture
def hub() -> Hub:
    return _hub()


def test_a_wake_before_the_wait_is_not_lost(hub: Hub) -> None:
    hub.wake()
    roles: list[Role] = ["training", "evaluation"]
    assert hub.next_batch(roles, timeout=1e6) is None
    start = time.monotonic()
    assert hub.next_batch(roles, timeout=0.02) is None
    assert time.monotonic() - start >= 0.02  # it counted once


def _join(hub: Hub, num_envs: int, sent: list[seedrl_pb2.Sent] | None = None) -> Connection:
    """An env server that has said Hello."""
    stream = Connection(hub, "peer", queue.SimpleQueue())
    hello = seedrl_pb2.Hello(
        major=contract.MAJOR, num_envs=num_envs, num_groups=1, host="h", pid=7, sent=sent or []
    )
    stream.receive(seedrl_pb2.FromEnvServer(hello=hello))
    return stream


def _assigned(stream: Connection) -> tuple[int, list[int]]:
    """The key of its lease, and its slots."""
    answer = stream.outbox.get_nowait()
    assert isinstance(answer, seedrl_pb2.FromLearner), answer
    return answer.assign.lease, sorted(s for group in answer.assign.groups for s in group.slots)


def test_who_comes_back_before_its_end_was_noticed_gets_its_slots_again(hub: Hub) -> None:
    _assigned(_join(hub, 2))
    old = _join(hub, 4)
    key, slots = _assigned(old)
    report = [seedrl_pb2.Sent(lease=key, num_envs=sum(slot < 4 for slot in slots), steps=1)]
    assert _assigned(_join(hub, 4, report))[1] == slots
    assert old.outbox.get_nowait() is None  # ended quietly: nobody reads it
    assert hub.take_ended() != []
    # It had sent a step that was never seen.
    assert hub.ledger()["lost"] == hub.ledger()["sent"] == sum(slot < 4 for slot in slots)


def test_an_env_server_is_sent_away_for_slots_that_stay_idle() -> None:
    now = [0.0]
    hub = _hub(1, clock=lambda: now[0])
    evaluates, trains = _join(hub, 2), _join(hub, 2)
    for stream in (evaluates, trains):
        _assigned(stream)
        _ready(stream)
    evaluates.close()
    hub.rebalance()
    now[0] = IDLE_SECONDS - 1
    hub.rebalance()
    assert trains.outbox.empty()
    now[0] = IDLE_SECONDS
    hub.rebalance()
    assert isinstance(trains.outbox.get_nowait(), EndError)
    again = _join(hub, 2)
    assert 4 in _assigned(again)[1]
    _ready(again)
    for _ in range(3):
        now[0] += IDLE_SECONDS
        hub.rebalance()
    assert again.outbox.empty()


def test_the_first_env_server_fixes_the_spec_and_others_are_refused(hub: Hub) -> None:
    first, second = _join(hub, 1), _join(hub, 1)
    for stream in (first, second):
        _assigned(stream)
    assert not hub.wait_for_env_server(0.0)
    _ready(first)
    assert (hub.wait_for_spec(0.0), hub.wait_for_env_server(0.0)) == (_SPEC, True)
    other = EnvSpec(ArraySpec((2,), "float32"), DiscreteSpec(2))
    _ready(second, other)
    item = second.outbox.get_nowait()
    assert isinstance(item, EndError) and item.is_refusal
    assert hub.spec == _SPEC and first.outbox.empty()


def test_each_inference_device_gets_the_batches_of_its_own_slots() -> None:
    hub = _hub(num_devices=2)
    stream = _join(hub, 6)
    _assigned(stream)
    _ready(stream)
    roles: tuple[Role, ...] = ("training", "evaluation")
    taken: list[tuple[int, list[int]]] = []
    for group in (1, 0, 2):
        _send_step(stream, 2, group)
        for device in (0, 1):
            batch = hub.next_batch(roles, timeout=0.0, device=device)
            if batch is not None:
                taken.append((device, batch.slots.tolist()))
                hub.answer(batch, np.zeros(len(batch.slots), np.int32))
    assert taken == [(1, [1, 3]), (0, [0, 2]), (0, [4, 5])]
    assert [hub.live_slots("evaluation", device).tolist() for device in (0, 1)] == [[4, 5], []]
    stream.close()
    # Streams are numbered by slot, after those that were never begun.
    assert [hub.take_ended(device) for device in (1, 0)] == [[7, 9], [6, 8, 10, 11]]
    assert hub.take_ended(0) == []


def _ready(stream: Connection, spec: EnvSpec = _SPEC) -> None:
    ready = seedrl_pb2.Ready(spec=spec_message(spec))
    stream.receive(seedrl_pb2.FromEnvServer(ready=ready))


def _send_step(stream: Connection, num_envs: int, group: int = 0) -> None:
    """The first one of an episode."""
    zeros = np.zeros(num_envs, np.float32)
    timestep = TimeStep(np.full(num_envs, StepType.FIRST, np.uint8), zeros, zeros + 1, zeros)
    layout = StepLayout(_SPEC, num_envs)
    assert stream.receive(StepPayload(layout.pack(group, 0, timestep)))


def test_a_group_owes_a_step_from_its_actions_until_the_next_one() -> None:
    now = [100.0]
    registry = EnvServerRegistry(training_slots=4, step_deadline_seconds=60.0)
    hub = _hub(0, clock=lambda: now[0], registry=registry)

    def states(*seconds: float) -> list[str]:
        found = []
        for second in seconds:
            now[0] += second
            found.append(hub.env_servers().servers[0].state)
        return found

    stream = _join(hub, 4)
    assert states(0.0, 1000.0) == ["building"] * 2
    _ready(stream)
    assert states(0.0, 61.0) == ["live", "hung"]  # it owes the first step
    _send_step(stream, 4)
    assert states(0.0, 61.0) == ["live"] * 2  # it waits in the learner's queue
    batch = hub.next_batch(["training"], timeout=0.0)
    assert batch is not None
    assert states(61.0, 61.0) == ["live"] * 2  # it is being acted on
    hub.answer(batch, np.zeros(4, np.int32))
    assert states(0.0, 61.0) == ["live", "hung"]
    stream.close()
    found = hub.env_servers()
    assert (found.servers[0].state, found.training.live) == ("left", 0)
