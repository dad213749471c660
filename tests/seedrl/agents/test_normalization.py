"""An agent sees the same when it acts and when it learns, in units of what was trained before."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedrl.agents.agent import ActOutput, Agent, AgentState, UpdateOutput
from seedrl.agents.apex import ApexConfig
from seedrl.agents.impala import ImpalaConfig
from seedrl.agents.normalization import (
    Normalization,
    NormalizedParams,
    RunningStatistics,
    batch_statistics,
    empty_statistics,
    merged,
    normalized,
    seen_by_agent,
    with_normalization,
)
from seedrl.agents.ppo import PpoConfig
from seedrl.agents.r2d2 import R2D2Config
from seedrl.agents.sac import SacConfig
from seedrl.agents.window import WindowSpec
from seedrl.specs import ArraySpec, BoxSpec, DiscreteSpec, EnvSpec
from seedrl.types import Sequence, StoredStep, TimeStep
from tests.seedrl.agents.actor_critics import (
    FIRST,
    MID,
    ROWS,
    SPEC,
    B,
    acted,
    updated,
    window_of,
)

WINDOW, GAMMA, KEY = WindowSpec(0, 6, 1, 7), 0.9, jax.random.key(3)
ONE = np.ones(1, np.float32)
SETTINGS = Normalization(SPEC, observations=True, rewards=True, gamma=GAMMA)
# In float32 exact: what is seen of 3 and -1 is 1 and -1.
UNITS = NormalizedParams(
    agent=np.float32(0),
    observations=(RunningStatistics(np.float32(8), np.float32([1, 2]), np.float32([4, 9])),),
    returns=RunningStatistics(np.float32(8), np.float32(77), np.float32(4)),
)


def alone(tree: Any) -> Any:
    return tree


class Within(NamedTuple):
    """An agent that stores what it sees, and remembers with which sequences it was updated."""

    agent: Agent
    learned: list[Sequence]


def within() -> Within:
    learned: list[Sequence] = []

    def act(params: Any, carry: Any, timestep: Any, exploration: Any, key: Any) -> ActOutput:
        action = jnp.zeros(timestep.reward.shape, jnp.int32)
        return ActOutput(action, carry + 1, (timestep.observation, timestep.reward))

    def update(state: Any, sequence: Any, weights: Any, key: Any, mean: Any) -> Any:
        learned.append(sequence)
        new = state._replace(params=state.params + 1)
        return new, UpdateOutput({"rows": jnp.float32(sequence.steps.action.size)}, new.params)

    agent = Agent(
        window=WINDOW,
        init=lambda key: jnp.zeros(()),
        initial_carry=lambda size: jnp.zeros(size, jnp.int32),
        act=act,
        exploration=np.ones,
        evaluation_exploration=0.0,
        init_state=lambda params: AgentState(params, (), (), jnp.int32(0)),
        update=update,
    )
    return Within(agent, learned)


@functools.cache
def normalizing(observations: bool, rewards: bool, images: bool = False) -> Agent:
    """The agent above, which sees things in units. Jitted: acting, and what follows a batch."""
    settings = Normalization(SPEC, observations, rewards, GAMMA, images)
    agent = with_normalization(within().agent, settings)
    update_statistics = functools.partial(agent.update_statistics, mean=alone)
    return agent._replace(act=jax.jit(agent.act), update_statistics=jax.jit(update_statistics))


@functools.cache
def stream() -> tuple[StoredStep, list[Any]]:
    """Three streams, acted on in these units, whose rewards are from 0.3 to 3."""
    return acted(normalizing(True, True), UNITS)


def windows() -> list[Sequence]:
    assert 2 * WINDOW.length == ROWS
    found = [window_of(stream(), start, WINDOW.length) for start in (0, WINDOW.length)]
    stored = normalizing(True, True).stored_carry
    return [sequence._replace(carry=stored(sequence.carry)) for sequence in found]


def row_of(speed: list[float], reward: float, step_type: int = MID) -> TimeStep:
    """A row of one stream."""
    observation = {"image": np.full((1, 3, 3), 200, np.uint8), "speed": np.array([speed], "f4")}
    rows = np.array([step_type], np.uint8), np.array([reward], "f4"), np.ones(1, "f4")
    return TimeStep(*rows, observation)


@pytest.mark.parametrize(
    ("speed", "reward", "seen_speed", "seen_reward"),
    [
        ([3.0, -1.0], 3.0, [1, -1], 1.5),
        ([1.0, 2.0], 0.0, [0, 0], 0),  # a reward loses no mean
        ([1e9, -np.inf], -1e6, [10, -10], -10),
    ],
)
def test_what_is_seen_by_hand(
    speed: list[float], reward: float, seen_speed: list[float], seen_reward: float
) -> None:
    agent = normalizing(True, True)
    carry = agent.initial_carry(1)
    arguments = row_of(speed, reward), ONE, KEY
    observation, rewards = agent.act(UNITS, carry, *arguments).extras.agent
    np.testing.assert_array_equal(observation["speed"], [seen_speed])
    np.testing.assert_array_equal(rewards, [seen_reward])
    # Bytes are for the network.
    np.testing.assert_array_equal(observation["image"], np.full((1, 3, 3), 200, np.uint8))
    untouched = agent.act(agent.init(KEY), carry, row_of([3.0, -1.0], 3.0), ONE, KEY)
    np.testing.assert_array_equal(untouched.extras.agent[0]["speed"], [[3, -1]])
    np.testing.assert_array_equal(untouched.extras.agent[1], [3])


def test_what_is_learned_from_is_what_was_acted_on_in_all_passes() -> None:
    """Bit for bit: moments do not move before all passes over a batch are over."""
    inner, learned = within()
    agent = with_normalization(inner, SETTINGS)
    update = jax.jit(lambda state, batch: (*updated(agent, state, batch), learned.pop()))
    state, sequence = agent.init_state(UNITS), windows()[1]
    for _ in range(2):
        state, output, seen = update(state, sequence)
        observation, reward = seen.steps.extras  # the agent's own
        np.testing.assert_array_equal(seen.steps.timestep.reward, reward)
        jax.tree.map(np.testing.assert_array_equal, seen.steps.timestep.observation, observation)
        np.testing.assert_array_equal(seen.carry, sequence.carry)
    assert float(state.params.agent) == 2
    jax.tree.map(np.testing.assert_array_equal, state.params[1:], UNITS[1:])
    assert float(output.metrics["return_std"]) == 2
    assert float(output.metrics["rows"]) == WINDOW.length * B


def test_initial_priorities_are_of_rewards_as_they_were_seen_when_acting() -> None:
    """Whatever later parameters make of them; values that acting stored are in the same units."""
    agent = within().agent._replace(
        initial_priorities=lambda steps: jnp.sum(steps.extras[1] - 3 * steps.timestep.reward, 0)
    )
    normalizing = with_normalization(agent, SETTINGS)
    steps = windows()[0].steps
    found = normalizing.initial_priorities(steps)
    seen = steps.timestep.reward.astype(np.float64).clip(-20, 20) / 2
    np.testing.assert_allclose(found, -2 * seen.sum(axis=0), rtol=1e-5)


@functools.cache
def kept() -> tuple[AgentState, Any]:
    """After both windows of the streams, from nothing."""
    agent = normalizing(True, True)
    state = agent.init_state(agent.init(KEY))
    for sequence in windows():
        state, guarded = agent.update_statistics(state, sequence, np.ones(B, np.float32))
    return state, guarded


def test_observations_of_all_trained_rows_are_counted_once_last_rows_too() -> None:
    (moments,) = kept()[0].params.observations
    trained = [row for row in range(ROWS) if row % WINDOW.length < WINDOW.unroll]
    speed = stream()[0].timestep.observation["speed"].astype(np.float64)[trained].reshape(-1, 2)
    assert float(moments.count) == 2
    np.testing.assert_allclose(moments.mean, speed.mean(axis=0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(moments.variance, speed.var(axis=0), rtol=1e-4)


def test_discounted_sums_run_on_from_window_to_window_and_stop_at_an_episodes_end() -> None:
    """The loop of VecNormalize in float64, over whole streams."""
    step_type, rewards = stream()[0].timestep[:2]
    sums = np.zeros(B)
    counted = []
    for row in range(ROWS):
        sums = np.where(step_type[row] == FIRST, 0, GAMMA * sums + rewards[row].astype(np.float64))
        # A reward is trained with the row before it.
        if row % WINDOW.length > 0:
            counted += sums[step_type[row] != FIRST].tolist()
    moments = kept()[0].params.returns
    num_trained = 2 * WINDOW.unroll * B
    assert len(counted) == num_trained - 2  # FIRST rows
    np.testing.assert_allclose(moments.count, 2 * len(counted) / num_trained, rtol=1e-6)
    np.testing.assert_allclose(moments.mean, np.mean(counted), rtol=1e-5)
    np.testing.assert_allclose(moments.variance, np.var(counted), rtol=1e-5)


def test_rows_of_a_burn_in_and_those_that_only_bootstrap_are_not_counted() -> None:
    window = WindowSpec(burn_in=2, unroll=4, bootstrap=3, stride=4)
    agent = with_normalization(within().agent._replace(window=window), SETTINGS)
    steps, _ = window_of(stream(), 0, window.length)
    state = agent.init_state(agent.init(KEY))
    update_statistics = jax.jit(functools.partial(agent.update_statistics, mean=alone))
    _, (_, (speeds,), returns) = update_statistics(
        state, Sequence(steps, ()), np.ones(B, np.float32)
    )
    speed = steps.timestep.observation["speed"].astype(np.float64)[2:6].reshape(-1, 2)
    np.testing.assert_allclose(speeds.mean, speed.mean(axis=0), rtol=1e-4, atol=1e-6)
    # The rewards of rows 2 to 5 arrive with the rows after them.
    sums = np.asarray(steps.extras.discounted_sum, np.float64)[3:7]
    sums = sums[steps.timestep.step_type[3:7] != FIRST]
    np.testing.assert_allclose(
        [returns.mean, returns.variance], [sums.mean(), sums.var()], rtol=1e-4
    )


def test_a_sequence_that_fills_up_a_batch_is_not_counted() -> None:
    """It has weight 0, because the batch has it already, or because its device has none."""
    agent = normalizing(True, True)
    state = agent.init_state(agent.init(KEY))

    def found(columns: list[int], weights: list[float]) -> tuple[Any, Any]:
        steps, carry = windows()[0]
        steps = jax.tree.map(lambda leaf: np.asarray(leaf)[:, columns], steps)
        carry = jax.tree.map(lambda leaf: np.asarray(leaf)[columns], carry)
        sequence = Sequence(steps, carry)
        of_batch = sequence, np.float32(weights)
        seen, _ = agent.preprocess_batch(state, *of_batch)
        new, _ = agent.update_statistics(state, *of_batch)
        return new.params[1:], seen.steps.timestep.reward[:, :2]

    (filled, filled_rewards), (whole, rewards) = (
        found([0, 1, 1], [1.5, 1.5, 0]),
        found([0, 1], [1, 1]),
    )
    for one, other in zip(filled[0] + filled[1:], whole[0] + whole[1:], strict=True):
        np.testing.assert_allclose(one.count, 2 / 3 * other.count, rtol=1e-6)
        np.testing.assert_allclose(one[1:], other[1:], rtol=1e-5)
    # Those of the first batch are in units of its own returns.
    np.testing.assert_allclose(filled_rewards, rewards, rtol=1e-5)
    raw = windows()[0].steps.timestep.reward[:, :2]
    np.testing.assert_allclose(rewards, raw / np.sqrt(whole[1].variance), rtol=1e-5)


@pytest.mark.parametrize(
    ("pixel", "variance", "seen"),
    [
        (200, 16.0, 0.0),
        (206, 16.0, 1.5),
        (0, 25.0, -10.0),
        (201, 0.0, 2.0),  # by half a grey level, for it has never changed
    ],
)
def test_images_are_seen_pixel_by_pixel_in_halves_of_a_float(
    pixel: int, variance: float, seen: float
) -> None:
    agent = normalizing(False, False, images=True)
    mean, variances = np.full((3, 3), 200.0, "f4"), np.full((3, 3), 16.0, "f4")
    variances[1, 2] = variance
    moments = RunningStatistics(np.float32(8), mean, variances)
    units = NormalizedParams(UNITS.agent, (moments,), ())
    row = row_of([3.0, 2.0], 3.0)
    row.observation["image"][0, 1, 2] = pixel
    output = agent.act(units, agent.initial_carry(1), row, ONE, KEY)
    found, _ = output.extras.agent
    expected = np.zeros((1, 3, 3), np.float16)
    expected[0, 1, 2] = seen
    assert found["image"].dtype == np.float16
    np.testing.assert_array_equal(found["image"], expected)
    np.testing.assert_array_equal(found["speed"], [[3, 2]])


@pytest.mark.parametrize(
    ("space", "seen"),
    [
        (ArraySpec((2,), "int64"), np.float32([1, 1])),
        (ArraySpec((2,), "uint16"), np.float32([1, 1])),
        (ArraySpec((2,), "float64"), np.float32([1, 1])),
        (ArraySpec((2,), "int32", (-9.0,), (9.0,)), np.int32([3, 5])),  # networks scale by them
        (ArraySpec((2,), "int32", (-9.0,), (9.0,), is_categorical=True), np.int32([3, 5])),
        (ArraySpec((2,), "bool"), np.array([True, True])),
    ],
)
def test_integers_are_normalized_if_there_are_no_bounds_to_scale_them_by(
    space: ArraySpec, seen: np.ndarray
) -> None:
    settings = Normalization(EnvSpec(space, SPEC.action), True, False, GAMMA)
    raw = np.array([[3, 5]]).astype(jax.dtypes.canonicalize_dtype(space.dtype))
    row = row_of([0, 0], 0)._replace(observation=raw)
    observation = normalized(settings, UNITS, row).observation
    np.testing.assert_array_equal(observation, seen[None])
    declared = seen_by_agent(settings).observation
    assert observation.dtype == jax.dtypes.canonicalize_dtype(declared.dtype)


ALONE = functools.partial(jax.tree.map, lambda leaf: leaf)
_moments_alone = jax.jit(functools.partial(batch_statistics, mean=ALONE))
_merged = jax.jit(merged)


def test_two_batches_by_hand() -> None:
    """1, 2, 3, 6, of which mean and variance are 3 and 3.5; then 10 and 20, and what is ignored."""
    first = _moments_alone(jnp.array([[1.0, 2.0], [3.0, 6.0]]), jnp.ones((2, 2), bool))
    np.testing.assert_allclose(first, (1, 3, 3.5), rtol=1e-6)
    ignored = jnp.array([[True, False], [False, True]])
    second = _moments_alone(jnp.array([[10.0, np.nan], [np.inf, 20.0]]), ignored)
    np.testing.assert_allclose(second, (0.5, 15, 25), rtol=1e-6)
    # A third of all rows is new, 12 away: 2/3 x 3.5 + 1/3 x 25 + 2/9 x 144.
    both = _merged(_merged(empty_statistics(()), first), second)
    np.testing.assert_allclose(both, (1.5, 7, 128 / 3), rtol=1e-6)
    np.testing.assert_allclose(both[1:], _of(np.array([1, 2, 3, 6, 10, 20.0])), rtol=1e-6)


def _of(rows: np.ndarray) -> tuple[Any, Any]:
    return rows.mean(axis=0), rows.var(axis=0)


def _batches(seed: int, number: int) -> tuple[np.ndarray, np.ndarray]:
    """`[N, 8, 6, 2]`, drifting, one element far from 0; and which of the rows count."""
    random = np.random.default_rng(seed)
    rows = random.normal(size=(number, 8, 6, 2)) * [3.0, 0.5] + [0.2, 1e4]
    rows += np.linspace(0, 4, number)[:, None, None, None]
    return rows.astype(np.float32), random.random((number, 8, 6)) < 0.8


def test_many_batches_are_as_good_as_all_rows_at_once_and_devices_agree() -> None:
    """On one device and on three; the oracle has float64."""
    rows, counts = _batches(0, 40)
    found = [_merged_over_devices(rows, counts, num_devices) for num_devices in (1, 3)]
    mean, variance = _of(rows.astype(np.float64)[counts])
    for moments in found:
        np.testing.assert_allclose(moments.count, counts.mean() * 40, rtol=1e-6)
        np.testing.assert_allclose(moments.mean, mean, rtol=1e-6)
        np.testing.assert_allclose(moments.variance, variance, rtol=1e-3)


def _merged_over_devices(
    rows: np.ndarray, counts: np.ndarray, num_devices: int
) -> RunningStatistics:
    """Each device has its part of the sequences; all must have the same moments, bit for bit."""

    def device(rows: Any, counts: Any) -> RunningStatistics:
        mean = functools.partial(jax.lax.pmean, axis_name="device")

        def step(moments: RunningStatistics, batch: Any) -> tuple[RunningStatistics, None]:
            return merged(moments, batch_statistics(*batch, mean)), None

        moments, _ = jax.lax.scan(step, empty_statistics((2,)), (rows, counts))
        return moments

    parts = [np.stack(np.split(x, num_devices, axis=2)) for x in (rows, counts)]
    every = jax.jit(jax.vmap(device, axis_name="device"))(*parts)
    for number in range(num_devices):
        jax.tree.map(lambda leaf, n=number: np.testing.assert_array_equal(leaf[n], leaf[0]), every)
    first: RunningStatistics = jax.tree.map(lambda leaf: leaf[0], every)
    return first


def test_a_long_run_loses_no_precision() -> None:
    """100,000 batches, whose mean is ten deviations from 0."""
    random = np.random.default_rng(1)
    means = (10 + 0.1 * random.normal(size=100_000)).astype(np.float32)
    variances = random.uniform(0.8, 1.2, size=100_000).astype(np.float32)
    ones = np.ones_like(means)

    def step(
        moments: RunningStatistics, batch: RunningStatistics
    ) -> tuple[RunningStatistics, None]:
        return merged(moments, batch), None

    batches = RunningStatistics(ones, means, variances)
    found, _ = jax.jit(lambda: jax.lax.scan(step, empty_statistics(()), batches))()
    expected = means.mean(dtype=np.float64)
    variance = variances.mean(dtype=np.float64) + means.var(dtype=np.float64)
    assert float(found.count) == 100_000
    np.testing.assert_allclose(found.mean, expected, atol=1e-4 * np.sqrt(variance))
    np.testing.assert_allclose(found.variance, variance, rtol=1e-4)


@pytest.mark.parametrize("agent", [ApexConfig, ImpalaConfig, PpoConfig, R2D2Config, SacConfig])
def test_every_agent_normalizes_pictures_if_asked(agent: Callable[..., Any]) -> None:
    action = BoxSpec((1,), (-1.0,), (1.0,)) if agent is SacConfig else DiscreteSpec(3)
    spec = EnvSpec(ArraySpec((12, 12), "uint8"), action)
    built = agent(normalize_images=True).build(spec)
    statistics = jax.eval_shape(built.init, KEY).observations
    assert [moments.mean.shape for moments in statistics] == [(12, 12)]
