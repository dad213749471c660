"""Environments with a defect: each is named in one line, quickly, and ends its env server with 2.

`seedrl train` ends with 2 and the same line when its env servers do.
"""

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from envs_server.client import Client, Offer
from envs_server.stop import Stop
from seedrl.exit_codes import ExitCode
from seedrl.wire.framing import ActionsPayload, StepPayload
from seedrl.wire.payload import pack_actions, read_header
from seedrl.wire.seedrl_pb2 import Environment
from seedrl.wire.spec import spec_of
from tests.envs_server.conftest import ScriptedLearner

HERE = __name__.rpartition(".")[2]


class Sound(gymnasium.Env[np.ndarray, int]):
    """What the others spoil."""

    observation_space: Any = spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space: Any = spaces.Discrete(2)

    def __init__(self, gravity: float = 1.0):
        self.weight = gravity * 2.0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(4, np.float32), {}

    def step(self, action: int) -> Any:
        return np.zeros(4, np.float32), 1.0, False, False, {}


class OldReset(Sound):
    def reset(self) -> Any:  # type: ignore[override]
        return np.zeros(4, np.float32)


class ResetWithoutInfo(Sound):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(4, np.float32)


class OldStep(Sound):
    def step(self, action: int) -> Any:
        return np.zeros(4, np.float32), 1.0, False, {}


class ArrayReward(Sound):
    def step(self, action: int) -> Any:
        return np.zeros(4, np.float32), np.ones(1), False, False, {}


class OtherShape(Sound):
    def step(self, action: int) -> Any:
        return np.zeros(5, np.float32), 1.0, False, False, {}


class EndsTheProcess(Sound):
    def step(self, action: int) -> Any:
        sys.exit(0)


class Constructor(Sound):
    def __init__(self) -> None:
        raise FileNotFoundError(2, "No such file or directory", "game.bin")


class ManyActions(Sound):
    action_space = spaces.MultiDiscrete([2, 3])


class UnboundedActions(Sound):
    action_space = spaces.Box(-math.inf, math.inf, (2,), np.float32)


class Words(Sound):
    observation_space = spaces.Text(5)


class ForeignSpace(Sound):
    observation_space = SimpleNamespace(shape=(4,), dtype=np.float32)


class NothingToSee(Sound):
    observation_space = spaces.Box(-1.0, 1.0, (0,), np.float32)


class OfNoKind:
    observation_space, action_space = Sound.observation_space, Sound.action_space


def nothing() -> None:
    return None


def loses_it(env: Any) -> None:
    return None


number = 3

FIRST = "environment 0 (slot 0)"

# What the learner asks for, and what the line names; that of one that fails at its first step is
# longer.
CASES: dict[str, tuple[dict[str, Any], str]] = {
    "old reset": ({"id": "OldReset"}, FIRST + ", restart: TypeError"),
    "reset without info": ({"id": "ResetWithoutInfo"}, FIRST + ", restart: ValueError"),
    "old step": ({"id": "OldStep"}, FIRST + ", step: ValueError"),
    "array reward": ({"id": "ArrayReward"}, FIRST + ", step: "),
    "another shape": ({"id": "OtherShape"}, "(4,), got one of (5,)"),
    "sys.exit in step": ({"id": "EndsTheProcess"}, FIRST + ", step: SystemExit: 0"),
    "raises when built": ({"id": "Constructor"}, "{}:Constructor: FileNotFoundError"),
    "MultiDiscrete actions": ({"id": "ManyActions"}, "MultiDisc"),
    "unbounded actions": ({"id": "UnboundedActions"}, "Box(-inf, inf, (2,), float32)"),
    "text": ({"id": "Words"}, "observation, got Text"),
    "a space of another library": ({"id": "ForeignSpace"}, "observation, got namespace(shape="),
    "an empty observation": ({"id": "NothingToSee"}, "observation"),
    "no environment at all": ({"id": "OfNoKind"}, "got a OfNoKind"),
    "None": ({"id": "nothing"}, "got a NoneType"),
    "no callable": ({"id": "number"}, "number in {}"),
    "arguments of another type": (
        {"id": "Sound", "arguments": '{"gravity": "low"}'},
        "{}:Sound: TypeError",
    ),
    "an unknown argument": ({"id": "Sound", "arguments": '{"gravty": 1}'}, "gravty"),
    "a wrapper that gives nothing": ({"id": "Sound", "wrappers": ["loses_it"]}, "NoneType"),
    "a wrapper that is not there": ({"id": "Sound", "wrappers": ["nosuch"]}, "nosuch in {}"),
    "not allowed": ({"id": "os:system"}, "os:system"),
    "a module that is not there": ({"id": "nosuchmodule:make"}, "nosuchmodule"),
    "a package that nobody imports": ({"id": "their_package/Env-v0"}, "write a factory"),
    "no such id": ({"id": "NoSuch-v0"}, "NoSuch-v0"),
}


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.syspath_prepend(Path(__file__).parent)
    monkeypatch.setitem(sys.modules, HERE, sys.modules[__name__])
    for kind in [value for value in globals().values() if isinstance(value, type)]:
        if kind.__module__ == __name__:
            monkeypatch.setattr(kind, "__module__", HERE)
    for function in (nothing, loses_it):
        monkeypatch.setattr(function, "__module__", HERE)
    return HERE


@pytest.mark.parametrize(("environment", "line"), CASES.values(), ids=CASES)
def test_an_environment_with_a_defect_is_one_line_and_code_2(
    environment: dict[str, Any],
    line: str,
    module: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def named(name: str) -> str:
        return f"{module}:{name}" if name.isidentifier() else name

    asked = Environment(**environment)
    asked.id = named(asked.id)
    asked.wrappers[:] = map(named, asked.wrappers)
    learner, refusals = ScriptedLearner(f"unix:{tmp_path}/s", takes_link=False), []
    reported: list[str] = []

    def play(messages: Iterator[Any], context: Any) -> Iterator[Any]:
        next(messages)
        assign = learner.assign([1], environment=asked)
        yield assign
        message = next(messages)
        if message.HasField("refusal"):
            refusals.append(message.refusal.reason)
            return
        assert spec_of(message.ready.spec)
        for message in messages:
            if not isinstance(message, StepPayload):
                reported.append(message.failure.reason)  # why, and leaves
                return
            header = read_header(message)
            yield ActionsPayload(pack_actions(0, header.sequence, np.zeros(1, np.int32)))

    learner.serve(play)
    try:
        allowed = (f"{module}:*", "nosuchmodule:*")
        client = Client(learner.address, Offer(1, 1, allowed), Stop())
        assert client.run() is ExitCode.USAGE
    finally:
        learner.close()
    expected = line.replace("{}", module)
    said = [record.message for record in caplog.records if record.levelname == "ERROR"][-1]
    assert said.startswith("ends: ") and expected in said and "\n" not in said
    # The learner learns of it before it trains, or why the stream ends.
    assert len(refusals) + len(reported) == 1 and expected in (refusals + reported)[0]
    assert bool(refusals) != said.endswith("`seedrl check-env` says more of the environment")
