"""Readers of messages: frames, steps and actions."""

from collections.abc import Callable
from typing import Any

import numpy as np

from seedrl.specs import ArraySpec, BoxSpec, DiscreteSpec, EnvSpec
from seedrl.types import TimeStep
from seedrl.wire.contract import MAJOR, MINOR
from seedrl.wire.framing import (
    ActionsPayload,
    StepPayload,
    WireError,
    encode_from_env_server,
    encode_from_learner,
    receive_from_env_server,
    receive_from_learner,
)
from seedrl.wire.learner_payload import StepReader, pack_actions, pack_reset, sequence_of
from seedrl.wire.payload import ActionLayout, Buffer, split
from seedrl.wire.seedrl_pb2 import (
    Assign,
    Environment,
    Failure,
    Finish,
    FromEnvServer,
    FromLearner,
    Group,
    Hello,
    Ready,
    Refusal,
    Sent,
)
from seedrl.wire.spec import spec_message
from tests.packed import packed
from tests.tools.fuzz.target import Target, assert_one_line

_METRICS = 2
_MAX_ABS_REWARD = 1e6
_PLAIN = EnvSpec(ArraySpec((4,), "float32"), DiscreteSpec(2))
_NESTED = EnvSpec(
    {
        "eye": ArraySpec((2, 3), "uint8"),
        "rest": (ArraySpec((), "bool"), ArraySpec((2,), "float64"), ArraySpec((1,), "int64")),
    },
    BoxSpec((2,), (-1.0, 0.0), (1.0, 0.5)),
)
_LAYOUTS = (
    StepReader(_PLAIN, 2),
    StepReader(_PLAIN, 3, _METRICS, _MAX_ABS_REWARD),
    StepReader(_NESTED, 2),
    StepReader(_NESTED, 1, _METRICS),
)
_ACTION_LAYOUTS = (ActionLayout(_PLAIN.action, 3), ActionLayout(_NESTED.action, 2))


def hello(**fields: Any) -> FromEnvServer:
    """Hello of an env server with two environments."""
    usual: dict[str, Any] = {"major": MAJOR, "minor": MINOR, "num_envs": 2, "num_groups": 1}
    return FromEnvServer(hello=Hello(**{**usual, "host": "there", "pid": 7, **fields}))


def read_frames(data: bytes) -> bool:
    """A message of either side. What is read gives a message that is read as the same again."""
    is_read = False
    sides: tuple[tuple[Callable[[bytes], Any], Callable[[Any], bytes]], ...] = (
        (receive_from_env_server, encode_from_env_server),
        (receive_from_learner, encode_from_learner),
    )
    for receive, encode in sides:
        message = receive(data)
        if isinstance(message, WireError):
            assert_one_line(message)
            continue
        is_read = True
        encoded = encode(message)
        if isinstance(message, memoryview):
            assert encoded == data
        else:
            again = receive(encoded)
            # As bytes: a number that is none differs from itself.
            assert not isinstance(again, (WireError, memoryview)) and encode(again) == encoded
    return is_read


def read_steps(data: bytes) -> bool:
    """The steps of a message. What is read gives the same bytes again."""
    try:
        parts = list(split(data, _LAYOUTS))
        steps = [_step(group, part) for group, part in parts]
    except WireError as error:
        assert_one_line(error)
        return False
    again = [
        packed(_LAYOUTS[group], group, sequence_of(part), step, metrics)
        for (group, part), (step, metrics) in zip(parts, steps, strict=True)
    ]
    assert b"".join(again) == data
    return True


def _step(group: int, part: Buffer) -> tuple[TimeStep, np.ndarray | None]:
    step = _LAYOUTS[group].unpack(part)
    assert np.isfinite(step.reward).all() and np.isfinite(step.discount).all()
    return step, _LAYOUTS[group].metrics(part) if group % 2 else None


def read_actions(data: bytes) -> bool:
    """The actions of a message. What is read gives the same bytes again."""
    try:
        parts = list(split(data, _ACTION_LAYOUTS))
        read = [_ACTION_LAYOUTS[group].unpack(part) for group, part in parts]
    except WireError as error:
        assert_one_line(error)
        return False
    packed = [
        pack_reset(header.group, header.sequence)
        if actions is None
        else pack_actions(header.group, header.sequence, actions)
        for header, actions in read
    ]
    assert b"".join(packed) == data
    return True


def _step_seed(group: int, *, is_last: bool = False) -> bytes:
    layout, spec = _LAYOUTS[group], (_PLAIN, _PLAIN, _NESTED, _NESTED)[group]
    num_envs = (2, 3, 2, 1)[group]
    leaves = [np.ones((num_envs, *leaf.shape), leaf.dtype) for _, leaf in spec.leaves()]
    step = TimeStep(
        np.full(num_envs, 2 if is_last else 1, np.uint8),
        np.full(num_envs, 0.5, np.float32),
        np.full(num_envs, 0.0 if is_last else 1.0, np.float32),
        spec.unflatten(leaves),
    )
    metrics = np.full((num_envs if is_last else 0, _METRICS), 1.5, np.float32)
    return packed(layout, group, 3, step, metrics if group % 2 else None)


_STEPS = tuple(
    _step_seed(group, is_last=is_last) for group in range(4) for is_last in (False, True)
)
_ACTIONS = (
    pack_actions(0, 3, np.array([0, 1, 1], np.int32)),
    pack_actions(1, 2**40, np.array([[0.5, -1.0], [0.0, 1.0]], np.float32)),
    pack_reset(1, 3) + pack_actions(0, 4, np.array([0, 1, 1], np.int32)),
)
_SENT = [Sent(lease=2**63)]
_ASSIGN = Assign(
    lease=2**63,
    minor=MINOR,
    environment=Environment(id="CartPole-v1", arguments='{"x": 1}', metrics=["episode.r"]),
    groups=[Group(slots=[3, 4], seeds=[9, 10])],
)
FRAMES = (
    *(
        encode_from_env_server(message)
        for message in (
            hello(sent=_SENT, link="seedrl-0/0", quarantine="one"),
            FromEnvServer(ready=Ready(spec=spec_message(_NESTED), metrics=["episode.r"])),
            FromEnvServer(refusal=Refusal(reason="no")),
            FromEnvServer(failure=Failure(reason="it raised")),
            StepPayload(_STEPS[0]),
        )
    ),
    *(
        encode_from_learner(message)
        for message in (
            FromLearner(assign=_ASSIGN),
            FromLearner(finish=Finish(reason="done")),
            ActionsPayload(_ACTIONS[0]),
        )
    ),
)


TARGETS = (
    Target("frames", read_frames, FRAMES),
    Target("steps", read_steps, (*_STEPS, _STEPS[0] + _STEPS[5] + _STEPS[2])),
    Target("actions", read_actions, (*_ACTIONS, _ACTIONS[1] + _ACTIONS[0])),
)
