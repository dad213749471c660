"""Acting against an oracle in numpy: a carry that counts, outputs that depend on everything."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from learner.acting.act_step import (
    ActingState,
    ActPrograms,
    ActRows,
    build_act_programs,
    example_page,
    unpacked,
    zero_rows,
)
from seedrl.agents.agent import ActOutput, Agent
from seedrl.agents.window import WindowSpec
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec
from seedrl.types import Array, Page, StepType, TimeStep, Tree

N, S, K = 5, 7, 3  # training slots, all slots, steps of a page
SPEC = EnvSpec({"x": ArraySpec((2,), "int32")}, DiscreteSpec(1000))
EXPLORATION = np.linspace(0.0, 0.6, S, dtype=np.float32)
POISON = 12345


def _act(
    params: Tree, carry: Tree, timestep: TimeStep, exploration: Array, key: Array
) -> ActOutput:
    is_first = timestep.step_type == StepType.FIRST
    count = jnp.where(is_first, 0, carry["count"]) + 1
    observed = timestep.observation["x"].sum(axis=1)
    action = params + 10 * count + 1000 * observed + timestep.reward.astype(jnp.int32)
    extras = {"count": count, "exploration": exploration}
    return ActOutput(action, {"count": count, "seen": timestep.observation["x"]}, extras)


def _no_learning(*arguments: object) -> Any:
    raise AssertionError("acting does not learn")


AGENT = Agent(
    window=WindowSpec(0, K, 0, K),
    init=lambda key: jnp.int32(7),
    initial_carry=lambda size: {
        "count": jnp.zeros(size, jnp.int32),
        "seen": jnp.zeros((size, 2), jnp.int32),
    },
    act=_act,
    exploration=lambda size: np.zeros(size),
    evaluation_exploration=0.0,
    init_state=_no_learning,
    update=_no_learning,
)


@pytest.fixture(scope="module")
def programs() -> ActPrograms:
    page = example_page(AGENT, SPEC, K)
    return build_act_programs(AGENT, page, num_training=N, num_slots=S)


class Batch(NamedTuple):
    slots: np.ndarray
    positions: np.ndarray
    timestep: TimeStep


class Oracle:
    """Slots as plain numpy, stepped one row at a time."""

    def __init__(self, seed: int):
        self.random = np.random.default_rng(seed)
        self.rows = np.zeros(S, int)
        self.needs_first = np.ones(S, bool)
        self.count = np.zeros(S, np.int32)
        self.seen = np.zeros((S, 2), np.int32)
        self.pages = jax.tree.map(
            lambda x: np.zeros((N, *x.shape), x.dtype), example_page(AGENT, SPEC, K)
        )

    def batch(self, *, evaluation: bool, rows: int) -> Batch:
        """A batch of random slots of one role, padded with poison to `rows` rows."""
        role = np.arange(N, S) if evaluation else np.arange(N)
        num_real = self.random.integers(1, min(rows, len(role)) + 1)
        real = self.random.permutation(role)[:num_real]
        slots = np.full(rows, S, np.int32)
        slots[:num_real] = real
        positions = np.zeros(rows, np.int32)
        positions[:num_real] = self.rows[real] % K
        step_type = self.random.choice([StepType.MID, StepType.LAST], rows).astype(np.uint8)
        step_type[:num_real][self.needs_first[real]] = StepType.FIRST
        self.needs_first[real] = step_type[:num_real] == StepType.LAST
        reward = np.full(rows, POISON, np.float32)
        reward[:num_real] = self.random.integers(0, 9, num_real)
        observation = np.full((rows, 2), POISON, np.int32)
        observation[:num_real] = self.random.integers(0, 99, (num_real, 2))
        discount = (step_type != StepType.LAST).astype(np.float32)
        return Batch(slots, positions, TimeStep(step_type, reward, discount, {"x": observation}))

    def act(self, batch: Batch, params: int, version: int) -> list[int]:
        """What the real rows must be answered, after doing to them what acting must do."""
        actions = []
        for row in np.flatnonzero(batch.slots < S):
            slot, position = int(batch.slots[row]), int(batch.positions[row])
            timestep = jax.tree.map(lambda leaf, row=row: leaf[row], batch.timestep)
            if slot < N and position == 0:
                self.pages.carry["count"][slot] = self.count[slot]
                self.pages.carry["seen"][slot] = self.seen[slot]
            before = 0 if timestep.step_type == StepType.FIRST else self.count[slot]
            self.count[slot] = before + 1
            self.seen[slot] = timestep.observation["x"]
            action = params + 10 * self.count[slot] + 1000 * self.seen[slot].sum()
            actions.append(int(action + timestep.reward))
            self.rows[slot] += 1
            if slot < N:
                self._write(slot, position, timestep, actions[-1], version)
        return actions

    def _write(
        self, slot: int, position: int, timestep: TimeStep, action: int, version: int
    ) -> None:
        steps = self.pages.steps
        for table, value in zip(
            jax.tree.leaves(steps.timestep), jax.tree.leaves(timestep), strict=True
        ):
            table[slot, position] = value
        steps.action[slot, position] = action
        steps.version[slot, position] = version
        steps.extras["count"][slot, position] = self.count[slot]
        steps.extras["exploration"][slot, position] = EXPLORATION[slot]

    def check(self, state: ActingState) -> None:
        """Every slot of every table is what it must be: nothing else was written either."""
        carry = unpacked(state.carry, AGENT.initial_carry(S), 1)
        np.testing.assert_array_equal(carry["count"], self.count)
        np.testing.assert_array_equal(carry["seen"], self.seen)
        steps = unpacked(state.open_steps, self.pages.steps, 2)
        pages = Page(steps, unpacked(state.open_carry, self.pages.carry, 1))
        jax.tree.map(np.testing.assert_array_equal, pages, self.pages)


def _step(
    programs: ActPrograms, state: ActingState, batch: Batch, params: int = 7, version: int = 0
) -> tuple[ActingState, np.ndarray]:
    timestep = jax.tree.map(lambda leaf: leaf[0], batch.timestep)
    packed, rows = zero_rows(timestep, len(batch.slots))
    exploration = EXPLORATION[np.minimum(batch.slots, S - 1)]
    own = ActRows(
        batch.slots, batch.positions, exploration, version, np.uint32(version), batch.timestep
    )
    for target, leaf in zip(jax.tree.leaves(rows), jax.tree.leaves(own), strict=True):
        target[:] = leaf
    state, actions = programs.act(state, np.int32(params), packed)
    return state, np.asarray(actions)


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.gate) for n in (1, 2))])
def test_every_row_lands_at_its_place_and_nothing_lands_elsewhere(
    programs: ActPrograms, seed: int
) -> None:
    oracle = Oracle(seed)
    state = programs.init(jax.random.PRNGKey(seed))
    oracle.check(state)
    for version in range(60):
        rows = int(oracle.random.choice([4, 8]))
        batch = oracle.batch(evaluation=version % 4 == 3, rows=rows)
        expected = oracle.act(batch, params=version % 5, version=version)
        state, actions = _step(programs, state, batch, version % 5, version)
        assert actions[: len(expected)].tolist() == expected
        oracle.check(state)


def test_a_batch_of_padding_writes_nothing(programs: ActPrograms) -> None:
    oracle = Oracle(0)
    state = programs.init(jax.random.PRNGKey(0))
    for version in range(6):
        batch = oracle.batch(evaluation=False, rows=8)
        oracle.act(batch, 7, version)
        state, _ = _step(programs, state, batch, version=version)
    observation = {"x": np.full((8, 2), POISON, np.int32)}
    scalars = (np.ones(8, np.uint8), np.full(8, np.nan, np.float32), np.ones(8, np.float32))
    for position in range(K):
        positions = np.full(8, position, np.int32)
        padding = Batch(np.full(8, S, np.int32), positions, TimeStep(*scalars, observation))
        state, _ = _step(programs, state, padding, version=99)
        oracle.check(state)


def test_tables_are_updated_in_place(programs: ActPrograms) -> None:
    oracle = Oracle(7)
    state = programs.init(jax.random.PRNGKey(0))
    state, _ = _step(programs, state, oracle.batch(evaluation=False, rows=8))

    def pointers(state: ActingState) -> list[int]:
        tables = (state.open_steps, state.open_carry)
        return [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(tables)]

    before = pointers(state)
    state, _ = _step(programs, state, oracle.batch(evaluation=False, rows=8))
    assert pointers(state) == before


def test_what_is_drawn_follows_from_the_batchs_number_and_the_row_alone() -> None:
    def draw(
        params: Tree, carry: Tree, timestep: TimeStep, exploration: Array, key: Array
    ) -> ActOutput:
        output = _act(params, carry, timestep, exploration, key)
        return output._replace(action=jax.random.randint(key, exploration.shape, 0, 10**9))

    agent = AGENT._replace(act=draw)
    programs = build_act_programs(agent, example_page(agent, SPEC, K), num_training=N, num_slots=S)
    oracle = Oracle(8)

    def actions(seed: int, numbers: list[int]) -> list[list[int]]:
        state, drawn = programs.init(jax.random.PRNGKey(seed)), []
        for number in numbers:
            batch = oracle.batch(evaluation=False, rows=8)
            state, action = _step(programs, state, batch, version=number)
            drawn.append(action.tolist())
        return drawn

    run = actions(0, [0, 1, 2, 2**31 - 1])
    assert len({action for row in run for action in row}) == 4 * 8
    # Whatever was acted on before, and with whatever observations.
    assert actions(0, [2, 0]) == [run[2], run[0]]
    assert actions(1, [0]) != run[:1]
