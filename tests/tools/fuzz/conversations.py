"""Readers of a peer's messages, in whatever order: the learner's end, and the env server's.

An input is a row of messages, each behind its length in two bytes.
"""

import itertools
import queue
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np

from envs_server.build import check_assign, read_recipe
from envs_server.client import Lease
from envs_server.failures import BuildError, EnvironmentFailedError
from envs_server.options import Options
from learner.serving.batching import free_running
from learner.serving.connection import Connection
from learner.serving.core import Serving
from learner.serving.hub import EndError, Hub
from learner.serving.leases import SlotTable
from learner.serving.ledger import ALWAYS, residues
from seedrl.config import EnvironmentConfig
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec
from seedrl.types import TimeStep
from seedrl.wire.contract import MINOR
from seedrl.wire.framing import (
    ActionsPayload,
    StepPayload,
    WireError,
    encode_from_env_server,
    encode_from_learner,
    receive_from_env_server,
    receive_from_learner,
)
from seedrl.wire.learner_payload import pack_actions
from seedrl.wire.payload import StepLayout
from seedrl.wire.seedrl_pb2 import (
    Assign,
    Environment,
    Failure,
    Finish,
    FromEnvServer,
    FromLearner,
    Group,
    Ready,
    Refusal,
    Sent,
)
from seedrl.wire.spec import spec_message
from tests.packed import packed
from tests.tools.fuzz.target import Target, assert_one_line
from tests.tools.fuzz.wire import hello

_SPEC = EnvSpec(ArraySpec((2,), "float32"), DiscreteSpec(3))
_SLOTS = 8
_CODES = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.UNAVAILABLE,
}
# Its text stands for any exception that nobody thought of.
_UNEXPECTED = "internal error"


def in_a_row(*messages: bytes) -> bytes:
    """An input of these messages."""
    return b"".join(len(message).to_bytes(2, "little") + message for message in messages)


def _messages(data: bytes) -> Iterator[bytes]:
    while len(data) >= 2:
        length = int.from_bytes(data[:2], "little")
        yield data[2 : 2 + length]
        data = data[2 + length :]


def hear_env_server(data: bytes) -> bool:
    """A learner's end of a connection, with acting. Accepted if nothing has ended it.

    Whatever is said, our own equations hold, and the status is one that is documented.
    """
    now = itertools.count()
    serving = Serving(_slots(), page_steps=2, rule=free_running(0.0))
    environment = EnvironmentConfig(id="Some-v0", metrics=("episode.r",), max_abs_reward=1e6)
    hub = Hub(serving, environment, clock=lambda: float(next(now)))
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
    connection = Connection(hub, "peer", answers, 2**16, 9.0)
    is_open = True
    for message in _messages(data):
        is_open = connection.receive(receive_from_env_server(message))
        _act(hub)
        _assert_balanced(hub)
        _take(answers)
        if not is_open:
            break
    connection.close()
    _act(hub)
    _assert_balanced(hub)
    assert hub._serving.slots.num_free == _SLOTS, "slots are still taken"
    _take(answers)
    return is_open


def _take(answers: queue.SimpleQueue[object]) -> None:
    """As gRPC would: an env server that does not read would be ended for that."""
    while not answers.empty():
        if isinstance(answer := answers.get(), EndError):
            assert answer.code in _CODES and _UNEXPECTED not in answer.details, answer.details
            assert_one_line(answer.details)


def _slots() -> SlotTable:
    return SlotTable(training=_SLOTS, evaluation=0, seed=3)


def _act(hub: Hub) -> None:
    while (batch := hub.next_batch(["training"], timeout=0.0)) is not None:
        hub.answer(batch, np.zeros(len(batch.slots), np.int32))


def _assert_balanced(hub: Hub) -> None:
    assert residues(hub.ledger(), ALWAYS) == []


_CONSTANT = "envs_server.envs.constant:Still"
_ARGUMENTS = '{"shape": [2], "dtype": "float32"}'


