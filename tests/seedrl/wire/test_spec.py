"""Specs as messages and as JSON text: there and back, and one line for everything else."""

import math
from pathlib import Path

import pytest

from seedrl.checkpoints import encode_spec, saved_spec
from seedrl.errors import CheckpointError
from seedrl.specs import (
    ArraySpec,
    BoxSpec,
    DiscreteSpec,
    EnvSpec,
    MultiDiscreteSpec,
    TokensSpec,
)
from seedrl.wire.seedrl_pb2 import (
    Action,
    Array,
    Box,
    Dict,
    MultiDiscrete,
    Observation,
    Tuple,
)
from seedrl.wire.seedrl_pb2 import EnvSpec as SpecMessage
from seedrl.wire.spec import spec_message, spec_of

_PROTO = Path(__file__).parents[3] / "proto/seedrl/wire/seedrl.proto"
_SPEED = ArraySpec((), "float32")
_NESTED = EnvSpec(
    {
        "z": (_SPEED, {"b": ArraySpec((8, 8), "uint8", (0.0,), (9.0,)), "ä": _SPEED}),
        "c": ArraySpec((2,), "int64", (0.0, 1.0), (2.0, 5.0), is_categorical=True),
    },
    BoxSpec((2,), (-1.0, 0.1), (1.0, 3.3e38)),
)
_SEVERAL = EnvSpec(_SPEED, MultiDiscreteSpec((2, 1), (3, 2**10)))
_TOKENS = EnvSpec(TokensSpec(4, 9, 12, 3).turn, TokensSpec(4, 9, 12, 3, "xyß"))
_HALF_BOUNDED = EnvSpec(_SPEED, BoxSpec((2,), (-math.inf, 0.0), (1.0, math.inf)))
# The examples of the contract's comments.
_EXAMPLES = {
    '{"action": {"discrete": 2}, "observation": {"array": {"shape": [4], "dtype": "float32"}}}': (
        EnvSpec(ArraySpec((4,), "float32"), DiscreteSpec(2))
    ),
    '{"action": {"box": {"shape": [2], "low": [-1.0, 0.0], "high": [1.0, 0.5]}}, "observation": '
    '{"dict": {"items": {"camera": {"array": {"shape": [64, 64, 3], "dtype": "uint8"}}, "speed": '
    '{"array": {"dtype": "float32"}}}}}}': EnvSpec(
        {"camera": ArraySpec((64, 64, 3), "uint8"), "speed": _SPEED},
        BoxSpec((2,), (-1.0, 0.0), (1.0, 0.5)),
    ),
}


@pytest.mark.parametrize(("text", "spec"), _EXAMPLES.items(), ids=["cartpole", "camera"])
def test_the_examples_of_the_contract_are_read(text: str, spec: EnvSpec) -> None:
    assert saved_spec(text) == spec
    assert "".join(text.split()) in "".join(_PROTO.read_text().replace("//", "").split())


def test_a_spec_comes_back_from_its_message_and_from_its_text() -> None:
    for spec in (_NESTED, _SEVERAL, _TOKENS, _HALF_BOUNDED, *_EXAMPLES.values()):
        message = SpecMessage.FromString(spec_message(spec).SerializeToString())
        for found in (spec_of(message), saved_spec(encode_spec(spec))):
            assert found == spec
            # Of a token spec: equality is about what is learned, not about how people read it.
            assert getattr(found.action, "alphabet", "") == getattr(spec.action, "alphabet", "")
    turned = EnvSpec(dict(reversed(_NESTED.observation.items())), _NESTED.action)
    assert encode_spec(turned) == encode_spec(_NESTED)


def _array(shape: tuple[int, ...] = (4,), dtype: str = "float32") -> Observation:
    return Observation(array=Array(shape=shape, dtype=dtype))


def _tuple(*items: Observation) -> Observation:
    return Observation(tuple=Tuple(items=items))


def _nested(levels: int) -> Observation:
    tree = _array()
    for _ in range(levels):
        tree = _tuple(tree)
    return tree


_GOOD = Action(discrete=2)
# Each with the field that its line names.
_REFUSED = {
    "nothing": (SpecMessage(), "observation"),
    "no action": (SpecMessage(observation=_array()), "action"),
    "size 0": (SpecMessage(observation=_array((0,)), action=_GOOD), "observation"),
    "levels": (SpecMessage(observation=_nested(8), action=_GOOD), "observation.0.0.0.0.0.0.0"),
    "key": (
        SpecMessage(observation=Observation(dict=Dict(items={"a\n": _array((0,))})), action=_GOOD),
        r"observation.a\\n",
    ),
    "counts": (
        SpecMessage(
            observation=_array(), action=Action(multi_discrete=MultiDiscrete(shape=[2], counts=[3]))
        ),
        "action",
    ),
    "lengths": (
        SpecMessage(observation=_array(), action=Action(box=Box(shape=[2], low=[0], high=[1]))),
        "action",
    ),
}


@pytest.mark.parametrize("case", _REFUSED)
def test_a_message_that_is_no_spec_is_refused_in_one_line_that_names_the_field(case: str) -> None:
    message, field = _REFUSED[case]
    with pytest.raises(ValueError, match=rf"^{field}[.:]") as caught:
        spec_of(message)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", '{"action": 3}', '{"other": 3}', "[" * 60_000, " " * 2**17, "9" * 5000),
        '{"action": {"discrete": 2, "box": {}}, "observation": {}}',
        '{"action": {"discrete": 2}, "action": {"discrete": 2}}',
        '{"action": {"discrete": true}, "observation": {"array": {"dtype": "bool"}}}',
        '{"action": {"discrete": -1}, "observation": {"array": {"dtype": "bool"}}}',
        '{"observation": {"dict": {"items": {"\\ud800": {"array": {"dtype": "bool"}}}}}}',
        *(None, 3, {}, b"{}"),
    ],
    ids=range(16),
)
def test_a_text_that_is_no_spec_is_refused_in_one_line(text: object) -> None:
    with pytest.raises(CheckpointError) as caught:
        saved_spec(text)  # type: ignore[arg-type]
    line = str(caught.value)
    assert "env_spec" in line and "\n" not in line and len(line) < 400
