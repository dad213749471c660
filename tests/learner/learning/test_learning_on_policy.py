"""Learning from the on-policy queue with the programs of two devices and real agents."""

import functools
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from learner.acting.act_step import example_page
from learner.learning.device_mapping import map_programs, replicate, stack_shards
from learner.learning.learn_step import LearnerState, build_learn_programs
from learner.learning.loop import Learning
from learner.learning.page_routing import ShardedReplay
from learner.report.metrics import Tally
from learner.runtime.channel import (
    ActorLearnerChannel,
    FilledPages,
    RateLimiter,
    VersionedParams,
)
from seedrl.agents.agent import Agent
from seedrl.agents.impala import ImpalaConfig
from seedrl.agents.normalization import NormalizedExtras
from seedrl.agents.ppo import Acted, PpoConfig
from seedrl.networks.config import ActorCriticConfig
from seedrl.replay.experience import Scale
from seedrl.replay.queue import QueueConfig
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec
from seedrl.types import Page, StepType, StoredStep, TimeStep

DEVICES, PER_DEVICE, SLOTS = 2, 2, 3
BATCH = DEVICES * PER_DEVICE
MOST = 64
MAX_LAG = 3
NEW = 1000  # a version that is never too old
SPEC = EnvSpec(ArraySpec((2,), "float32"), DiscreteSpec(2))
NETWORK = ActorCriticConfig(torso="mlp", torso_sizes=(), core="none", head_sizes=())
LOG_MU, EPOCHS = np.float32(-0.7), 3


class OnPolicy(NamedTuple):
    """A configuration, what it stores of a row, and how often it trains on one."""

    config: ImpalaConfig | PpoConfig
    extras: Any
    times: int


IMPALA = OnPolicy(ImpalaConfig(network=NETWORK, unroll=2), LOG_MU, 1)
PPO = OnPolicy(
    PpoConfig(
        network=NETWORK,
        unroll=2,
        epochs=EPOCHS,
        minibatches=2,
        normalize_observations=True,
        normalize_rewards=True,
    ),
    # Discounted sums of rewards of 1 from the page's first row on.
    NormalizedExtras(Acted(LOG_MU, np.float32(0.3)), np.float32([1, 1.99, 2.9701]), np.float32(1)),
    EPOCHS,
)
LENGTH = IMPALA.config.window.length


def counting(agent: Agent) -> Agent:
    """The agent, which also counts, in `extras`, how often it was trained on each sequence."""

    def init_state(params: Any) -> Any:
        return agent.init_state(params)._replace(extras=jnp.zeros(MOST))

    def update(state: Any, sequence: Any, weights: Any, key: Any, mean: Any) -> Any:
        new, output = agent.update(state, sequence, weights, key, mean)
        numbers = sequence.steps.version[0]
        counted = DEVICES * mean(jnp.zeros(MOST).at[numbers].add(1.0))
        return new._replace(extras=state.extras + counted), output

    return agent._replace(init_state=init_state, update=update)


def page_of(on_policy: OnPolicy, number: int, observation: float | None = None) -> Page:
    """A page of an episode that continues, whose versions say its number, as observations do."""
    observation = number / MOST if observation is None else observation
    timestep = TimeStep(
        np.full(LENGTH, StepType.MID, np.uint8),
        np.ones(LENGTH, np.float32),
        np.ones(LENGTH, np.float32),
        np.full((LENGTH, 2), observation, np.float32),
    )
    versions = np.full(LENGTH, number, np.int32)
    extras = jax.tree.map(lambda leaf: np.full(LENGTH, leaf), on_policy.extras)
    steps = StoredStep(timestep, np.zeros(LENGTH, np.int32), versions, extras)
    return Page(steps, _first_carry(on_policy.config))


@functools.cache
def _first_carry(config: ImpalaConfig | PpoConfig) -> Any:
    agent = config.build(SPEC)
    carry = agent.stored_carry(agent.initial_carry(1))
    return jax.tree.map(lambda leaf: np.asarray(leaf)[0], carry)


class Running(NamedTuple):
    on_policy: OnPolicy
    learning: Learning
    channel: ActorLearnerChannel
    tally: Tally


@functools.cache
def _programs(config: ImpalaConfig | PpoConfig) -> Any:
    agent = counting(config.build(SPEC))
    page = example_page(agent, SPEC, LENGTH)
    scale = Scale(DEVICES, PER_DEVICE, SLOTS, 2**30, "a device")
    given: Any = None
    experience = QueueConfig(ahead_updates=2, max_lag_updates=MAX_LAG).build(
        config.window, page=page, initial_priorities=given, scale=scale
    )
    programs = build_learn_programs(agent, experience.memory, batch_per_device=PER_DEVICE)
    devices = jax.local_devices()[:DEVICES]
    return experience, page, programs, map_programs(programs, devices), devices


# IMPALA takes from the same queue, and of each batch one pass.
@pytest.fixture(params=[pytest.param(IMPALA, marks=pytest.mark.gate), PPO], ids=["impala", "ppo"])
def running(request: pytest.FixtureRequest) -> Running:
    experience, page, programs, mapped, devices = _programs(request.param.config)
    state = jax.jit(programs.init)(jax.random.PRNGKey(0))
    tally = Tally()
    metrics: Any = SimpleNamespace(tally=lambda: tally)
    channel = ActorLearnerChannel(
        RateLimiter(experience.limiter), [VersionedParams((), 0)], wake_acting=lambda: None
    )
    learning = Learning(
        programs=mapped,
        state=replicate(LearnerState(*state), devices),
        replay=ShardedReplay(
            experience,
            stack_shards(lambda: experience.memory.init(page), devices),
            [experience.index() for _ in devices],
            LENGTH,
            SLOTS,
        ),
        channel=channel,
        metrics=metrics,
        publish_every_updates=1,
        poll_seconds=0.0,
    )
    return Running(request.param, learning, channel, tally)


