"""Ape-X on replay, by the program that learns: what is drawn, written back and skipped.

Transitions of two rows that start anywhere in pages of four; Q-values are a table.
"""

import functools
from typing import Any, NamedTuple

import jax
import numpy as np

from learner.acting.act_step import example_page
from learner.learning.learn_step import AXIS, LearnerState, build_learn_programs
from learner.learning.loop import fetched
from seedrl.agents.apex import ApexConfig
from seedrl.replay.experience import Scale
from seedrl.replay.prioritized import ReplayConfig
from seedrl.rl.priorities import MIN_SAMPLING_WEIGHT
from seedrl.types import Page, StepType, StoredStep, TimeStep
from tests.seedrl.agents.table_network import ACTIONS, SPEC, STATES, TableConfig

FIRST, MID, LAST = StepType.FIRST, StepType.MID, StepType.LAST
CONFIG = ApexConfig(network=TableConfig(), n_steps=1, gamma=0.5, optimizer="adam")
PAGE_STEPS, PAGES, BATCH, EXPONENT = 4, 5, 16, 0.5
TYPES = np.array([FIRST, MID, LAST, FIRST, MID, MID, LAST, FIRST, MID, MID, MID, MID], np.uint8)
# The first episode terminates, the second is truncated.
DISCOUNT = np.float32([1, 1, 0, *[1] * 9])
STATE = np.arange(12) % STATES
ACTION = np.arange(12) % ACTIONS


class Learner(NamedTuple):
    """What begins a run with its replay filled, and learning, mapped over one device."""

    begin: Any
    learn: Any


@functools.cache
def learner() -> Learner:
    agent = CONFIG.build(SPEC)
    page = example_page(agent, SPEC, PAGE_STEPS)
    replay = ReplayConfig(
        capacity_steps=PAGES * PAGE_STEPS,
        min_steps=8,
        page_steps=PAGE_STEPS,
        priority_exponent=EXPONENT,
        importance_exponent=1.0,
    )
    experience = replay.build(
        CONFIG.window,
        page=page,
        initial_priorities=agent.initial_priorities,
        scale=Scale(1, BATCH, 1, 2**30, "a device"),
    )
    programs = build_learn_programs(agent, experience.memory, batch_per_device=BATCH)
    plan = experience.index().plan([0] * 3)

    def begin(pages: Page) -> tuple[LearnerState, Any]:
        state = programs.init(jax.random.PRNGKey(0))
        return state, programs.insert(experience.memory.init(page), pages, plan)

    learn = jax.vmap(lambda state, stored: programs.learn(state, stored, (), True), axis_name=AXIS)
    return Learner(jax.jit(begin), jax.jit(learn))


def begun(reward: np.ndarray) -> tuple[LearnerState, Any]:
    """A fresh state, and a replay of three pages of one stream, acted on with Q-values of 0."""
    timestep = TimeStep(TYPES, reward.astype(np.float32), DISCOUNT, STATE.astype(np.int32))
    extras = np.zeros((12, ACTIONS), np.float32)
    steps = StoredStep(timestep, ACTION.astype(np.int32), np.zeros(12, np.int32), extras)
    pages = jax.tree.map(lambda leaf: leaf.reshape(3, PAGE_STEPS, *leaf.shape[1:]), steps)
    return jax.tree.map(np.asarray, learner().begin(Page(pages, ())))


def learned(state: LearnerState, stored: Any) -> tuple[LearnerState, Any, dict[str, float]]:
    """What an update leaves, without the axis of devices."""
    outcome = learner().learn(*jax.tree.map(lambda leaf: leaf[None], (state, stored)))
    state, stored, numbers = jax.tree.map(lambda leaf: np.asarray(leaf)[0], outcome)
    return state, stored, fetched(numbers)


REWARD = np.float32([0, 4, 9, 0, 1, 16, 25, 0, 36, 49, 64, 81])


def test_each_place_has_the_mass_of_its_own_transition_before_and_after_an_update() -> None:
    state, stored = begun(REWARD)
    # √|r| of the row after, as all Q-values were 0; nothing of LAST rows. The third page is not
    # complete: its last transition needs the fourth.
    expected = np.float32([2, 3, MIN_SAMPLING_WEIGHT, 1, 4, 5, MIN_SAMPLING_WEIGHT, 6, *[0] * 12])
    np.testing.assert_allclose(stored.sampling_weight, expected, rtol=1e-6)

    new, after, numbers = learned(state, stored)
    assert (numbers["skipped_updates"], numbers["trained_fraction"]) == (0, 1)
    table = np.float64(state.params)
    rows = np.array([0, 1, 3, 4, 5, 7])  # all of them are among 16 draws
    values = DISCOUNT[rows + 1] * np.max(table[STATE[rows + 1]], axis=1)
    errors = REWARD[rows + 1] + CONFIG.gamma * values - table[STATE[rows], ACTION[rows]]
    drawn = after.sampling_weight[rows] != stored.sampling_weight[rows]
    assert drawn.sum() >= 5
    np.testing.assert_allclose(
        after.sampling_weight[rows][drawn], np.sqrt(np.abs(errors))[drawn], rtol=1e-5
    )
    # What was not drawn, or cannot be, stays as it was; the table moves where it was trained.
    others = np.setdiff1d(np.arange(20), rows)
    np.testing.assert_array_equal(after.sampling_weight[others], stored.sampling_weight[others])
    moved = {tuple(cell) for cell in np.argwhere(new.params != state.params).tolist()}
    cells = zip(STATE[rows][drawn].tolist(), ACTION[rows][drawn].tolist(), strict=True)
    assert moved == set(cells)
