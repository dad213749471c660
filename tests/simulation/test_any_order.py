"""Hypothesis chooses what happens next, and shrinks what goes wrong to a short story."""

import hypothesis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.simulation.faults import Faults
from tests.simulation.learner import CoreLearner, check_ledger
from tests.simulation.world import World

_PROCESSES = st.integers(0, 2)


class AnyOrder(RuleBasedStateMachine):
    """A world in which faults strike when Hypothesis wants them."""

    @initialize(seed=st.integers(0, 1000))
    def begin(self, seed: int) -> None:
        self.world = World(seed, CoreLearner, drawn=Faults())
        self.world.begin()

    @rule(milliseconds=st.integers(1, 15))
    def pass_time(self, milliseconds: int) -> None:
        self.world.timeline.run(self.world.timeline.now + milliseconds / 1000)

    @rule(name=st.sampled_from(["kill", "freeze", "cut"]), number=_PROCESSES)
    def strike(self, name: str, number: int) -> None:
        self.world.strike(name, number)

    @rule()
    def restart_learner(self) -> None:
        self.world.strike("restart_learner")

    @rule(fault=st.sampled_from(["lose_request", "lose_reply", "duplicate", "truncate", "delay"]))
    def spoil_a_message_soon(self, fault: str) -> None:
        world = self.world
        world.drawn = world.drawn._replace(**{fault: 1.0})
        world.faults = Faults(**{fault: 0.5})
        world.timeline.run(world.timeline.now + 0.003)
        world.faults = Faults()

    @invariant()
    def nothing_is_broken(self) -> None:
        if hasattr(self, "world"):
            assert self.world.oracle.broken + check_ledger(self.world.learner) == []

    def teardown(self) -> None:
        if hasattr(self, "world"):
            assert self.world.end() == []


AnyOrder.TestCase.settings = hypothesis.settings(
    max_examples=40, stateful_step_count=25, deadline=None, derandomize=True
)
test_nothing_is_mixed_up_in_any_order = AnyOrder.TestCase
