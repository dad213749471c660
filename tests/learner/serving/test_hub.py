"""The hub and its connections without a transport: who gets what, and how waits and races end.

All else of a connection is in test_server.py.
"""

import queue
import socket
import time
from typing import Any

import grpc
import numpy as np

from learner.report.env_servers import EnvServerRegistry
from learner.serving.batching import free_running
from learner.serving.connection import Connection
from learner.serving.core import Serving
from learner.serving.hub import IDLE_SECONDS, EndError, Hub
from learner.serving.leases import Role, SlotTable
from learner.serving.server import LinkReader
from seedrl.config import EnvironmentConfig
from seedrl.specs import ArraySpec, BoxSpec, DiscreteSpec, EnvSpec
from seedrl.types import StepType, TimeStep
from seedrl.wire import contract, seedrl_pb2
from seedrl.wire.framing import StepPayload
from seedrl.wire.learner_end import LearnerLink
from seedrl.wire.payload import ActionLayout, StepLayout
from seedrl.wire.spec import spec_message
from tests.packed import packed

SPEC = EnvSpec(ArraySpec((), "float32"), DiscreteSpec(99))
FIRST, MID, LAST = StepType
METRICS = ("score", "deaths", "keys")


def _hub(
    evaluation: int = 0,
    num_devices: int = 1,
    *,
    metrics: tuple[str, ...] = (),
    name: str = "Some-v0",
    **arguments: Any,
) -> Hub:
    slots = SlotTable(training=4, evaluation=evaluation, seed=3, num_devices=num_devices)
    serving = Serving(slots, page_steps=2, rule=free_running(0.0))
    return Hub(serving, EnvironmentConfig(id=name, metrics=metrics), **arguments)


def _say(connection: Connection, **content: Any) -> bool:
    return connection.receive(seedrl_pb2.FromEnvServer(**content))


def _hello(connection: Connection, **fields: Any) -> bool:
    fields = {"major": contract.MAJOR, "num_envs": 4, "num_groups": 1, **fields}
    return _say(connection, hello=seedrl_pb2.Hello(**fields))


def _greet(hub: Hub, **fields: Any) -> Connection:
    """An env server that has said Hello."""
    connection = Connection(hub, "peer", queue.SimpleQueue(), 12345, 2.5)
    _hello(connection, **fields)
    return connection


def _ready(connection: Connection, spec: EnvSpec = SPEC, metrics: tuple[str, ...] = ()) -> bool:
    ready = seedrl_pb2.Ready(spec=spec_message(spec), metrics=metrics)
    return _say(connection, ready=ready)


def _join(hub: Hub, *, metrics: tuple[str, ...] = (), **fields: Any) -> tuple[Connection, Any]:
    """An env server that is ready, unless it is refused, and what it got: Assign, or its end."""
    connection = _greet(hub, **fields)
    if not connection.has_ended:
        assert _ready(connection, metrics=metrics)
    return connection, connection.outbox.get_nowait()


def _step(
    group: int, num_envs: int, sequence: int, kinds: StepType | list[StepType], metrics: Any = None
) -> StepPayload:
    zeros = np.zeros(num_envs, np.float32)
    timestep = TimeStep(np.full(num_envs, kinds, np.uint8), zeros, zeros + 1, zeros)
    if metrics is None:
        return StepPayload(packed(StepLayout(SPEC, num_envs), group, sequence, timestep))
    rows = np.array(metrics, np.float32).reshape(-1, 2)
    layout = StepLayout(SPEC, num_envs, num_metrics=2)
    return StepPayload(packed(layout, group, sequence, timestep, rows))


def _act(hub: Hub) -> None:
    batch = hub.next_batch(["training"], timeout=0.0)
    assert batch is not None
    hub.answer(batch, np.zeros(4, np.int32))


def test_who_gets_no_slot_hears_what_it_would_have_to_allow() -> None:
    for name, is_named in (("Some-v0", False), ("mine:make", True)):
        hub = _hub(name=name)
        _join(hub)
        _, end = _join(hub)
        assert isinstance(end, EndError) and end.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert ("--allow-env mine:make" in end.details) is is_named