def send(running: Running, *pages: Page, versions: tuple[int, ...] = ()) -> None:
    """As acting does: all from slots of one parity, and padded to SLOTS.

    `versions`: those that acted on the first rows, by default none that is too old.
    """
    versions = versions or (NEW,) * len(pages)
    padded = [*pages, *[pages[0]] * (SLOTS - len(pages))]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *padded)
    streams = list(range(len(pages)))
    running.channel.limiter.acted(LENGTH * len(pages), len(pages))
    slots = [2 * i for i in streams]
    running.channel.pages.put(FilledPages(stacked, streams, slots, (), versions), 0.0)


def state_of(running: Running) -> Any:
    running.learning.finish_update()
    return running.learning.snapshot(with_replay=False).state


def test_each_sequence_is_trained_once_and_one_that_is_not_finite_is_not_drawn_again(
    running: Running,
) -> None:
    learning = running.learning
    poisoned = 2 * BATCH + 1  # in the third batch
    before: Any = None
    num_compared = 0
    for first in range(0, 30, SLOTS):
        numbers = range(first, first + SLOTS)
        send(
            running,
            *(page_of(running.on_policy, n, np.inf if n == poisoned else None) for n in numbers),
        )
        while learning.run_once():
            state = state_of(running)
            if learning.num_skipped == 1 and learning.num_applied == 2:
                # Nothing of the update was applied: bit for bit.
                for leaf, old in zip(jax.tree.leaves(state[:-1]), before, strict=True):
                    np.testing.assert_array_equal(leaf, old)
                num_compared += 1
            before = jax.tree.leaves(state[:-1])
    assert num_compared == 1
    num_taken = 30 // BATCH * BATCH
    expected = np.zeros(MOST)
    expected[:num_taken] = running.on_policy.times
    expected[2 * BATCH : 3 * BATCH] = 0  # consumed, and never trained
    state = state_of(running)
    np.testing.assert_array_equal(state.extras, expected)
    assert (learning.num_applied, learning.num_skipped) == (num_taken // BATCH - 1, 1)
    assert int(state.updates) == learning.updates == num_taken // BATCH - 1
    assert learning.stored_rows == 30 * LENGTH
    assert learning.accounts() == {
        "requeued": 0,
        "taken": num_taken * LENGTH,
        "waiting": (30 - num_taken) * LENGTH,
    }
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.params))
    if running.on_policy is PPO:
        _check_moments(running, [*range(2 * BATCH), *range(3 * BATCH, num_taken)])


def _check_moments(running: Running, numbers: list[int]) -> None:
    """Of what was learned from, each once whatever the passes; acting has those of its version."""
    params = state_of(running).params
    (observations,) = params.observations
    seen = np.repeat(np.array(numbers)[:, None] / MOST, 2, axis=1)
    num_batches = len(numbers) / BATCH
    np.testing.assert_allclose(observations[0], num_batches)
    np.testing.assert_allclose(observations[1:], (seen.mean(axis=0), seen.var(axis=0)), rtol=1e-5)
    # Rewards of 1 on rows 0, 1 and 2, of which the last two were trained; γ is 0.99.
    expected = (num_batches, np.mean([1.99, 2.9701]), np.var([1.99, 2.9701]))
    np.testing.assert_allclose(params.returns, expected, rtol=1e-5)
    (acting,) = running.channel.params
    assert acting.version == num_batches
    jax.tree.map(np.testing.assert_array_equal, tuple(acting.params[1:]), tuple(params[1:]))


def test_what_would_be_trained_too_late_is_dropped_before_it_is_dealt(running: Running) -> None:
    learning, limiter = running.learning, running.channel.limiter
    sent, kept = 0, []
    for _ in range(20):
        updates, waiting = learning.updates, learning.num_sequences
        # Of three pages the second is too old for the update that it would be for; the third
        # takes its place there.
        dues = [updates + (waiting + turn) // BATCH for turn in (0, 1, 1)]
        lags = [MAX_LAG, MAX_LAG + 1, MAX_LAG]
        numbers = list(range(sent, sent + SLOTS))
        send(
            running,
            *(page_of(running.on_policy, number) for number in numbers),
            versions=tuple(due - lag for due, lag in zip(dues, lags, strict=True)),
        )
        sent += SLOTS
        kept += [numbers[0], numbers[2]]
        while learning.run_once():
            learning.finish_update()
        assert limiter.may_act()  # neither for what was dropped, nor for ever
    num_taken = len(kept) // BATCH * BATCH
    expected = np.zeros(MOST)
    expected[kept[:num_taken]] = running.on_policy.times
    np.testing.assert_array_equal(state_of(running).extras, expected)
    assert learning.num_stale == running.tally.counted["stale_sequences"] == sent // SLOTS
    assert learning.stored_rows + learning.stale_rows == sent * LENGTH
    assert learning.accounts() == {
        "requeued": 0,
        "taken": num_taken * LENGTH,
        "waiting": (len(kept) - num_taken) * LENGTH,
    }
    assert limiter.now.metrics() == {"queue_updates": (len(kept) - num_taken) / BATCH}
