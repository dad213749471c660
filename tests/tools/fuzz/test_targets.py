"""Whatever bytes a peer sends, they are read, or refused with the documented error.

Few inputs by default; `-m gate` tries thousands.
"""

import pytest
from hypothesis import Phase, given, settings

from tests.faults.scale import scaled
from tests.tools.fuzz import conversations, wire
from tests.tools.fuzz.strategies import inputs
from tests.tools.fuzz.target import Target

TARGETS = {each.name: each for each in (*wire.TARGETS, *conversations.TARGETS)}
every_target = pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)


def _check(target: Target, num_inputs: int) -> None:
    # Without an explanation of failures: it takes minutes.
    @settings(max_examples=num_inputs, phases=(Phase.explicit, Phase.generate, Phase.shrink))
    @given(inputs(target))
    def holds(data: bytes) -> None:
        target.check(data)

    holds()


@every_target
def test_a_seed_of_each_target_is_accepted(target: Target) -> None:
    assert any([target.check(seed) for seed in target.seeds])


@every_target
def test_what_is_read_is_the_same_again_or_is_refused_in_one_line(target: Target) -> None:
    _check(target, 10)


@pytest.mark.gate
@every_target
def test_thousands_of_inputs_are_read_or_refused(target: Target) -> None:
    _check(target, scaled(5000))
