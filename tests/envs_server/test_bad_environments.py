"""Environments with a defect: each is named in one line, quickly, and ends its env server with 2.

`seedrl train` ends with 2 and the same line when its env servers do.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from envs_server.client import Client
from envs_server.options import Options
from envs_server.stop import Stop
from seedrl.exit_codes import ExitCode
from seedrl.wire.framing import ActionsPayload, StepPayload
from seedrl.wire.learner_payload import pack_actions
from seedrl.wire.payload import read_header
from seedrl.wire.seedrl_pb2 import Environment
from tests.envs_server.conftest import ScriptedLearner

HERE = __name__.rpartition(".")[2]
ZEROS = np.zeros(4, np.float32)
FIRST = "environment 0 (slot 0), "
# What the environment has in place of what is sound.
defect: dict[str, Any] = {}
still_open: list[Any] = []


class Sound(gymnasium.Env[np.ndarray, int]):
    observation_space: Any = spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space: Any = spaces.Discrete(2)

    def __init__(self, gravity: float = 1.0):
        self.weight = gravity * 2.0
        still_open.append(self)

    def close(self) -> None:
        still_open.remove(self)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return ZEROS, {}

    def step(self, action: int) -> Any:
        return ZEROS, 1.0, False, False, {}


def make(**arguments: Any) -> Any:
    return type("Made", (Sound,), defect)(**arguments)


def vector(**_: Any) -> Any:
    return gymnasium.vector.SyncVectorEnv([make])


def sized(size: int) -> Any:
    return make(size=size)


def no_environment(env: Any = None) -> None:
    return None


class UnshowableError(Exception):
    name = number = 3

    def __str__(self) -> str:
        raise RuntimeError("no text")


def in_latin_1(_: Any) -> Any:
    raise OSError("no file " + os.fsdecode(b"\xff"))


def __getattr__(name: str) -> Any:
    # As of a package that imports its parts only when they are asked for.
    if name == "lazy":
        raise ModuleNotFoundError("no module of a simulator")
    raise AttributeError(name)


def unshowable(*_: Any, **__: Any) -> Any:
    raise UnshowableError


number = 3

_NESTED = spaces.Dict({"a": spaces.Box(-1.0, 1.0, (4,), np.float32), "b": spaces.Discrete(3)})
# Not in Python's words for it, such as `not enough values to unpack`.
_RETURN = FIRST + "step: TypeError: expected step to return (observation, reward, "
_REWARD = FIRST + "step: TypeError: expected a number as reward"
# What an environment does otherwise, and what the line names; that of one that fails at its first
# step is longer.
DEFECTS: dict[str, tuple[dict[str, Any], str]] = {
    "old reset": ({"reset": lambda self: ZEROS}, FIRST + "restart: TypeError"),
    "reset without info": ({"reset": lambda self, **_: ZEROS}, FIRST + "restart: TypeError"),
    "old step": ({"step": lambda self, _: (ZEROS, 1.0, False, {})}, _RETURN),
    "array reward": ({"step": lambda self, _: (ZEROS, ZEROS, False, False, {})}, _REWARD),
    "None as reward": ({"step": lambda self, _: (ZEROS, None, False, False, {})}, _REWARD),
    "shape": (
        {"step": lambda self, _: (np.zeros(5), 1.0, False, False, {})},
        "got (5",
    ),
    "no result": ({"step": lambda self, _: None}, _RETURN),
    "dict reward": ({"step": lambda self, _: (ZEROS, {}, False, False, {})}, _REWARD),
    "ragged": (
        {"step": lambda self, _: ([[0], 1], 1.0, False, False, {})},
        FIRST + "step: expected numbers of shape (4,) as observation, got [[0], 1]",
    ),
    "complex": (
        {"step": lambda self, _: (ZEROS * 1j, 1.0, False, False, {})},
        FIRST + "step: expected numbers of shape (4,) as observation, got array([0.+0.j",
    ),
    "words": (
        {"step": lambda self, _: (["1"] * 4, 1.0, False, False, {})},
        FIRST + "step: expected numbers of shape (4,) as observation, got ['1'",
    ),
    "no such category": (
        {"observation_space": spaces.Discrete(3), "reset": lambda self, **_: (0, {})}
        | {"step": lambda self, _: (3, 1.0, False, False, {})},
        FIRST + "step: expected int64[] categories of 0 to 2 in observation, got 3 at [0]",
    ),
    "no key": (
        {"observation_space": _NESTED, "reset": lambda self, **_: ({"a": ZEROS, "b": 1}, {})}
        | {"step": lambda self, _: ({"a": ZEROS}, 1.0, False, False, {})},
        FIRST + "step: expected observation.b, got",
    ),
    "two keys alone": (
        {"observation_space": _NESTED, "reset": lambda self, **_: {"a": ZEROS, "b": 1}},
        FIRST + "restart: TypeError: expected reset to return (observation, info), got",
    ),
    "sys.exit": ({"step": lambda self, _: sys.exit(0)}, FIRST + "step: SystemExit: 0"),
    "raises when built": ({"__init__": lambda self: 1 / 0}, f"{HERE}:make: ZeroDivisionError"),
    "no UTF-8": ({"__init__": in_latin_1}, f"{HERE}:make: OSError: no file ?"),
    "unshowable when built": ({"__init__": unshowable}, f"{HERE}:make: UnshowableError"),
    "unshowable in reset": ({"reset": unshowable}, FIRST + "restart: UnshowableError"),
    "nested actions": ({"action_space": spaces.Tuple((spaces.Discrete(2),))}, "Tuple("),
    "whole actions": ({"action_space": spaces.Box(0, 3, (2,), np.int64)}, "Box(0, 3, (2,)"),
    "text": ({"observation_space": spaces.Text(5)}, "observation, got Text"),
    "foreign": ({"observation_space": SimpleNamespace(shape=(4,))}, "observation, got namespace("),
    "empty": ({"observation_space": spaces.Box(-1.0, 1.0, (0,))}, "observation"),
}
# What the learner asks for.
ASKED: dict[str, tuple[dict[str, Any], str]] = {
    "None": ({"id": f"{HERE}:no_environment"}, "of type NoneType"),
    "vector": ({"id": f"{HERE}:vector"}, "hint: return it from make_vec(num_envs)"),
    "no argument": ({"id": f"{HERE}:sized"}, "hint: pass it by environment.arguments"),
    "no callable": ({"id": f"{HERE}:number"}, f"number in {HERE}"),
    "another type": ({"id": f"{HERE}:make", "arguments": '{"gravity": null}'}, ":make with {'"),
    "unknown argument": ({"id": f"{HERE}:make", "arguments": '{"gravty": 1}'}, "gravty"),
    "wrapper": ({"id": f"{HERE}:make", "wrappers": [f"{HERE}:no_environment"]}, "NoneType"),
    "no wrapper": ({"id": f"{HERE}:make", "wrappers": [f"{HERE}:nosuch"]}, f"nosuch in {HERE}"),
    "not allowed": ({"id": "os:system"}, "os:system"),
    "lazy module": ({"id": f"{HERE}:lazy"}, f"cannot import {HERE}"),
    "no such module": ({"id": "nosuchmodule:make"}, "nosuchmodule"),
    "not imported": ({"id": "their_package/Env-v0"}, "write a factory"),
    "no such id": ({"id": "NoSuch-v0"}, "NoSuch-v0"),
}
_MADE = {"id": f"{HERE}:make"}
CASES = {
    **{name: (own, _MADE, named) for name, (own, named) in DEFECTS.items()},
    **{name: ({}, asked, named) for name, (asked, named) in ASKED.items()},
}


@pytest.mark.parametrize(("own", "asked", "named"), CASES.values(), ids=CASES)
def test_an_environment_with_a_defect_is_one_line_and_code_2(
    own: dict[str, Any],
    asked: dict[str, Any],
    named: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = sys.modules[__name__]
    monkeypatch.setitem(sys.modules, HERE, module)
    monkeypatch.setattr(module, "defect", own)
    still_open.clear()
    for function in (make, vector, sized, no_environment):
        monkeypatch.setattr(function, "__module__", HERE)
    learner = ScriptedLearner(f"unix:{tmp_path}/s", takes_link=False)
    refusals, reported = [], []

    def play(messages: Iterator[Any], context: Any) -> Iterator[Any]:
        next(messages)
        yield learner.assign([1], environment=Environment(**asked))
        message = next(messages)
        if message.HasField("refusal"):
            refusals.append(message.refusal.reason)
            return
        for message in messages:
            if not isinstance(message, StepPayload):
                reported.append(message.failure.reason)  # why, and leaves
                return
            sequence = read_header(message).sequence
            yield ActionsPayload(pack_actions(0, sequence, np.zeros(1, np.int32)))

    learner.serve(play)
    try:
        allowed = (f"{HERE}:*", "nosuchmodule:*")
        options = Options(learner=learner.address, num_envs=1, allow_env=allowed)
        assert Client(options, Stop()).run() is ExitCode.USAGE
    finally:
        learner.close()
    said = [record.message for record in caplog.records if record.levelname == "ERROR"][-1]
    assert said.startswith("ends: ") and named in said and "\n" not in said
    # Or a simulator behind it would outlive the env server.
    assert asked["id"].endswith(":vector") or still_open == []
    # The learner learns of it before it trains, or why the stream ends.
    assert len(refusals) + len(reported) == 1 and named in (refusals + reported)[0]
    assert bool(refusals) != said.endswith("hint: run `seedrl check-env`")
