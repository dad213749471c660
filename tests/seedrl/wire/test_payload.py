"""Payloads lie as the .proto says, survive the journey, and are refused when damaged."""

import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from seedrl.specs import (
    MOST_SEED,
    ArraySpec,
    BoxSpec,
    DiscreteSpec,
    EnvSpec,
    MultiDiscreteSpec,
    TokensSpec,
)
from seedrl.turns import completion_row, turn_ids
from seedrl.types import NEXT, StepType, TimeStep
from seedrl.wire.framing import (
    StepPayload,
    WireError,
    encode_from_env_server,
    receive_from_env_server,
)
from seedrl.wire.learner_payload import StepReader, pack_actions, pack_reset, sequence_of
from seedrl.wire.payload import (
    ActionLayout,
    StepHeader,
    ValueFaultError,
    check_rewards,
    read_header,
    split,
)
from tests.packed import packed

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
    layout = StepReader(_SPEC, 2)
    assert layout.num_bytes == len(_BYTES) == 56
    assert packed(layout, 5, 258, _STEP) == _BYTES
    assert read_header(_BYTES) == StepHeader(group=5, num_envs=2, sequence=258)
    _assert_equal_steps(_SPEC, layout.unpack(_BYTES), _STEP)
    assert layout.pack_framed(5, 258, _STEP).message == b"\x1a\x38" + _BYTES


@pytest.mark.parametrize(
    ("position", "value", "field"),
    [
        (4, b"\x03", "environments"),
        (17, b"\x03", "step_type"),
        (18, b"\x01", "step_type"),
        (55, b"\x01", "observation.b"),
        (24, struct.pack("<f", 1.0), "reward"),
        (28, struct.pack("<f", np.nan), "reward"),
        (28, struct.pack("<f", -np.inf), "reward"),
        (32, struct.pack("<f", 0.0), "discount"),
        (36, struct.pack("<f", 0.5), "discount"),
        (36, struct.pack("<f", np.nan), "discount"),
        (44, struct.pack("<f", np.inf), "observation.a"),
    ],
)
def test_what_the_contract_rules_out_is_refused(position: int, value: bytes, field: str) -> None:
    data = bytearray(_BYTES)
    data[position : position + len(value)] = value
    with pytest.raises(WireError) as fault:
        StepReader(_SPEC, 2).unpack(data)
    assert field in str(fault.value)


@pytest.mark.parametrize("data", [b"", _BYTES[:-1], _BYTES[:15], _BYTES + b"\0", _BYTES * 2])
def test_another_length_is_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        StepReader(_SPEC, 2).unpack(data)


def test_a_bool_has_two_values_only() -> None:
    spec = EnvSpec((ArraySpec((8,), "bool"),), DiscreteSpec(2))
    step = _STEP._replace(observation=(np.ones((2, 8), np.bool_),))
    data = bytearray(packed(StepReader(spec, 2), 0, 0, step))
    data[-1] = 2
    with pytest.raises(WireError):
        StepReader(spec, 2).unpack(data)


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


@settings(max_examples=40, deadline=None)
@given(_steps(), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1))
def test_every_spec_makes_the_round_trip(
    case: tuple[EnvSpec, int, TimeStep], group: int, sequence: int
) -> None:
    spec, num_envs, step = case
    layout = StepReader(spec, num_envs)
    message = encode_from_env_server(layout.pack_framed(group, sequence, step))
    assert message == encode_from_env_server(StepPayload(packed(layout, group, sequence, step)))
    data = receive_from_env_server(message)
    assert len(data) == layout.num_bytes and len(data) % 8 == 0
    assert read_header(data) == StepHeader(group, num_envs, sequence)
    _assert_equal_steps(spec, layout.unpack(data), step)


