"""Payloads lie as the .proto says, survive the journey, and are refused when damaged."""

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec
from seedrl.types import StepType, TimeStep
from seedrl.wire.action_layout import StepHeader, read_header
from seedrl.wire.framing import (
    StepPayload,
    WireError,
    decode_from_env_server,
    encode_from_env_server,
)
from seedrl.wire.payload import StepLayout, sequence_of, split

_SPEC = EnvSpec({"b": ArraySpec((3,), "uint8"), "a": ArraySpec((), "float32")}, DiscreteSpec(2))
_STEP = TimeStep(
    step_type=np.array([0, 2], np.uint8),
    reward=np.array([0.0, 1.5], np.float32),
    discount=np.array([1.0, 0.0], np.float32),
    observation={
        "a": np.array([0.25, -2.0], np.float32),
        "b": np.array([[1, 2, 3], [4, 5, 6]], np.uint8),
    },
)
# Worked by hand. Two environments: group 5, sequence 258.
_BYTES = bytes.fromhex(
    "05000000 02000000 0201000000000000"  # group, E, sequence
    "0002 000000000000"  # step types, padding
    "00000000 0000c03f"  # rewards 0, 1.5
    "0000803f 00000000"  # discounts 1, 0
    "0000803e 000000c0"  # observation.a: 0.25, -2
    "010203 040506 0000"  # observation.b, padding
)


def _assert_equal_steps(spec: EnvSpec, left: TimeStep, right: TimeStep) -> None:
    for ours, theirs in zip(
        [*left[:3], *spec.flatten(left.observation)],
        [*right[:3], *spec.flatten(right.observation)],
        strict=True,
    ):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)


def test_the_layout_is_the_literal_one_of_the_contract() -> None:
    layout = StepLayout(_SPEC, 2)
    assert layout.num_bytes == len(_BYTES) == 56
    assert layout.pack(5, 258, _STEP) == _BYTES
    assert read_header(_BYTES) == StepHeader(group=5, num_envs=2, sequence=258)
    _assert_equal_steps(_SPEC, layout.unpack(_BYTES), _STEP)
    assert layout.pack_framed(5, 258, _STEP).message == b"\x1a\x38" + _BYTES


@pytest.mark.parametrize(
    ("position", "value", "reason"),
    [
        (4, b"\x03", "expected a step of 2 environments, got 3"),
        (17, b"\x03", "step_type 0, 1 or 2, got 3"),
        (18, b"\x01", "zeros after step_type"),
        (55, b"\x01", "zeros after observation.b"),
        (24, struct.pack("<f", 1.0), "reward 0 on FIRST"),
        (28, struct.pack("<f", np.nan), r"finite numbers in reward, got nan at \[1\]"),
        (28, struct.pack("<f", -np.inf), "finite numbers in reward"),
        (32, struct.pack("<f", 0.0), "discount 1, or 0 on LAST"),
        (36, struct.pack("<f", 0.5), "discount 1, or 0 on LAST"),
        (36, struct.pack("<f", np.nan), "discount 1, or 0 on LAST"),
        (44, struct.pack("<f", np.inf), r"finite numbers in observation.a, got inf at \[1\]"),
    ],
)
def test_what_the_contract_rules_out_is_refused(position: int, value: bytes, reason: str) -> None:
    data = bytearray(_BYTES)
    data[position : position + len(value)] = value
    with pytest.raises(WireError, match=reason):
        StepLayout(_SPEC, 2).unpack(data)


@pytest.mark.parametrize("data", [b"", _BYTES[:-1], _BYTES[:15], _BYTES + b"\0", _BYTES * 2])
def test_another_length_is_refused(data: bytes) -> None:
    with pytest.raises(WireError, match="expected a step payload of 56 bytes, got "):
        StepLayout(_SPEC, 2).unpack(data)


def test_a_bool_has_two_values_only() -> None:
    spec = EnvSpec((ArraySpec((8,), "bool"),), DiscreteSpec(2))
    step = _STEP._replace(observation=(np.ones((2, 8), np.bool_),))
    data = bytearray(StepLayout(spec, 2).pack(0, 0, step))
    data[-1] = 2
    with pytest.raises(WireError, match=r"bools 0 or 1 in observation\.0"):
        StepLayout(spec, 2).unpack(data)


_DTYPES = st.sampled_from(["bool", "uint8", "int16", "int64", "float16", "float32", "float64"])
_ARRAYS = st.builds(ArraySpec, st.lists(st.integers(1, 3), max_size=3).map(tuple), _DTYPES)
_TREES = st.recursive(
    _ARRAYS,
    lambda trees: (
        st.dictionaries(st.text("abc", min_size=1, max_size=2), trees, min_size=1, max_size=3)
        | st.lists(trees, min_size=1, max_size=3).map(tuple)
    ),
    max_leaves=5,
)


_FINITE = {"allow_nan": False, "allow_infinity": False}
# Of what the wire takes, which is what a learner can hold.
_LIMITS: dict[str, dict[str, Any]] = {
    "int64": {"min_value": -(2**31), "max_value": 2**31 - 1},
    "float16": _FINITE,
    "float32": _FINITE,
    "float64": {"min_value": -3e38, "max_value": 3e38},
}


