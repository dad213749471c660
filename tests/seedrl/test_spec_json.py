"""Specs as text: the literal ones of the .proto, and one clear line for everything else."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from seedrl.errors import CheckpointError
from seedrl.spec_json import decode_spec, encode_spec, saved_spec
from seedrl.specs import ArraySpec, BoxSpec, DiscreteSpec, EnvSpec

_ROOT = Path(__file__).parents[2]
_IMAGE = ArraySpec((84, 84), "uint8")
_SPEED = ArraySpec((), "float32")
_OBSERVATION = {"array": {"shape": [4], "dtype": "float32"}}
_CARTPOLE = (
    '{"action": {"discrete": 2}, "observation": {"array": {"dtype": "float32", "shape": [4]}}}'
)
_CAMERA = (
    '{"action": {"box": {"high": [1.0, 0.5], "low": [-1.0, 0.0], "shape": [2]}}, '
    '"observation": {"dict": {"camera": {"array": {"dtype": "uint8", "shape": [64, 64, 3]}}, '
    '"speed": {"array": {"dtype": "float32", "shape": []}}}}}'
)


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        (_CARTPOLE, EnvSpec(ArraySpec((4,), "float32"), DiscreteSpec(2))),
        (
            _CAMERA,
            EnvSpec(
                {"camera": ArraySpec((64, 64, 3), "uint8"), "speed": _SPEED},
                BoxSpec((2,), (-1.0, 0.0), (1.0, 0.5)),
            ),
        ),
    ],
)
def test_the_examples_of_the_contract_are_read_and_written(text: str, spec: EnvSpec) -> None:
    assert encode_spec(spec) == text
    assert decode_spec(text) == spec
    proto = _ROOT / "proto/seedrl/wire/seedrl.proto"
    assert "".join(text.split()) in "".join(proto.read_text().replace("//", "").split())


def test_the_text_is_canonical() -> None:
    action = DiscreteSpec(4)
    spec = EnvSpec({"z": (_SPEED, {"b": _IMAGE, "a": _SPEED}), "c": _IMAGE}, action)
    turned = EnvSpec({"c": _IMAGE, "z": (_SPEED, {"a": _SPEED, "b": _IMAGE})}, action)
    assert encode_spec(spec) == encode_spec(turned)
    assert decode_spec(encode_spec(spec)) == spec


def _spec(observation: Any = _OBSERVATION, action: Any = {"discrete": 2}) -> str:  # noqa: B006
    return json.dumps({"observation": observation, "action": action})


def _array(shape: Any, dtype: Any = "float32") -> str:
    return _spec(observation={"array": {"shape": shape, "dtype": dtype}})


def _box(shape: Any, low: Any, high: Any) -> str:
    return _spec(action={"box": {"shape": shape, "low": low, "high": high}})


def _nested(levels: int) -> str:
    return '{"tuple":[' * levels + json.dumps(_OBSERVATION) + "]}" * levels


_REFUSED = {
    "": "env spec: expected JSON",
    "[]": "env spec: expected an object with action and observation, got",
    "{}": r"env spec: expected an object with action and observation, got \[\]",
    '{"num_actions": 2, "observation": {}}': r"got \['num_actions', 'observation'\]",
    _array([-4]): r"observation: expected sizes of at least 1 in a shape, got \[-4\]",
    _array([0]): "observation: expected sizes of at least 1",
    _array([True]): "observation: expected sizes of at least 1",
    _array([2.0]): "observation: expected sizes of at least 1",
    _array([10**12]): "observation: expected at most 268435456 elements",
    _array([2**16] * 4): "observation: expected at most 268435456 elements",
    _array([1] * 9): "observation: expected a shape of at most 8 sizes",
    _array(4): "observation.array.shape: expected a list, got 4",
    _array([4], "float33"): "observation: expected dtype bool, .*; got 'float33'",
    _array([4], ["float32"]): "observation: expected dtype",
    _array([4], "|V999999999"): "observation: expected dtype",
    _spec({"array": {"shape": [1], "dtype": "bool", "low": 0}}): "with dtype and shape, got",
    _spec({"list": []}): r"one of array, dict, tuple, got \['list'\]",
    _spec({"tuple": []}): "observation: expected 1 to 256 arrays, got 0",
    _spec({"tuple": [_OBSERVATION] * 257}): "expected 1 to 256 arrays, got 257",
    _spec({"dict": []}): "observation.dict: expected an object",
    _spec({"dict": {"eye": 3}}): "observation.eye: expected an object with one of",
    _spec(action={"discrete": 0}): "action: expected 1 to 1048576 discrete actions, got 0",
    _spec(action={"discrete": -1}): "action: expected 1 to 1048576 discrete actions, got -1",
    _spec(action={"discrete": 10**12}): "action: expected 1 to 1048576 discrete actions",
    _spec(action={"discrete": True}): "discrete actions, got True",
    _spec(action={"discrete": 2.0}): "discrete actions, got 2.0",
    _spec(action={"discrete": None}): "discrete actions, got None",
    _spec(action={"multi_discrete": [2, 2]}): r"one of discrete, box, got \['multi_discrete'\]",
    _spec(action={"discrete": 2, "box": {}}): "action: expected an object with one of",
    _box([2], [0], [1]): "action: expected 2 numbers each in low and high",
    _box([1], [1], [1]): "action: expected low < high",
    _box([1], [0], [True]): "action: high: expected numbers",
    _box([1], ["0"], [1]): "action: low: expected numbers",
    _box([1], [-1e39], [1]): "both finite as float32",
    _box([1], [-(10**400)], [1]): "low: expected numbers that are finite as float32",
    _box([1], [float("nan")], [1]): "env spec: expected JSON.* NaN is not a number",
    _box([1], [float("-inf")], [1]): "-Infinity is not a number",
    '{"action": {"discrete": 2}, "action": {"discrete": 2}, "observation": {}}': "occurs twice",
    "[" * 60_000: "env spec: expected less deeply nested JSON",
    "[" * 100_000: "env spec: expected at most 65536 bytes, got 100000",
    " " * 52_000_000: "env spec: expected at most 65536 bytes, got 52000000",
    f'{{"action": {{"discrete": 2}}, "observation": {_nested(8)}}}': "at most 8 levels of nesting",
    f'{{"action": {"9" * 5000}, "observation": {{}}}}': "env spec: expected JSON",
}


@pytest.mark.parametrize(("text", "reason"), _REFUSED.items(), ids=range(len(_REFUSED)))
def test_a_text_that_is_no_spec_is_refused_in_one_short_line(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as refusal:
        decode_spec(text)
    assert len(str(refusal.value)) < 400 and str(refusal.value).isprintable()


# Refused by a seedrl, but beyond what a schema says.
_BEYOND_SCHEMA = {
    _array([2.0]),
    _array([2**16] * 4),
    _spec({"tuple": []}),
    _spec({"tuple": [_OBSERVATION] * 257}),
    _spec(action={"discrete": 2.0}),
    _box([2], [0], [1]),
    _box([1], [1], [1]),
}


def _is_json(text: str) -> bool:
    try:
        json.loads(text, parse_constant=lambda name: 1 / 0)
    except (ValueError, RecursionError, ZeroDivisionError):
        return False
    return True


def _fits_schema(text: str) -> bool:
    schema = json.loads((_ROOT / "docs" / "spec.schema.json").read_text())
    return bool(jsonschema.Draft202012Validator(schema).is_valid(json.loads(text)))


def test_the_schema_says_what_is_read_as_far_as_a_schema_can() -> None:
    read = [_CARTPOLE, _CAMERA, _array([]), _box([], [-1], [1]), _spec({"tuple": [_OBSERVATION]})]
    assert [_fits_schema(text) for text in read] == [True] * len(read)
    for text in read:
        decode_spec(text)
    refused = {text for text in _REFUSED if len(text) < 2**16 and _is_json(text)}
    nested = {text for text in refused if text.count("tuple") == 8}
    doubled = {text for text in refused if text.count('"action"') == 2}
    assert {text for text in refused if _fits_schema(text)} == _BEYOND_SCHEMA | nested
    assert not any(map(_fits_schema, doubled))


def test_seven_levels_of_nesting_around_an_array_are_allowed() -> None:
    decode_spec(f'{{"action": {{"discrete": 2}}, "observation": {_nested(7)}}}')


def test_the_spec_of_an_older_checkpoint_says_what_to_do() -> None:
    old = '{"num_actions": 2, "observation": {"array": [[4], "float32"]}}'
    with pytest.raises(CheckpointError, match="start a new workdir") as refusal:
        saved_spec(old)
    assert str(refusal.value).isprintable()


def test_keys_are_text_that_can_be_written() -> None:
    half = '{"action":{"discrete":2},"observation":{"dict":{"\\ud800":' + json.dumps(_OBSERVATION)
    with pytest.raises(ValueError, match=r"observation: expected keys of text, got '\\ud800'"):
        decode_spec(half + "}}}")
    whole = '{"action":{"discrete":2},"observation":{"dict":{"\\ud83d\\ude00":'
    (leaf,) = decode_spec(whole + json.dumps(_OBSERVATION) + "}}}").leaves()
    assert leaf[0] == "observation.😀"


@pytest.mark.parametrize("spec", [None, 4, [4, 5], {"action": {"discrete": 2}}])
def test_what_a_file_has_instead_of_a_text_is_refused(spec: Any) -> None:
    with pytest.raises(ValueError, match=r"^env spec: expected JSON as text, got "):
        decode_spec(spec)
    with pytest.raises(CheckpointError, match="expected JSON as text"):
        saved_spec(spec)