@pytest.mark.parametrize("size", [3, 5000])
@pytest.mark.parametrize(
    ("dtype", "number"),
    [
        ("float16", np.inf),
        ("float32", np.nan),
        ("float32", -np.inf),
        ("float64", 1e300),
        ("float64", -3.5e38),
        ("float64", np.nan),
        ("float64", -np.inf),
        ("int64", 2**40 + 1),
        ("int64", 2**31),
        ("int64", -(2**31) - 1),
        ("uint64", 2**32),
        ("uint64", 2**64 - 1),
    ],
)
def test_what_a_learner_cannot_hold_is_refused(dtype: str, number: float, size: int) -> None:
    layout = StepReader(EnvSpec(ArraySpec((size,), dtype), DiscreteSpec(2)), 2)
    observation = np.ones((2, size), dtype)
    observation[0, 0] = 3e4 if dtype == "float16" else 2e9  # whose square few of them can hold
    layout.unpack(packed(layout, 0, 0, _STEP._replace(observation=observation)))
    observation[1, 1] = number
    with pytest.raises(ValueFaultError) as fault:
        layout.unpack(packed(layout, 0, 0, _STEP._replace(observation=observation)))
    assert (fault.value.row, fault.value.is_absurd) == (1, False)


def test_a_mask_may_forbid_all_actions_only_where_an_episode_has_terminated() -> None:
    spec = EnvSpec(
        {"action_mask": ArraySpec((3,), "bool"), "seen": ArraySpec((), "int32")}, DiscreteSpec(3)
    )
    layout, mask = StepReader(spec, 2), np.array([[True, False, True], [False, False, False]])
    seen = {"action_mask": mask, "seen": np.zeros(2, np.int32)}
    types, reward = np.array([StepType.MID, StepType.LAST], np.uint8), np.zeros(2, np.float32)
    ended = TimeStep(types, reward, np.array([1, 0], np.float32), seen)
    _assert_equal_steps(spec, layout.unpack(packed(layout, 0, 0, ended)), ended)
    layout.check_observation(seen, ended.discount)
    # A truncated episode bootstraps from its last observation, so an action must be legal there.
    truncated = ended._replace(discount=np.ones(2, np.float32))
    for refuse in (
        lambda: layout.unpack(packed(layout, 0, 0, truncated)),
        lambda: layout.check_observation(seen, truncated.discount),
        lambda: layout.check_observation(seen),
    ):
        with pytest.raises(ValueFaultError) as fault:
            refuse()
        assert fault.value.row == 1 and "observation.action_mask" in str(fault.value)


_METRICS = np.array([[0.5, np.nan, -1.0]], np.float32)
_METRIC_BYTES = bytes.fromhex("0000003f 0000c07f 000080bf 00000000")


def test_metrics_of_last_rows_follow_the_observation() -> None:
    layout = StepReader(_SPEC, 2, num_metrics=3)
    data = packed(layout, 5, 258, _STEP, _METRICS)
    assert data == _BYTES + _METRIC_BYTES and layout.size(data) == len(data)
    assert layout.pack_framed(5, 258, _STEP, _METRICS).message == b"\x1a\x48" + data
    _assert_equal_steps(_SPEC, layout.unpack(data), _STEP)
    np.testing.assert_array_equal(layout.metrics(data), _METRICS)


@pytest.mark.parametrize(("position", "value"), [(60, struct.pack("<f", np.inf)), (71, b"\1")])
def test_damaged_metrics_are_refused(position: int, value: bytes) -> None:
    data = bytearray(_BYTES + _METRIC_BYTES)
    data[position : position + len(value)] = value
    with pytest.raises(WireError):
        StepReader(_SPEC, 2, num_metrics=3).metrics(data)


def test_a_message_may_hold_the_steps_of_several_groups() -> None:
    layouts = [StepReader(_SPEC, 2, num_metrics=3), StepReader(_SPEC, 2, num_metrics=3)]
    first = packed(layouts[1], 1, 9, _STEP, _METRICS)
    second = packed(layouts[0], 0, 4, _STEP, _METRICS)
    parts = list(split(first + second, layouts))
    assert [(group, sequence_of(data)) for group, data in parts] == [(1, 9), (0, 4)]
    assert [bytes(data) for _, data in parts] == [first, second]


_BOX = BoxSpec((2,), (-3.0, 0.0), (3.0, 1.0))


_SEVERAL = MultiDiscreteSpec((2,), (3, 5))
_TOKENS = TokensSpec(vocabulary=5, longest_turn=3, longest_completion=2, end=4)


