"""Actions lie as the .proto says, and those that the spec rules out are refused."""

import struct

import numpy as np
import pytest

from seedrl.specs import BoxSpec, DiscreteSpec
from seedrl.wire.action_layout import ActionLayout, StepHeader
from seedrl.wire.framing import WireError
from seedrl.wire.payload import pack_actions, split

_BOX = BoxSpec((2,), (-3.0, 0.0), (3.0, 1.0))


def test_actions_are_the_literal_ones_of_the_contract() -> None:
    data = bytes.fromhex("01000000 03000000 0700000000000000 00000000 02000000 01000000 00000000")
    assert pack_actions(1, 7, np.array([0, 2, 1], np.int32)) == data
    header, actions = ActionLayout(DiscreteSpec(3), 3).unpack(data)
    assert header == StepHeader(group=1, num_envs=3, sequence=7)
    assert actions.dtype == np.int32 and actions.tolist() == [0, 2, 1]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\0" * 15, "at least 16 bytes, got 15"),
        (pack_actions(0, 0, np.zeros(2, np.int32)), "actions for 3 environments, got 2"),
        (pack_actions(0, 0, np.zeros(3, np.int32))[:-1], "actions payload of 32 bytes, got 31"),
        (pack_actions(0, 0, np.zeros(3, np.int32)) + b"\0", "of 32 bytes, got 33"),
        (pack_actions(0, 0, np.zeros(3, np.int32))[:-1] + b"\1", "zeros after actions"),
        (
            pack_actions(4, 0, np.array([0, 3, 0], np.int32)),
            "actions 0 to 2 for group 4, got 3 for environment 1",
        ),
        (pack_actions(0, 0, np.array([0, 0, -1], np.int32)), "0 to 2 .* got -1 for environment 2"),
    ],
)
def test_damaged_actions_are_refused(data: bytes, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        ActionLayout(DiscreteSpec(3), 3).unpack(data)


def test_box_actions_are_the_literal_ones_of_the_contract() -> None:
    data = bytes.fromhex(
        "01000000 02000000 0700000000000000 0000803f 000080bf 0000003f 00000080"  # 1, -1, 0.5, -0
    )
    actions = np.array([[1, -1], [0.5, -0.0]], np.float32)
    assert pack_actions(1, 7, actions) == data
    layout = ActionLayout(_BOX, 2)
    assert layout.num_bytes == len(data)
    header, unpacked = layout.unpack(data)
    assert header == StepHeader(group=1, num_envs=2, sequence=7)
    assert unpacked.dtype == np.float32 and unpacked.tolist() == actions.tolist()


@pytest.mark.parametrize("value", [1.0001, -2.0, np.nan, np.inf])
def test_box_actions_beyond_the_contract_are_refused(value: float) -> None:
    data = bytearray(pack_actions(5, 0, np.zeros((2, 2), np.float32)))
    data[28:32] = struct.pack("<f", value)
    with pytest.raises(WireError, match="actions -1 to 1 for group 5, got .* for environment 1"):
        ActionLayout(_BOX, 2).unpack(data)


def test_a_message_may_hold_the_actions_of_several_groups() -> None:
    layouts = [ActionLayout(DiscreteSpec(3), 3), ActionLayout(DiscreteSpec(3), 1)]
    first = pack_actions(0, 3, np.array([0, 1, 2], np.int32))
    second = pack_actions(1, 8, np.array([1], np.int32))
    parts = [layouts[group].unpack(data) for group, data in split(first + second, layouts)]
    assert [(header, actions.tolist()) for header, actions in parts] == [
        (StepHeader(0, 3, 3), [0, 1, 2]),
        (StepHeader(1, 1, 8), [1]),
    ]