@st.composite
def _steps(draw: st.DrawFn) -> tuple[EnvSpec, int, TimeStep]:
    spec, num_envs = EnvSpec(draw(_TREES), DiscreteSpec(3)), draw(st.integers(1, 5))
    step_type = draw(hnp.arrays(np.uint8, num_envs, elements=st.integers(0, 2)))
    terminated = draw(hnp.arrays(np.bool_, num_envs)) & (step_type == StepType.LAST)
    reward = draw(hnp.arrays(np.float32, num_envs, elements=st.floats(-1e9, 1e9, width=32)))
    leaves = []
    for _, leaf in spec.leaves():
        dtype = np.dtype(leaf.dtype)
        elements = hnp.from_dtype(dtype, **_LIMITS.get(leaf.dtype, {}))
        leaves.append(draw(hnp.arrays(dtype, (num_envs, *leaf.shape), elements=elements)))
    return (
        spec,
        num_envs,
        TimeStep(
            step_type,
            np.where(step_type == StepType.FIRST, 0, reward).astype(np.float32),
            np.where(terminated, 0, 1).astype(np.float32),
            spec.unflatten(leaves),
        ),
    )


@settings(max_examples=60, deadline=None)
@given(_steps(), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1))
def test_every_spec_makes_the_round_trip(
    case: tuple[EnvSpec, int, TimeStep], group: int, sequence: int
) -> None:
    spec, num_envs, step = case
    layout = StepLayout(spec, num_envs)
    message = encode_from_env_server(layout.pack_framed(group, sequence, step))
    assert message == encode_from_env_server(StepPayload(layout.pack(group, sequence, step)))
    data = decode_from_env_server(message)
    assert len(data) == layout.num_bytes and len(data) % 8 == 0
    assert read_header(data) == StepHeader(group, num_envs, sequence)
    _assert_equal_steps(spec, layout.unpack(data), step)


@settings(max_examples=60, deadline=None)
@given(_steps(), st.data())
def test_damage_gives_a_wire_error_or_another_valid_step(
    case: tuple[EnvSpec, int, TimeStep], data: st.DataObject
) -> None:
    spec, num_envs, step = case
    layout = StepLayout(spec, num_envs)
    payload = bytearray(layout.pack(0, 0, step))
    bit = data.draw(st.integers(0, 8 * len(payload) - 1))
    payload[bit // 8] ^= 1 << bit % 8
    try:
        damaged = layout.unpack(payload)
    except WireError as error:
        assert "\n" not in str(error)
    else:
        # What was accepted is a step of its own, and these very bytes.
        assert layout.pack(*read_header(payload)[::2], damaged) == payload


@pytest.mark.parametrize(
    ("dtype", "value", "reason"),
    [
        ("float64", 1e300, r"fit into float32, .* in observation, got 1e\+300 at \[1, 0\]"),
        ("float64", -3.5e38, "fit into float32"),
        ("float64", np.nan, r"finite numbers in observation, got nan at \[1, 0\]"),
        ("float64", -np.inf, "finite numbers in observation, got -inf"),
        ("float16", np.inf, "finite numbers in observation, got inf"),
        ("int64", 2**40 + 1, r"fit into int32, .* got 1099511627777 at \[1, 0\]"),
        ("int64", 2**31, "fit into int32"),
        ("int64", -(2**31) - 1, "fit into int32"),
        ("uint64", 2**32, "fit into uint32"),
        ("uint64", 2**64 - 1, "fit into uint32"),
    ],
)
def test_what_a_learner_cannot_hold_is_refused(dtype: str, value: float, reason: str) -> None:
    layout = StepLayout(EnvSpec(ArraySpec((1,), dtype), DiscreteSpec(2)), 2)
    observation = np.array([[0], [value]], dtype)
    with pytest.raises(WireError, match=reason):
        layout.unpack(layout.pack(0, 0, _STEP._replace(observation=observation)))


_METRICS = np.array([[0.5, np.nan, -1.0]], np.float32)
_METRIC_BYTES = bytes.fromhex("0000003f 0000c07f 000080bf 00000000")


def test_metrics_of_last_rows_follow_the_observation() -> None:
    layout = StepLayout(_SPEC, 2, num_metrics=3)
    data = layout.pack(5, 258, _STEP, _METRICS)
    assert data == _BYTES + _METRIC_BYTES and layout.size(data) == len(data)
    assert layout.pack_framed(5, 258, _STEP, _METRICS).message == b"\x1a\x48" + data
    _assert_equal_steps(_SPEC, layout.unpack(data), _STEP)
    np.testing.assert_array_equal(layout.metrics(data), _METRICS)


@pytest.mark.parametrize(
    ("position", "value", "reason"),
    [(60, struct.pack("<f", np.inf), "got infinity"), (71, b"\1", "zeros after metrics")],
)
def test_damaged_metrics_are_refused(position: int, value: bytes, reason: str) -> None:
    data = bytearray(_BYTES + _METRIC_BYTES)
    data[position : position + len(value)] = value
    with pytest.raises(WireError, match=reason):
        StepLayout(_SPEC, 2, num_metrics=3).metrics(data)


def test_a_message_may_hold_the_steps_of_several_groups() -> None:
    layouts = [StepLayout(_SPEC, 2, num_metrics=3), StepLayout(_SPEC, 2, num_metrics=3)]
    first = layouts[1].pack(1, 9, _STEP, _METRICS)
    second = layouts[0].pack(0, 4, _STEP, _METRICS)
    parts = list(split(first + second, layouts))
    assert [(group, sequence_of(data)) for group, data in parts] == [(1, 9), (0, 4)]
    assert [bytes(data) for _, data in parts] == [first, second]