@pytest.mark.parametrize(
    ("spec", "actions", "octets"),
    [
        (DiscreteSpec(3), [0, 2, 1], "00000000 02000000 01000000 00000000"),
        (_BOX, [[1, -1], [0.5, -0.0]], "0000803f 000080bf 0000003f 00000080"),
        (_SEVERAL, [[2, 0], [0, 4]], "02000000 00000000 00000000 04000000"),
        # A completion: the next seed plus 1, how many ids, and the ids.
        (_TOKENS, [[0, 2, 3, 4]], "00000000 02000000 03000000 04000000"),
    ],
)
def test_actions_are_the_literal_ones_of_the_contract(spec: Any, actions: Any, octets: str) -> None:
    sent = np.array(actions, spec.array.dtype)
    data = struct.pack("<IIQ", 1, len(sent), 7) + bytes.fromhex(octets)
    assert pack_actions(1, 7, sent) == data
    layout = ActionLayout(spec, len(sent))
    header, unpacked = layout.unpack(data)
    assert layout.num_bytes == len(data)
    assert header == StepHeader(group=1, num_envs=len(sent), sequence=7)
    assert unpacked.dtype == sent.dtype and unpacked.tolist() == actions


def test_a_reset_stands_in_the_place_of_actions_also_among_others() -> None:
    layouts = [ActionLayout(DiscreteSpec(3), 3), ActionLayout(DiscreteSpec(3), 2)]
    actions = pack_actions(0, 7, np.array([0, 2, 1], np.int32))
    parts = dict(split(actions + pack_reset(1, 9), layouts))
    assert bytes(parts[0]) == actions
    assert layouts[1].unpack(parts[1]) == ((1, 0, 9), None)
    assert [group for group, _ in split(pack_reset(1, 9) + actions, layouts)] == [1, 0]
    with pytest.raises(WireError, match="for 0 in 24"):
        layouts[1].unpack(pack_reset(1, 9) + bytes(8))


def _packed(actions: Any) -> bytes:
    return pack_actions(0, 0, np.array(actions, np.int32))


@pytest.mark.parametrize(
    ("spec", "num_envs", "data"),
    [
        (DiscreteSpec(3), 3, b"\0" * 15),
        (DiscreteSpec(3), 3, _packed([0, 0])),  # other environments
        (DiscreteSpec(3), 3, _packed([0, 0, 0])[:-1]),
        (DiscreteSpec(3), 3, _packed([0, 0, 0]) + b"\0"),
        (DiscreteSpec(3), 3, _packed([0, 0, 0])[:-1] + b"\1"),  # padding
        (DiscreteSpec(3), 3, _packed([0, 3, 0])),
        (DiscreteSpec(3), 3, _packed([0, 0, -1])),
        # Each of several has its own bound.
        *((_SEVERAL, 1, _packed([row])) for row in ([3, 0], [0, 5], [-1, 0], [4, 2])),
        *(
            (_TOKENS, 1, _packed([row]))
            for row in ([0, 3, 0, 0], [0, 1, 5, 0], [-1, 0, 0, 0], [0, 1, -1, 0])
        ),
        *(
            (_BOX, 2, _packed(np.zeros((2, 2)))[:28] + struct.pack("<f", value))
            for value in (1.0001, -2.0, np.nan, np.inf)
        ),
    ],
)
def test_damaged_actions_are_refused(spec: Any, num_envs: int, data: bytes) -> None:
    with pytest.raises(WireError):
        ActionLayout(spec, num_envs).unpack(data)


def test_the_largest_of_several_actions_and_a_completion_without_ids_are_taken() -> None:
    ActionLayout(_SEVERAL, 1).unpack(_packed([[2, 4]]))
    _, (row,) = ActionLayout(_TOKENS, 1).unpack(_packed([completion_row(_TOKENS, (), MOST_SEED)]))
    assert row.tolist() == [MOST_SEED + 1, 0, 0, 0]
    assert completion_row(_TOKENS, [4], next_seed=0).tolist() == [1, 1, 4, 0]
    assert turn_ids(completion_row(_TOKENS, [3, 4])).tolist() == [3, 4]


_ILLEGAL_TURNS = [[0, 4, 0, 0, 0], [0, -1, 0, 0, 0], [0, 1, 5, 0, 0], [0, 1, -1, 0, 0]]