class _Sent:
    def __init__(self) -> None:
        self.messages: list[Any] = []

    def put(self, message: object, /) -> None:
        self.messages.append(message)


def hear_learner(data: bytes) -> bool:
    """An env server's end of a connection. Accepted if nothing has ended it but Finish.

    Only environments of one kind, with their usual arguments, are built: others would be a test of
    gymnasium. What is asked for is read in any case.
    """
    sent = _Sent()
    options = Options(learner="unix:/none", num_envs=4, allow_env=(_CONSTANT,))
    lease = Lease(options, sent)
    lease.open()
    try:
        for data_of_one in _messages(data):
            message = receive_from_learner(data_of_one)
            if isinstance(message, FromLearner) and not _is_usual(message.assign):
                check_assign(message.assign, 4)
                read_recipe(message.assign.environment, (_CONSTANT,))
                return False
            if lease.handle(message) is not None:
                break
    except (WireError, BuildError, EnvironmentFailedError) as error:
        assert_one_line(error)
        return False
    finally:
        lease.close()
    for message in sent.messages:
        encode_from_env_server(message)
    return True


def _is_usual(assign: Assign) -> bool:
    asked, usual = assign.environment, {("", ""), (_CONSTANT, _ARGUMENTS)}
    is_usual = (asked.id, asked.arguments) in usual
    return is_usual and not asked.wrappers and not asked.vectorization


def _step(sequence: int, step_type: int, group: int = 0, num_envs: int = 2) -> bytes:
    ones = np.ones(num_envs, np.float32)
    observation = np.ones((num_envs, 2), np.float32)
    kinds = np.full(num_envs, step_type, np.uint8)
    step = TimeStep(kinds, ones * (step_type > 0), ones, observation)
    metrics = np.ones((num_envs if step_type == 2 else 0, 1), np.float32)
    payload = packed(StepLayout(_SPEC, num_envs, 1), group, sequence, step, metrics)
    return encode_from_env_server(StepPayload(payload))


_HELLO = encode_from_env_server(hello())
_READY = encode_from_env_server(
    FromEnvServer(ready=Ready(spec=spec_message(_SPEC), metrics=["episode.r"]))
)
_FAILURE = encode_from_env_server(FromEnvServer(failure=Failure(reason="it raised")))
_REFUSAL = encode_from_env_server(FromEnvServer(refusal=Refusal(reason="no such environment")))
_REPORT = encode_from_env_server(hello(sent=[Sent(lease=1)], num_quarantined=1))
_ASSIGN = encode_from_learner(
    FromLearner(
        assign=Assign(
            lease=5,
            minor=MINOR,
            environment=Environment(id=_CONSTANT, arguments=_ARGUMENTS, metrics=["episode.r"]),
            groups=[Group(slots=[3, 4], seeds=[9, 10]), Group(slots=[1], seeds=[2])],
        )
    )
)
_FINISH = encode_from_learner(FromLearner(finish=Finish(reason="done")))


def _actions(sequence: int, group: int, num_envs: int) -> bytes:
    payload = pack_actions(group, sequence, np.zeros(num_envs, np.int32))
    return encode_from_learner(ActionsPayload(payload))


TARGETS = (
    Target(
        "env_server_says",
        hear_env_server,
        (
            in_a_row(_HELLO, _READY, _step(0, 0), _step(1, 1), _step(2, 2), _step(3, 0)),
            in_a_row(
                encode_from_env_server(hello(num_envs=4, num_groups=2)),
                *(_READY, _step(0, 0), _step(0, 0, 1), _step(1, 2), _step(1, 1, 1), _FAILURE),
            ),
            in_a_row(_REPORT, _REFUSAL),
            in_a_row(_HELLO, encode_from_env_server(FromEnvServer(refusal=Refusal()))),
        ),
    ),
    Target(
        "learner_says",
        hear_learner,
        (
            in_a_row(_ASSIGN, _actions(0, 0, 2), _actions(0, 1, 1), _actions(1, 0, 2), _FINISH),
            in_a_row(_FINISH),
        ),
    ),
)
