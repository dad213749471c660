"""Connections without a transport: of env servers that play a recording, and how they end.

Everything else of a connection is in test_server*.
"""

import queue
from typing import Any

import grpc
import numpy as np
import pytest

from learner.serving.batching import free_running, lock_step
from learner.serving.connection import Connection
from learner.serving.core import Serving
from learner.serving.hub import Hub
from learner.serving.leases import SlotTable
from learner.serving.peer import EndError
from seedrl.config import EnvironmentConfig
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec
from seedrl.types import StepType, TimeStep
from seedrl.wire import seedrl_pb2, version
from seedrl.wire.framing import ActionsPayload, StepPayload
from seedrl.wire.payload import StepLayout
from seedrl.wire.spec import spec_message

SPEC = EnvSpec(ArraySpec((), "float32"), DiscreteSpec(99))


def _hub(*, is_lock_step: bool = True) -> Hub:
    slots = SlotTable(training=4, evaluation=0, seed=3)
    rule = lock_step() if is_lock_step else free_running(0.005)
    serving = Serving(slots, page_steps=2, rule=rule)
    return Hub(serving, EnvironmentConfig(id="Some-v0"), spec=SPEC)


def _join(
    hub: Hub,
    num_envs: int,
    num_groups: int = 1,
    *,
    plays_recording: bool = True,
    longest: int = 0,
) -> Connection:
    stream = Connection(hub, "peer", queue.SimpleQueue(), longest)
    hello = seedrl_pb2.Hello(
        major=version.MAJOR,
        num_envs=num_envs,
        num_groups=num_groups,
        plays_recording=plays_recording,
    )
    if stream.receive(seedrl_pb2.FromEnvServer(hello=hello)):
        stream.receive(seedrl_pb2.FromEnvServer(ready=seedrl_pb2.Ready(spec=spec_message(SPEC))))
    return stream


def _groups(stream: Connection) -> list[tuple[list[int], int]]:
    """Slots and first row of each group of Assign."""
    answer = stream.outbox.get_nowait()
    assert isinstance(answer, seedrl_pb2.FromLearner), answer
    return [(list(group.slots), group.first_row) for group in answer.assign.groups]


def _step(
    stream: Connection, group: int, num_envs: int, sequence: int, step_type: StepType
) -> None:
    zeros, ones = np.zeros(num_envs, np.float32), np.ones(num_envs, np.float32)
    timestep = TimeStep(np.full(num_envs, step_type, np.uint8), zeros, ones, zeros)
    assert stream.receive(StepPayload(StepLayout(SPEC, num_envs).pack(group, sequence, timestep)))


def _act(hub: Hub) -> None:
    """Answers each slot with its number."""
    batch = hub.next_batch(["training"], timeout=0.0)
    assert batch is not None
    hub.answer(batch, np.arange(4, dtype=np.int32))


def test_a_recording_is_asked_for_from_where_its_player_was_lost() -> None:
    hub = _hub()
    first = _join(hub, 4)
    assert _groups(first) == [([0, 1, 2, 3], 0)]
    for sequence, step_type in enumerate((StepType.FIRST, StepType.MID, StepType.MID)):
        _step(first, 0, 4, sequence, step_type)
        _act(hub)
    first.close()
    assert hub.take_ended() == []
    again = _join(hub, 4, 2)
    assert _groups(again) == [([0, 1], 3), ([2, 3], 3)]
    for group in (0, 1):
        _step(again, group, 2, 0, StepType.LAST)
    _act(hub)
    assert hub._serving.slots.rows.tolist() == [4] * 4


def test_streams_that_environments_take_over_are_reported_as_cut() -> None:
    hub = _hub()
    player = _join(hub, 4)
    _step(player, 0, 4, 0, StepType.FIRST)
    _act(hub)
    player.close()
    environments = _join(hub, 4, plays_recording=False)
    assert _groups(environments) == [([0, 1, 2, 3], 0)]
    assert hub.take_ended() == [4, 5, 6, 7]
    environments.close()
    assert hub.take_ended() == [8, 9, 10, 11]
    assert hub.take_ended() == []