def test_one_message_may_bring_the_steps_of_several_groups_and_their_metrics() -> None:
    hub = _hub(metrics=METRICS)
    connection, answer = _join(hub, num_groups=2, metrics=("keys", "score"))
    assert list(answer.assign.environment.metrics) == list(METRICS)
    assert (answer.assign.max_message_bytes, answer.assign.step_deadline_seconds) == (12345, 2.5)
    first = b"".join((_step(1, 2, 0, FIRST, []), _step(0, 2, 0, FIRST, [])))
    assert connection.receive(StepPayload(first))
    _act(hub)
    last = (_step(0, 2, 1, [MID, LAST], [[7, 0.5]]), _step(1, 2, 1, LAST, [[8, np.nan], [9, 2.5]]))
    assert connection.receive(StepPayload(b"".join(last)))
    batch = hub.next_batch(["training"], timeout=0.0)
    assert batch is not None
    # In the order of the configuration, and NaN for what this env server does not measure.
    first, second = (item.metrics for item in batch.pending)
    np.testing.assert_array_equal(first, [[0.5, np.nan, 7]])
    np.testing.assert_array_equal(second, [[np.nan, np.nan, 8], [2.5, np.nan, 9]])


def test_numbers_without_bounds_are_sent_as_they_are() -> None:
    spec = EnvSpec(SPEC.observation, BoxSpec((2,), (-np.inf, -3.0), (np.inf, 3.0)))
    hub = _hub()
    connection = _greet(hub)
    assert _ready(connection, spec) and connection.outbox.get_nowait().assign
    assert connection.receive(_step(0, 4, 0, FIRST))
    batch = hub.next_batch(["training"], timeout=0.0)
    assert batch is not None
    hub.answer(batch, np.full((4, 2), -9, np.float32))
    _, actions = ActionLayout(spec.action, 4).unpack(connection.outbox.get_nowait())
    np.testing.assert_array_equal(actions, [[-9, -1]] * 4)


def test_an_environment_that_failed_ends_the_stream_and_its_env_server_returns() -> None:
    hub = _hub()
    connection, answer = _join(hub)
    assert answer.assign.minor == contract.MINOR
    assert not _say(connection, failure=seedrl_pb2.Failure(reason="no\nlicence"))
    end = connection.outbox.get_nowait()
    assert end.code is grpc.StatusCode.UNAVAILABLE and "no licence" in end.details
    assert hub._serving.slots.num_free == 4


def test_an_absurd_reward_is_a_failure_of_its_environment_and_no_breach() -> None:
    hub = _hub()
    connection, answer = _join(hub)
    assert answer.assign.environment.max_abs_reward == 1e6
    zeros = np.zeros(4, np.float32)
    step = TimeStep(np.ones(4, np.uint8), zeros + np.float32(1e38), zeros + 1, zeros)
    assert not connection.receive(StepPayload(packed(StepLayout(SPEC, 4), 0, 0, step)))
    end = connection.outbox.get_nowait()
    assert end.code is grpc.StatusCode.UNAVAILABLE
    assert "environment.max_abs_reward" in end.details
    assert (hub.ledger()["rejected"], hub.env_servers().failures, hub._serving.slots.num_free) == (
        4,
        1,
        4,
    )


# --- the hub ---


def test_a_wake_before_the_wait_is_not_lost() -> None:
    hub = _hub(2)
    hub.wake()
    roles: list[Role] = ["training", "evaluation"]
    assert hub.next_batch(roles, timeout=1e6) is None
    start = time.monotonic()
    assert hub.next_batch(roles, timeout=0.02) is None
    assert time.monotonic() - start >= 0.02  # it counted once


def _assigned(stream: Connection) -> tuple[int, list[int]]:
    """The key of its lease, and its slots."""
    answer = stream.outbox.get_nowait()
    assert isinstance(answer, seedrl_pb2.FromLearner), answer
    return answer.assign.lease, sorted(s for group in answer.assign.groups for s in group.slots)


def test_who_comes_back_before_its_end_was_noticed_gets_its_slots_again() -> None:
    hub = _hub(2)
    _greet(hub, num_envs=2)
    old = _greet(hub)
    key, slots = _assigned(old)
    report = [seedrl_pb2.Sent(lease=key)]
    assert _assigned(_greet(hub, sent=report))[1] == slots
    assert old.outbox.get_nowait() is None  # ended quietly: nobody reads it
    assert hub.take_ended() != []


def test_an_env_server_is_sent_away_for_slots_that_stay_idle() -> None:
    now = [0.0]
    hub = _hub(1, clock=lambda: now[0])
    (evaluates, _), (trains, _) = _join(hub, num_envs=2), _join(hub, num_envs=2)
    evaluates.close()
    hub.rebalance()
    now[0] = IDLE_SECONDS - 1
    hub.rebalance()
    assert trains.outbox.empty()
    now[0] = IDLE_SECONDS
    hub.rebalance()
    assert isinstance(trains.outbox.get_nowait(), EndError)
    again, answer = _join(hub, num_envs=2)
    assert [4] in [list(group.slots) for group in answer.assign.groups]
    for _ in range(3):
        now[0] += IDLE_SECONDS
        hub.rebalance()
    assert again.outbox.empty()


