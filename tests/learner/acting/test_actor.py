"""An actor pads batches, cuts the padding off again, and knows its slots by numbers of its own."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from learner.acting.act_step import ActPrograms, build_act_programs, example_page
from learner.acting.actor import Actor, BatchShapes, build_actor
from learner.runtime.channel import VersionedParams
from learner.serving.batching import Pending
from learner.serving.core import Batch
from learner.serving.leases import Group, Lease, SlotRange
from seedrl.agents.agent import ActOutput, Agent
from seedrl.agents.window import WindowSpec
from seedrl.errors import ConfigError
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec
from seedrl.types import Array, StepType, TimeStep, Tree
from tests.compilations import compilations

SPEC = EnvSpec(ArraySpec((), "int32"), DiscreteSpec(1000))
PAGE_STEPS = 2
EXPLORATION = np.array([0.1, 0.2, 0.3, 0.9], np.float32)
FROZEN = VersionedParams(jnp.int32(100), 5)


def _policy(params: Tree, carry: Tree, step: TimeStep, epsilon: Array, key: Array) -> ActOutput:
    """Answers how many steps its slot has had, which slot it is by its epsilon, and what it saw."""
    count = carry + 1
    tenths = jnp.round(10 * epsilon).astype(jnp.int32)
    return ActOutput(params * count + 10 * tenths + step.observation, count, ())


AGENT = Agent(
    window=WindowSpec(0, 1, 1, 2),
    init=lambda key: jnp.int32(0),
    initial_carry=lambda size: jnp.zeros(size, jnp.int32),
    act=_policy,
    exploration=lambda size: np.zeros(size),
    evaluation_exploration=0.0,
    init_state=lambda *_: None,  # type: ignore[arg-type, return-value]
    update=lambda *_: None,  # type: ignore[arg-type, return-value]
)


def _exploration_at(env_steps: int) -> np.ndarray:
    return EXPLORATION


def _programs() -> ActPrograms:
    return build_act_programs(
        AGENT,
        example_page(AGENT, SPEC, PAGE_STEPS),
        num_training=3,
        num_slots=4,
    )


# Compiled by the first test that uses them; who counts compilations builds some of its own.
_shared_programs = functools.cache(_programs)


def _actor(slots: list[int], programs: ActPrograms | None = None) -> Actor:
    """An actor of three training slots and one for evaluation, which are called `slots`."""
    programs = programs or _shared_programs()
    shapes = BatchShapes(SPEC, num_training=3, num_evaluation=1)
    state = programs.init(jax.random.PRNGKey(0))
    return Actor(programs, shapes, state, _exploration_at, np.array(slots, np.int32))


def _batch(slots: list[int], position: int = 0) -> Batch:
    """A batch of one message, which observes 0, 1, ..."""
    rows = len(slots)
    numbers = np.array(slots, np.int32)
    group = Group(Lease(1, 1, "peer", 0), 0, numbers, numbers.astype(np.int64), "training", 0, b"")
    timestep = TimeStep(
        np.full(rows, StepType.MID, np.uint8),
        np.arange(rows, dtype=np.float32) / 2,
        np.ones(rows, np.float32),
        np.arange(rows, dtype=np.int32),
    )
    positions = np.full(rows, position, np.int32)
    pending = [Pending(group, 0, timestep, 0.0)]
    return Batch(pending, numbers, group.streams, positions, "training", 0.0, 0, [slice(0, rows)])


def _act(actor: Actor, batch: Batch, env_steps: int = 0) -> list[int]:
    actions: list[int] = actor.act(batch, actor.stage(batch), FROZEN, env_steps).tolist()
    return actions


def _rows(actor: Actor, slots: list[int]) -> int:
    batch = _batch(slots)
    staged = actor.stage(batch)
    assert len(actor.act(batch, staged, FROZEN)) == len(slots)  # of padding there are none
    return len(staged.rows.slot)


def test_exploration_that_falls_is_that_of_the_steps_of_the_run() -> None:
    actor = build_actor(
        AGENT,
        SPEC,
        example_page(AGENT, SPEC, PAGE_STEPS),
        slot_ranges=[SlotRange("training", 0, 3), SlotRange("evaluation", 3, 1)],
        exploration=np.array([0.2, 0.4, 0.0, 0.9], np.float32),
        decay_steps=1000,
        key=jax.random.PRNGKey(0),
        device=jax.local_devices()[0],
        rungs=2,
    )
    actor.warm_up_largest(FROZEN)
    actor.compile_others(FROZEN)

    def tenths(slots: list[int], env_steps: int, count: int) -> list[int]:
        actions = _act(actor, _batch(slots), env_steps)
        return [(action - 100 * count) // 10 for action in actions]

    assert tenths([0, 1, 2], 0, 1) == [10, 10, 10]
    assert tenths([1, 0], 500, 2) == [7, 6]
    assert tenths([1, 0], 5000, 3) == [4, 2]
    assert tenths([3], 0, 1) == tenths([3], 5000, 2) == [9]


def test_an_agent_that_forgets_the_mask_ends_the_run_by_name() -> None:
    mask = ArraySpec((3,), "bool")
    spec = EnvSpec({"action_mask": mask, "observation": SPEC.observation}, DiscreteSpec(3))

    def act(params: Tree, carry: Tree, step: TimeStep, epsilon: Array, key: Array) -> ActOutput:
        return ActOutput(jnp.ones(len(epsilon), jnp.int32), carry, ())

    agent = AGENT._replace(act=act)
    page = example_page(agent, spec, PAGE_STEPS)
    sizes = {"num_training": 3, "num_slots": 4}
    programs = build_act_programs(agent, page, **sizes)
    shapes = BatchShapes(spec, num_training=3, num_evaluation=1)
    actor = Actor(programs, shapes, programs.init(jax.random.PRNGKey(0)), _exploration_at)

    def batch(masks: list[list[bool]]) -> Batch:
        one = _batch([2, 0])
        step = one.pending[0].timestep
        seen = {"action_mask": np.array(masks), "observation": step.observation}
        return one._replace(
            pending=[one.pending[0]._replace(timestep=step._replace(observation=seen))]
        )

    allowed = [[False, True, False], [False, False, False]]  # the last of a terminated episode
    assert _act(actor, batch(allowed)) == [1, 1]
    with pytest.raises(ConfigError, match=r"agent\.act.* slot 0"):
        _act(actor, batch([[False, True, False], [True, False, True]]))


@pytest.mark.parametrize("slots", [[0, 1, 2, 3], [8, 4, 6, 10]])
def test_an_actor_of_any_slots_acts_as_that_of_the_first_ones(slots: list[int]) -> None:
    actor = _actor(slots)
    for position in range(PAGE_STEPS):
        actions = _act(actor, _batch([slots[1], slots[2], slots[3]], position))
        count = 100 * (position + 1)
        assert actions == [count + 20 + 0, count + 30 + 1, count + 90 + 2]
    pages = actor.take_pages(np.array([slots[2], slots[1]]))
    np.testing.assert_array_equal(pages.steps.action[:2], [[131, 231], [120, 220]])
    np.testing.assert_array_equal(pages.steps.version[:2], 5)
    np.testing.assert_array_equal(pages.carry[:2], [0, 0])


def test_every_batch_takes_the_largest_program_until_the_others_are_compiled() -> None:
    actor = _actor([0, 1, 2, 3], _programs())
    actor.warm_up_largest(FROZEN)
    with compilations() as names:
        rows = [_rows(actor, slots) for slots in ([0], [0, 1], [2, 1, 0], [3])]
    assert rows == [3, 3, 3, 3]
    assert names == []
    actor.compile_others(FROZEN)
    with compilations() as names:
        rows = [_rows(actor, slots) for slots in ([0], [0, 1], [2, 1, 0], [3])]
        actor.take_pages(np.array([0]))
    assert rows == [1, 2, 3, 1]
    assert names == []


@pytest.mark.parametrize("is_lock_step", [False, True])
def test_rows_lie_where_the_rule_has_them_and_the_rest_is_padding(is_lock_step: bool) -> None:
    shapes = BatchShapes(SPEC, num_training=8, num_evaluation=3)
    assert (shapes.act_rows, shapes.page_rows) == ((2, 3, 4, 8), (1, 2, 8))
    one, other = (_batch(slots).pending[0] for slots in ([3, 0], [1, 2, 4]))
    rows = [item.group.slots for item in (one, other)] if is_lock_step else [slice(2), slice(2, 5)]
    numbers = np.arange(5, dtype=np.int32) if is_lock_step else np.array([3, 0, 1, 2, 4], np.int32)
    batch = Batch([one, other], numbers, numbers + 0, numbers + 10, "training", 0.0, 0, rows)
    slots, positions, *_, timestep = shapes.stage(batch, numbers).rows
    assert slots.tolist() == [*numbers, 11, 11, 11]
    assert positions.tolist() == [*(numbers + 10), 0, 0, 0]
    expected = [1, 0, 1, 0, 2] if is_lock_step else [0, 1, 0, 1, 2]
    assert timestep.observation.tolist() == [*expected, 0, 0, 0]
    assert timestep.step_type.tolist() == [StepType.MID] * 5 + [StepType.FIRST] * 3
    assert shapes.pad_page_slots(np.array([7, 3, 5])).tolist() == [7, 3, 5, 0, 0, 0, 0, 0]
    # What is left of the batch before is padding.
    shapes.ready_rows = (8,)
    fewer = Batch([other], *[np.array([1, 2, 4])] * 3, "training", 0.0, 1, [slice(3)])
    assert shapes.stage(fewer, fewer.slots).rows.slot.tolist() == [1, 2, 4, *[11] * 5]