@pytest.mark.parametrize(
    ("is_lock_step", "reason"),
    [
        (False, "only a deterministic learner"),
        (True, "expected streams that can resume at row 1, but that of slot 0 was cut"),
    ],
)
def test_a_player_that_is_of_no_use_is_told_not_to_come_back(
    is_lock_step: bool, reason: str
) -> None:
    hub = _hub(is_lock_step=is_lock_step)
    environments = _join(hub, 4, plays_recording=False)
    _step(environments, 0, 4, 0, StepType.FIRST)
    _act(hub)
    environments.close()
    end = _join(hub, 4).outbox.get_nowait()
    assert isinstance(end, EndError)
    assert end.code == grpc.StatusCode.FAILED_PRECONDITION
    assert end.details.startswith(reason)
    assert not end.is_reported


def _ready(
    hub: Hub, outbox: queue.SimpleQueue, spec: seedrl_pb2.EnvSpec, *metrics: str
) -> Connection:
    connection = Connection(hub, "peer", outbox, max_message_bytes=12345, step_deadline_seconds=2.5)
    hello = seedrl_pb2.Hello(major=version.MAJOR, num_envs=4, num_groups=2)
    assert connection.receive(seedrl_pb2.FromEnvServer(hello=hello))
    ready = seedrl_pb2.Ready(spec=spec, metrics=metrics)
    connection.receive(seedrl_pb2.FromEnvServer(ready=ready))
    return connection


def _measuring_hub() -> Hub:
    serving = Serving(
        SlotTable(training=4, evaluation=0, seed=3), page_steps=2, rule=free_running(0.0)
    )
    return Hub(serving, EnvironmentConfig(id="Some-v0", metrics=("score", "deaths", "keys")))


def _ended(group: int, metrics: list[list[float]], sequence: int = 1) -> bytes:
    """A step of which the last rows are LAST, as many as there are metrics."""
    kinds = np.array([StepType.MID] * (2 - len(metrics)) + [StepType.LAST] * len(metrics), np.uint8)
    zeros = np.zeros(2, np.float32)
    timestep = TimeStep(kinds, zeros, zeros + 1, zeros)
    rows = np.array(metrics, np.float32).reshape(-1, 2)
    return StepLayout(SPEC, 2, num_metrics=2).pack(group, sequence, timestep, rows)


def _first(group: int) -> bytes:
    zeros = np.zeros(2, np.float32)
    timestep = TimeStep(np.zeros(2, np.uint8), zeros, zeros + 1, zeros)
    return StepLayout(SPEC, 2, num_metrics=2).pack(group, 0, timestep, np.zeros((0, 2), np.float32))


def test_one_message_may_bring_the_steps_of_several_groups_and_their_metrics() -> None:
    hub, outbox = _measuring_hub(), queue.SimpleQueue()
    connection = _ready(hub, outbox, spec_message(SPEC), "keys", "score")
    assign = outbox.get_nowait().assign
    assert list(assign.environments[0].metrics) == ["score", "deaths", "keys"]
    assert assign.max_message_bytes == 12345
    assert assign.step_deadline_seconds == 2.5
    assert connection.receive(StepPayload(_first(1) + _first(0)))
    _act(hub)
    last = _ended(0, [[7, 0.5]]) + _ended(1, [[8, np.nan], [9, 2.5]])
    assert connection.receive(StepPayload(last))
    batch = hub.next_batch(["training"], timeout=0.0)
    assert batch is not None
    # In the order of the configuration, and NaN for what this env server does not measure.
    first, second = (item.metrics for item in batch.pending)
    np.testing.assert_array_equal(first, [[0.5, np.nan, 7]])
    np.testing.assert_array_equal(second, [[np.nan, np.nan, 8], [2.5, np.nan, 9]])


def test_what_is_wrong_in_a_message_of_several_groups_is_the_one_that_is_rejected() -> None:
    hub, outbox = _measuring_hub(), queue.SimpleQueue()
    connection = _ready(hub, outbox, spec_message(SPEC), "keys", "score")
    outbox.get_nowait()
    assert connection.receive(StepPayload(_first(1) + _first(0)))
    _act(hub)
    assert not connection.receive(StepPayload(_ended(0, []) + _ended(1, [[np.inf, 1]])))
    ledger = hub.ledger()
    assert (ledger["accepted"], ledger["rejected"]) == (6, 2)
    assert isinstance(outbox.get_nowait(), ActionsPayload)
    end = outbox.get_nowait()
    assert end.code == grpc.StatusCode.INVALID_ARGUMENT
    assert end.details == (
        "Some-v0, group 1: expected finite metrics, or NaN for none; got infinity"
    )