@pytest.mark.parametrize("row", [*_ILLEGAL_TURNS, [-1, 1, 0, 0, 0], [0, 0, 0, 0, 0]])
def test_a_turn_beyond_its_spec_is_refused_by_row(row: list[int]) -> None:
    layout = StepReader(EnvSpec(_TOKENS.turn, _TOKENS), 2)
    rows = np.array([[MOST_SEED + 1, 3, 4, 0, 1], row], np.int32)
    timestep = TimeStep(
        *(np.zeros(2, each) for each in ("uint8", "float32")), np.ones(2, "f4"), rows
    )
    with pytest.raises(ValueFaultError) as refused:
        layout.unpack(packed(layout, 0, 0, timestep))
    assert refused.value.row == 1
    with pytest.raises(ValueFaultError):
        layout.check_observation(rows)


def test_the_last_step_of_an_episode_may_have_the_next_question() -> None:
    rows = np.array([[0, 0, 0, 0, 0], [6, 1, 3, 0, 0]], np.int32)
    ones = np.ones(2, "f4")
    timestep = TimeStep(
        np.array([StepType.LAST, NEXT], np.uint8), ones, np.array([0, 1], "f4"), rows
    )
    layout = StepReader(EnvSpec(_TOKENS.turn, _TOKENS), 2, num_metrics=1)
    data = packed(layout, 0, 0, timestep, np.array([[0.5], [2]], np.float32))
    assert layout.unpack(data).step_type.tolist() == [2, 3]
    assert layout.metrics(data).tolist() == [[0.5], [2]]
    # Only of tokens, and never without a question.
    classic = StepReader(EnvSpec(_TOKENS.turn, DiscreteSpec(2)), 2)
    with pytest.raises(WireError, match="step_type"):
        classic.unpack(packed(classic, 0, 0, timestep))
    for broken in (
        timestep._replace(discount=np.zeros(2, "f4")),
        timestep._replace(observation=np.zeros_like(rows)),
    ):
        with pytest.raises(WireError):
            layout.unpack(packed(layout, 0, 0, broken, np.zeros((2, 1), np.float32)))


def test_only_numbers_between_two_bounds_are_sent_within_one() -> None:
    infinity = float("inf")
    spec = BoxSpec((4,), (-1.0, -infinity, 0.0, -(2.0**31)), (1.0, infinity, infinity, 2.0**31))
    layout, largest = ActionLayout(spec, 2), np.finfo(np.float32).max
    sent = np.array([[-2, -2, -2, -2], [np.inf] * 4], np.float32)
    _, taken = layout.unpack(pack_actions(0, 0, sent, spec.largest))
    np.testing.assert_array_equal(taken, [[-1, -2, -2, -2], [1, largest, largest, largest]])
    for row in ([0, np.inf, 0, 0], [0, np.nan, 0, 0], [1.5, 0, 0, 0]):
        with pytest.raises(WireError):
            layout.unpack(pack_actions(0, 0, np.array([row, row], np.float32), np.inf))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int64])
def test_rewards_up_to_the_bound_are_taken(dtype: type) -> None:
    check_rewards(np.array([-1000, 0, 1000], dtype), 1000.0)
    check_rewards(np.array([-1000, 0, 1000], dtype))
    check_rewards(np.full(100, 3.0, np.float32), 4.0)  # together more than the bound


@pytest.mark.parametrize(
    ("number", "most", "is_absurd"),
    [
        (math.nan, 1e6, False),
        (math.inf, 0.0, False),
        (-math.inf, 1e6, False),
        (1e300, 0.0, False),
        (1e300, 1e6, False),
        (1e38, 1e6, True),
        (-1.1e6, 1e6, True),
    ],
)
def test_a_reward_beyond_it_is_the_fault_of_its_row(
    number: float, most: float, is_absurd: bool
) -> None:
    reward = np.array([0.0, 1.0, number, 1.0])
    with pytest.raises(ValueFaultError) as fault:
        check_rewards(reward, most)
    assert (fault.value.row, fault.value.is_absurd) == (2, is_absurd)


def test_integers_that_overflow_when_multiplied_are_seen() -> None:
    with pytest.raises(ValueFaultError):
        check_rewards(np.array([2**32, 0], np.int64), 1e6)
