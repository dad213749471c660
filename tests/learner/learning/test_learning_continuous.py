"""SAC on replay, by the program that learns: transitions, what is skipped, and what follows."""

import functools
from typing import Any, NamedTuple

import jax
import numpy as np

from learner.acting.act_step import example_page
from learner.learning.learn_step import AXIS, LearnerState, build_learn_programs
from learner.learning.loop import fetched
from seedrl.agents.sac import SacConfig
from seedrl.replay.experience import Scale
from seedrl.replay.prioritized import ReplayConfig
from seedrl.rl.priorities import MIN_MASS
from seedrl.specs import ArraySpec, BoxSpec, EnvSpec
from seedrl.types import Page, StepType, StoredStep, TimeStep
from tests.seedrl.agents.linear_network import LinearConfig

FIRST, MID, LAST = StepType.FIRST, StepType.MID, StepType.LAST
SPEC = EnvSpec(ArraySpec((2,), "float32"), BoxSpec((1,), (-1.0,), (1.0,)))
CONFIG = SacConfig(network=LinearConfig())
CAPACITY, BATCH = 16, 4


class Learner(NamedTuple):
    """What begins a run, an index of its replay, and learning, mapped over one device."""

    begin: Any
    index: Any
    learn: Any


@functools.cache
def learner() -> Learner:
    agent = CONFIG.build(SPEC)
    replay = ReplayConfig(
        capacity_steps=CAPACITY, min_steps=4, priority_exponent=0.0, importance_exponent=0.0
    )
    experience = replay.build(
        CONFIG.window,
        page=example_page(agent, SPEC, 1),
        initial_priorities=agent.initial_priorities,
        scale=Scale(1, BATCH, 1, 2**30, "a device"),
    )
    programs = build_learn_programs(agent, experience.memory, batch_per_device=BATCH)

    def begin(pages: Page, plan: Any) -> tuple[LearnerState, Any]:
        empty = experience.memory.init(jax.tree.map(lambda leaf: leaf[0], pages))
        return programs.init(jax.random.PRNGKey(0)), programs.insert(empty, pages, plan)

    learn = jax.vmap(lambda state, stored: programs.learn(state, stored, (), True), axis_name=AXIS)
    return Learner(jax.jit(begin), experience.index, jax.jit(learn))


def stream() -> Page:
    """Pages of one row: an episode that is truncated, and the beginning of the next."""
    types = np.array([FIRST, MID, LAST, FIRST, MID, MID], np.uint8)
    random = np.random.default_rng(0)
    rows = len(types)
    reward = np.where(types == FIRST, 0, random.normal(size=rows)).astype(np.float32)
    observation = random.normal(size=(rows, 2)).astype(np.float32)
    timestep = TimeStep(types, reward, np.ones(rows, np.float32), observation)
    action = random.uniform(-1, 1, (rows, 1)).astype(np.float32)
    steps = StoredStep(timestep, action, np.zeros(rows, np.int32), ())
    return Page(jax.tree.map(lambda leaf: leaf[:, None], steps), ())


def begun() -> tuple[LearnerState, Any]:
    """A fresh state and a replay of `stream`."""
    found = learner()
    state, stored = found.begin(stream(), found.index().plan([0] * 6))
    return jax.tree.map(np.asarray, (state, stored))


def learned(state: LearnerState, stored: Any) -> tuple[LearnerState, Any, dict[str, float]]:
    """What an update leaves, without the axis of devices."""
    of_one_device = jax.tree.map(lambda leaf: leaf[None], (state, stored))
    outcome = learner().learn(*of_one_device)
    state, stored, numbers = jax.tree.map(lambda leaf: np.asarray(leaf)[0], outcome)
    return state, stored, fetched(numbers)


def is_same(one: Any, other: Any) -> list[bool]:
    return [
        np.asarray(a).tobytes() == np.asarray(b).tobytes()
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    ]


def test_each_part_learns_from_transitions_and_targets_follow() -> None:
    state, stored = begun()
    # The transition out of LAST is drawn last, the newest row begins none yet.
    expected = np.float32([1, 1, MIN_MASS, 1, 1] + [0] * (CAPACITY - 5))
    np.testing.assert_array_equal(stored.mass, expected)
    new, stored, numbers = learned(state, stored)
    assert (numbers["skipped_updates"], numbers["trained_fraction"]) == (0, 1)
    np.testing.assert_array_equal(stored.mass, expected)
    assert int(new.updates) == 1
    for part in ("actor", "critics", "log_temperature"):
        assert not all(is_same(getattr(state.params, part), getattr(new.params, part)))
    jax.tree.map(
        lambda after, before, target: np.testing.assert_allclose(
            target, before + CONFIG.tau * (after - before), rtol=1e-5, atol=1e-7
        ),
        new.params.critics,
        state.params.critics,
        new.target,
    )


def test_an_update_that_is_not_finite_leaves_every_bit_and_is_drawn_last() -> None:
    state, stored = begun()
    timestep = stored.pages.steps.timestep
    steps = stored.pages.steps._replace(timestep=timestep._replace(reward=timestep.reward * np.nan))
    stored = stored._replace(pages=stored.pages._replace(steps=steps))
    new, stored, numbers = learned(state, stored)
    assert numbers["skipped_updates"] == 1
    assert all(is_same(new.agent, state.agent))
    np.testing.assert_array_equal(np.asarray(stored.mass)[:5] == np.float32(MIN_MASS), True)