def test_what_a_peer_says_of_itself_is_one_short_line() -> None:
    hub, outbox = _measuring_hub(), queue.SimpleQueue()
    connection = Connection(hub, "peer", outbox)
    host = "h\n0:00:01  999,999 steps\x1b[2J" + "x" * 10**6
    hello = seedrl_pb2.Hello(major=version.MAJOR, num_envs=4, host=host, pid=7)
    assert connection.receive(seedrl_pb2.FromEnvServer(hello=hello))
    assert connection.peer.isprintable() and len(connection.peer) < 210
    refusal = seedrl_pb2.Refusal(reason="no\nlicence\x1b[2J" + "y" * 10**6)
    outbox.get()  # Assign
    connection.receive(seedrl_pb2.FromEnvServer(refusal=refusal))
    end = outbox.get()
    assert end.code is grpc.StatusCode.FAILED_PRECONDITION
    assert end.details.isprintable() and len(end.details) == 200


def test_an_environment_that_failed_ends_the_stream_and_its_env_server_returns() -> None:
    hub, outbox = _measuring_hub(), queue.SimpleQueue()
    connection = _ready(hub, outbox, spec_message(SPEC))
    assert outbox.get_nowait().assign.minor == version.MINOR
    failure = seedrl_pb2.Failure(reason="no\nlicence")
    assert not connection.receive(seedrl_pb2.FromEnvServer(failure=failure))
    end = outbox.get_nowait()
    assert (end.code, end.details) == (
        grpc.StatusCode.UNAVAILABLE,
        "an environment failed: no licence",
    )
    assert hub.num_free == 4


def test_an_absurd_reward_is_a_failure_of_its_environment_and_no_breach() -> None:
    hub, outbox = _measuring_hub(), queue.SimpleQueue()
    connection = _ready(hub, outbox, spec_message(SPEC))
    assert outbox.get_nowait().assign.environments[0].max_abs_reward == 1e6
    zeros = np.zeros(2, np.float32)
    reward = np.array([0, 1e38], np.float32)
    step = TimeStep(np.ones(2, np.uint8), reward, zeros + 1, zeros)
    rows = np.zeros((0, 2), np.float32)
    data = StepLayout(SPEC, 2, num_metrics=2).pack(0, 0, step, rows)
    assert not connection.receive(StepPayload(data))
    end = outbox.get_nowait()
    assert end.code is grpc.StatusCode.UNAVAILABLE
    assert "expected a reward of -1e+06 to 1e+06 (environment.max_abs_reward)" in end.details
    assert (hub.ledger()["rejected"], hub.env_servers().failures, hub.num_free) == (2, 1, 4)


class _Link:
    """Says whether it was ended."""

    def __init__(self) -> None:
        self.has_ended = False

    def end(self) -> None:
        self.has_ended = True

    def send_actions(self, payload: memoryview) -> bool:
        return not self.has_ended


def _say_hello(connection: Connection) -> bool:
    hello = seedrl_pb2.Hello(major=version.MAJOR, num_envs=4, num_groups=1, link="name")
    return connection.receive(seedrl_pb2.FromEnvServer(hello=hello))


def test_a_connection_that_the_hub_ends_while_it_connects_its_link_ends_the_link() -> None:
    hub, outbox, link = _hub(is_lock_step=False), queue.SimpleQueue(), _Link()

    def connect(name: str) -> Any:
        hub.close(None)
        return link

    connection = Connection(hub, "peer", outbox, connect_link=connect)
    _say_hello(connection)
    assert link.has_ended
    assert outbox.get_nowait() is None  # what follows it is never sent
    connection.close()
    assert hub.connections() == []
    assert hub.num_free == 4


def test_what_ends_a_lease_is_what_its_connection_ends_with() -> None:
    """Not the next step of its env server, which is fenced: that would end the env server too."""
    hub, outbox = _hub(is_lock_step=False), queue.SimpleQueue()
    connection = Connection(hub, "peer", outbox)
    assert _say_hello(connection)
    ready = seedrl_pb2.Ready(spec=spec_message(SPEC))
    assert connection.receive(seedrl_pb2.FromEnvServer(ready=ready))
    outbox.get_nowait()
    hub.leave(connection._lease, EndError(grpc.StatusCode.UNAVAILABLE, "return later"))
    zeros = np.zeros(4, np.float32)
    first = TimeStep(np.zeros(4, np.uint8), zeros, zeros + 1, zeros)
    assert not connection.receive(StepPayload(StepLayout(SPEC, 4).pack(0, 0, first)))
    assert outbox.get_nowait().details == "return later"
    assert outbox.empty()
    assert hub.ledger()["fenced"] == 4