def test_each_inference_device_gets_the_batches_of_its_own_slots() -> None:
    hub = _hub(2, num_devices=2)
    stream, _ = _join(hub, num_envs=6)
    roles: tuple[Role, ...] = ("training", "evaluation")
    taken: list[tuple[int, list[int]]] = []
    for group in (1, 0, 2):
        assert stream.receive(_step(group, 2, 0, FIRST))
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

    stream = _greet(hub)
    assert states(0.0, 1000.0) == ["building"] * 2
    _ready(stream)
    assert states(0.0, 61.0) == ["live", "hung"]  # it owes the first step
    assert stream.receive(_step(0, 4, 0, FIRST))
    assert states(0.0, 61.0) == ["live"] * 2  # it waits in the learner's queue
    batch = hub.next_batch(["training"], timeout=0.0)
    assert batch is not None
    assert states(61.0, 61.0) == ["live"] * 2  # it is being acted on
    hub.answer(batch, np.zeros(4, np.int32))
    assert states(0.0, 61.0) == ["live", "hung"]
    stream.close()
    found = hub.env_servers()
    assert (found.servers[0].state, found.training.live) == ("left", 0)


# --- both sides of races ---


class _Link:
    def __init__(self) -> None:
        self.has_ended = False

    def end(self) -> None:
        self.has_ended = True

    def send_actions(self, payload: memoryview) -> bool:
        return not self.has_ended


def test_a_connection_that_the_hub_ends_while_it_connects_its_link_ends_the_link() -> None:
    hub, link = _hub(), _Link()

    def connect(name: str) -> Any:
        hub.close(None)
        return link

    connection = Connection(hub, "peer", queue.SimpleQueue(), connect_link=connect)
    _hello(connection, link="name")
    assert link.has_ended
    assert connection.outbox.get_nowait() is None  # what follows it is never sent
    connection.close()
    assert not hub._serving.slots.leases and hub._serving.slots.num_free == 4


def test_the_watch_never_sees_a_new_state_with_the_time_of_the_old_one() -> None:
    """Else it would cancel a call whose env server is about to hear why it ends."""

    class Watched(Connection):
        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, value)
            if value is True and name in ("has_said_hello", "has_ended"):
                seen[name] = self.since

    seen: dict[str, float] = {}
    connection = Watched(_hub(), "peer", queue.SimpleQueue())
    connection.since = long_ago = time.monotonic() - 1e6
    _hello(connection)
    assert seen["has_said_hello"] > long_ago
    connection.since = long_ago
    connection.end()
    assert seen["has_ended"] > long_ago


def test_an_env_server_whose_link_comes_after_the_end_of_a_service_is_sent_away() -> None:
    """And no thread dies of that, which would make an error of the end of a run."""
    hub, links = _hub(), LinkReader()
    connection = _greet(hub)
    ours, theirs = socket.socketpair()
    links.stop()
    links.add(LearnerLink(ours, 2**16), connection)
    assert connection.has_ended and theirs.recv(1) == b""
    theirs.close()


def test_the_first_spec_stays_and_bounds_need_not_be_declared() -> None:
    hub = _hub()
    specs = [
        EnvSpec(ArraySpec((), "int64", *bounds), SPEC.action)  # of a float they do not count
        for bounds in (((0.0,), (1.0,)), (), ((0.0,), (2.0,)))
    ]
    are_taken = []
    for spec in specs:
        connection = _greet(hub, num_envs=1)
        are_taken.append(_ready(connection, spec))
    assert are_taken == [True, True, False]
    assert hub.spec == specs[0]


def test_a_message_that_cuts_a_stream_and_then_breaks_a_rule_ends_its_own_connection_only() -> None:
    hub = _hub()
    wrong, _ = _join(hub, num_envs=2, num_groups=2)
    other, _ = _join(hub, num_envs=2)
    for connection, group, number in ((wrong, 0, 1), (wrong, 1, 1), (other, 0, 2)):
        assert connection.receive(_step(group, number, 0, FIRST))
    _act(hub)
    # The first environment was restarted in its episode; the second one's step was doubled.
    both = b"".join((_step(0, 1, 1, FIRST), _step(1, 1, 0, FIRST)))
    assert not wrong.receive(StepPayload(both))
    assert other.receive(_step(0, 2, 1, MID))
