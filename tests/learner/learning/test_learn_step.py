"""One update: on one device and on four, of a batch that is given, skipped, and disabled."""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from learner.learning.device_mapping import MappedPrograms, map_programs
from learner.learning.learn_step import (
    AXIS,
    LearnerState,
    _reduced,
    build_learn_programs,
    initial_state,
    over_devices,
    run_epochs,
)
from learner.learning.loop import fetched
from seedrl.agents.agent import Agent, AgentState, UpdateOutput
from seedrl.agents.gradient_update import GradientUpdate, LinearDecay, LossOutput
from seedrl.agents.r2d2 import R2D2Config
from seedrl.agents.window import WindowSpec
from seedrl.errors import ConfigError
from seedrl.networks.config import QNetworkConfig
from seedrl.replay.buffer import Replay, Sample, prioritized_memory, queue_memory
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec
from seedrl.types import Array, Page, Sequence, StepType, StoredStep, TimeStep, Tree

B = 8
SPEC = EnvSpec(ArraySpec((3,), "float32"), DiscreteSpec(2))


R2D2 = R2D2Config(
    network=QNetworkConfig(torso="mlp", torso_sizes=(), core="none", head_sizes=(), frame_stack=1),
    burn_in=1,
    unroll=3,
    n_steps=1,
    stride=2,
    learning_rate=0.01,
    target_update_interval=2,
).build(SPEC)


class Fixed(NamedTuple):
    """A replay of which every sample is the same; remembers the priorities it was given."""

    sequence: Sequence
    probability: Array
    index: Array
    priorities: Array


def _sample(memory: Fixed, key: Array, batch_size: int) -> Sample:
    assert memory.index.shape == (batch_size,)
    return Sample(memory.sequence, memory.index, memory.probability)


def _update_priorities(memory: Fixed, index: Array, priorities: Array) -> Fixed:
    # Like the real one: what is not finite does not enter.
    new = jnp.where(jnp.isfinite(priorities), priorities, memory.priorities[index])
    return memory._replace(priorities=memory.priorities.at[index].set(new))


_FUNCTIONS: dict[str, Any] = {
    "init": lambda page: (),
    "insert": lambda memory, pages, plan: memory,
    "sample": _sample,
    "update_priorities": _update_priorities,
}
FIXED = Replay(capacity_pages=1, **_FUNCTIONS)


def _sequence(agent: Agent, seed: int = 0) -> Sequence:
    random, length = np.random.default_rng(seed), agent.window.length
    step_type = random.choice([StepType.MID, StepType.MID, StepType.LAST], (length, B))
    step_type[0] = StepType.FIRST
    timestep = TimeStep(
        step_type.astype(np.uint8),
        random.normal(size=(length, B)).astype(np.float32),
        np.where(step_type == StepType.LAST, random.integers(0, 2, (length, B)), 1).astype("f4"),
        random.normal(size=(length, B, 3)).astype(np.float32),
    )
    action = random.integers(0, 2, (length, B)).astype(np.int32)
    version = random.integers(0, 5, (length, B)).astype(np.int32)
    carry = jax.tree.map(np.asarray, agent.initial_carry(B))
    return Sequence(StoredStep(timestep, action, version, ()), carry)


def _memory(sequence: Sequence, num_devices: int) -> Fixed:
    """The batch split over devices, each with a leading device axis."""
    size = B // num_devices

    def split(leaf: np.ndarray, axis: int) -> np.ndarray:
        return np.stack(np.split(np.asarray(leaf), num_devices, axis))

    # Very unequal, so that the largest weight lies on one device only.
    probability = np.float32(0.5) ** np.arange(1, B + 1, dtype=np.float32)
    return Fixed(
        Sequence(
            jax.tree.map(lambda leaf: split(leaf, 1), sequence.steps),
            jax.tree.map(lambda leaf: split(leaf, 0), sequence.carry),
        ),
        split(probability, 0) * num_devices,  # within a shard
        np.tile(np.arange(size, dtype=np.int32)[::-1], (num_devices, 1)),
        np.full((num_devices, size), -1.0, np.float32),
    )


class Setting(NamedTuple):
    """An agent's programs on n devices, and a state for them."""

    agent: Agent
    num_devices: int
    programs: MappedPrograms
    state: LearnerState

    def memory(self, sequence: Sequence) -> Fixed:
        return _memory(sequence, self.num_devices)


def _setting(agent: Agent, num_devices: int) -> Setting:
    batch = B // num_devices
    memory = prioritized_memory(FIXED, batch_per_device=batch, importance_exponent=0.6)
    programs = build_learn_programs(agent, memory, batch_per_device=batch)
    mapped = map_programs(programs, jax.local_devices()[:num_devices])
    return Setting(agent, num_devices, mapped, _first_state(agent.init, agent.init_state))


@functools.cache
def _first_state(init: Any, init_state: Any) -> LearnerState:
    """Of all agents that begin alike, on any number of devices."""
    agent = TOY._replace(init=init, init_state=init_state)
    return _on_host(jax.jit(functools.partial(initial_state, agent))(jax.random.PRNGKey(1)))


@functools.cache
def _r2d2(num_devices: int) -> Setting:
    return _setting(R2D2, num_devices)


@pytest.fixture(params=[1, 4])
def r2d2(request: pytest.FixtureRequest) -> Setting:
    return _r2d2(request.param)


def _learn(
    setting: Setting, state: LearnerState, memory: Fixed
) -> tuple[LearnerState, Fixed, dict[str, float]]:
    """One update; takes and gives values on the host, so that nothing donated is looked at."""
    state, memory, numbers = setting.programs.learn(state, memory, (), np.float32(0))
    return _on_host(state), _on_host(memory), fetched(numbers)


def _on_host(tree: Tree) -> Any:
    return jax.tree.map(lambda leaf: np.array(leaf), tree)


def _assert_same(got: Tree, expected: Tree) -> None:
    jax.tree.map(np.testing.assert_array_equal, got, expected)


class Trace(NamedTuple):
    """Three updates: the state after them, the priorities `[3, B]`, and the metrics of each."""

    state: LearnerState
    priorities: np.ndarray
    metrics: list[dict[str, float]]


@functools.cache
def _trace(num_devices: int) -> Trace:
    setting = _r2d2(num_devices)
    state, priorities, metrics = setting.state, [], []
    for seed in range(3):
        state, memory, values = _learn(setting, state, setting.memory(_sequence(R2D2, seed)))
        # The index runs backwards within a shard: a priority lies where its sequence came from.
        priorities.append(memory.priorities[:, ::-1].reshape(B))
        metrics.append(values)
    return Trace(state, np.stack(priorities), metrics)


_ALL = len(jax.local_devices())


@pytest.mark.parametrize("number", [_ALL, pytest.param(_ALL // 2, marks=pytest.mark.gate)])
def test_devices_make_the_same_updates_of_the_same_batches_as_one(number: int) -> None:
    one, many = _trace(1), _trace(number)
    for name in ("params", "target", "optimizer", "updates"):
        jax.tree.map(
            lambda got, want: np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5),
            getattr(many.state, name),
            getattr(one.state, name),
        )
    np.testing.assert_allclose(many.priorities, one.priorities, rtol=1e-5, atol=1e-5)
    for got, want in zip(many.metrics, one.metrics, strict=True):
        for name in ("loss", "gradient_norm", "q_mean", "policy_lag_updates"):
            np.testing.assert_allclose(got[name], want[name], rtol=1e-5, atol=1e-6)
    # Every update, and the copy to the target after the second, did something.
    for before, after in (
        (_r2d2(1).state.params, one.state.params),
        (_r2d2(1).state.target, one.state.target),
        (one.state.params, one.state.target),
    ):
        changes = jax.tree.map(lambda x, y: np.abs(x - y).max(), before, after)
        assert min(jax.tree.leaves(changes)) > 1e-4
    assert one.priorities.min() >= 0.0  # all were written: they were -1


def test_devices_of_empty_shards_count_for_nothing() -> None:
    one, four = _r2d2(1), _r2d2(4)
    sequence = _sequence(R2D2)
    some = four.memory(sequence)
    # What lies in the shards 1 and 2 is nothing, and what is computed of it absurd.
    some.sequence.steps.timestep.reward[1:3] = np.nan
    some.sequence.steps.version[1:3] = -(10**6)
    some.probability[1:3] = 0.0
    state, after, metrics = _learn(four, four.state, some)
    # One device with the sequences of the others, each of them twice to be as many as before.
    rows = [0, 1, 6, 7] * 2
    steps = jax.tree.map(lambda leaf: leaf[:, rows], sequence.steps)
    same = one.memory(Sequence(steps, jax.tree.map(lambda leaf: leaf[rows], sequence.carry)))
    same = same._replace(probability=one.memory(sequence).probability[:, rows])
    expected, _, expected_metrics = _learn(one, one.state, same)
    # Other metrics are means of means, of as many trained rows as a device happens to have.
    names = ("loss", "gradient_norm", "q_mean", "q_max", "policy_lag_updates", "td_error_max")
    jax.tree.map(
        lambda got, want: np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6),
        (state.params, state.optimizer, [metrics[name] for name in names]),
        (expected.params, expected.optimizer, [expected_metrics[name] for name in names]),
    )
    assert metrics["skipped_updates"] == 0.0 and state.updates == 1
    assert (after.priorities[1:3] == -1.0).all() and after.priorities[[0, 3]].min() >= 0.0


def test_a_sequence_counts_as_much_on_a_device_that_holds_fewer() -> None:
    programs = build_learn_programs(TOY, queue_memory(2), batch_per_device=2)
    mapped = map_programs(programs, jax.local_devices()[:2])
    sequence = _sequence(TOY)
    sequence.steps.timestep.reward[:] = 0.0
    sequence.steps.timestep.reward[0, :4] = [1.0, 2.0, 6.0, np.nan]
    # Two on the first device; one on the second, which repeats it to fill its batch.
    steps = jax.tree.map(
        lambda leaf: np.swapaxes(leaf, 0, 1)[:4].reshape(2, 2, len(leaf), *leaf.shape[2:]),
        sequence.steps,
    )
    draw = np.array([[0, 1], [0, -1]], np.int32)
    _, _, numbers = mapped.learn(_toy(2).state, Page(steps, ()), draw, np.float32(0))
    assert fetched(numbers)["loss"] == pytest.approx(4.0 * (1 + 2 + 6) / 3 + 2.0)


def test_an_update_that_is_not_finite_is_skipped_and_counted(r2d2: Setting) -> None:
    state, memory, _ = _learn(r2d2, r2d2.state, r2d2.memory(_sequence(R2D2)))
    poisoned = _sequence(R2D2)
    poisoned.steps.timestep.reward[2:, -1] = np.nan  # of the last device only
    memory = memory._replace(sequence=r2d2.memory(poisoned).sequence)
    after, after_memory, metrics = _learn(r2d2, state, memory)
    assert metrics["skipped_updates"] == 1.0
    assert np.isnan(metrics["loss"])
    _assert_same(after._replace(key=state.key), state)
    # The sequences of the whole batch, on all devices: nothing says which of them it was.
    _assert_same(after_memory, memory._replace(priorities=np.zeros_like(memory.priorities)))
    assert (after.key != state.key).any()  # else the same batch would be drawn for ever
    again, _, metrics = _learn(r2d2, after, r2d2.memory(_sequence(R2D2)))
    assert metrics["skipped_updates"] == 0.0
    assert again.updates == state.updates + 1


def _toy_loss(
    params: Tree, target: Tree, sequence: Sequence, weights: Array, key: Array
) -> tuple[Array, LossOutput]:
    # d sqrt(x)/dx is infinite at 0: a finite loss without a finite gradient. `key` adds a draw that
    # the metrics show and the loss does not see.
    rewards = sequence.steps.timestep.reward.sum(axis=0)
    loss = jnp.mean(weights * (rewards * params + jnp.sqrt(params)))
    metrics = {
        "draw": jax.random.uniform(key),
        "draw_max": jax.random.uniform(key),
        "target": target,
    }
    return loss, LossOutput(rewards, metrics)


TOY_UPDATE = GradientUpdate(
    _toy_loss,
    optax.sgd(0.5),
    init_target=lambda params: jnp.float32(0),
    update_target=lambda params, target, updates: target + 100 + updates,
)
TOY = Agent(
    window=WindowSpec(burn_in=2, unroll=3, bootstrap=1, stride=3),
    init=lambda key: jnp.float32(4.0),
    initial_carry=lambda size: (),
    act=R2D2.act,
    exploration=R2D2.exploration,
    evaluation_exploration=0.0,
    init_state=TOY_UPDATE.init_state,
    update=TOY_UPDATE,
    initial_priorities=R2D2.initial_priorities,
)


@functools.cache
def _toy(num_devices: int) -> Setting:
    return _setting(TOY, num_devices)


@pytest.fixture
def toy() -> Setting:
    return _toy(2)


def test_an_update_is_told_the_environment_steps_and_its_state_keeps_none() -> None:
    toy = _toy(1)
    decay = TOY_UPDATE._replace(learning_rate=LinearDecay(0.5, decay_steps=1000))
    decaying = _setting(TOY._replace(update=decay, epochs=2), toy.num_devices)
    for env_steps, left in ((0, 1.0), (250, 0.75), (4000, 0.0)):
        memory = toy.memory(_sequence(TOY))
        state, _, numbers = decaying.programs.learn(toy.state, memory, (), np.float32(env_steps))
        assert fetched(numbers)["learning_rate"] == pytest.approx(0.5 * left)
        assert (float(state.params) == float(toy.state.params)) == (not left)
        assert jax.tree.structure(state) == jax.tree.structure(toy.state)


def test_an_infinite_gradient_of_a_finite_loss_is_skipped(toy: Setting) -> None:
    memory = toy.memory(_sequence(TOY))
    state = toy.state._replace(params=np.float32(0.0))
    after, after_memory, metrics = _learn(toy, state, memory)
    assert np.isfinite(metrics["loss"])
    assert metrics["skipped_updates"] == 1.0
    _assert_same(after._replace(key=state.key), state)
    _assert_same(after_memory, memory._replace(priorities=np.zeros_like(memory.priorities)))


def test_what_is_guarded_and_not_finite_on_one_device_is_skipped_on_all() -> None:
    def forgetful(*arguments: Any, mean: Any) -> Any:
        state, output = TOY_UPDATE(*arguments, mean=mean)
        rewards = arguments[1].steps.timestep.reward
        return state._replace(params=state.params + 1), output._replace(guarded=rewards[0].sum())

    def update_statistics(state: Any, sequence: Sequence, weights: Any, mean: Any) -> Any:
        return state, sequence.steps.timestep.reward[1].sum()

    setting = _setting(TOY._replace(update=forgetful, update_statistics=update_statistics), 2)
    for row, skipped in ((0, 1.0), (1, 1.0), (2, 0.0)):  # the update's, after it, nobody's
        sequence = _sequence(TOY)
        sequence.steps.timestep.reward[row, 0] = np.inf  # of the first device only
        after, memory, metrics = _learn(setting, setting.state, setting.memory(sequence))
        assert metrics["skipped_updates"] == skipped
        assert (after.params == setting.state.params) == (skipped == 1.0)
        assert memory.priorities.any() == (skipped == 0.0)


@pytest.mark.parametrize("minibatches", [pytest.param(1, marks=pytest.mark.gate), 2])
def test_a_sequence_has_the_largest_priority_of_its_chunks(minibatches: int) -> None:
    def doubled(state: AgentState, sequence: Sequence, weights: Array) -> tuple[Sequence, Array]:
        timestep = sequence.steps.timestep
        second = timestep._replace(reward=timestep.reward + jnp.arange(B)[None])
        chunks = [sequence.steps, sequence.steps._replace(timestep=second)]
        steps = jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis=1), *chunks)
        carry = jax.tree.map(lambda leaf: jnp.concatenate([leaf] * 2), sequence.carry)
        return Sequence(steps, carry), jnp.tile(weights, 2)

    setting = _setting(TOY._replace(chunks=2, minibatches=minibatches, preprocess_batch=doubled), 1)
    _, memory, _ = _learn(setting, setting.state, setting.memory(_sequence(TOY)))
    rewards = _sequence(TOY).steps.timestep.reward
    largest = (rewards + np.arange(B)[None]).sum(axis=0)
    np.testing.assert_allclose(memory.priorities[0, ::-1], largest, rtol=1e-5)


def test_a_metric_of_an_agent_must_not_be_called_as_one_of_the_run() -> None:
    never: Any = None
    assert set(_reduced({}, never)) == set()
    metrics = {"loss": jnp.zeros(()), "frames": jnp.zeros(()), "env_steps": jnp.zeros(())}
    with pytest.raises(ConfigError) as caught:
        _reduced(metrics, never)
    assert "env_steps" in str(caught.value)


@pytest.mark.parametrize("devices", [1, 2])
def test_a_metric_is_of_the_devices_that_measured_it(devices: int) -> None:
    def numbers(value: Array) -> dict[str, Array]:
        over = over_devices(jnp.bool_(True), AXIS)
        return _reduced({"size": value, "size_max": -value}, over)

    mapped = jax.pmap(numbers, axis_name=AXIS, devices=jax.devices()[:devices])
    for measured in ([1.0, 4.0], [math.nan, 4.0], [math.nan, math.nan]):
        values = np.float32(measured[-devices:])
        found = mapped(values)
        expected = values[~np.isnan(values)]
        mean, largest = (expected.mean(), -expected.min()) if expected.size else (np.nan, np.nan)
        np.testing.assert_array_equal(found["size"], np.full(devices, mean))
        np.testing.assert_array_equal(found["size_max"], np.full(devices, largest))


def test_minibatches_must_be_of_equal_size() -> None:
    for chunks in (1, 2):
        with pytest.raises(ConfigError) as caught:
            _setting(TOY._replace(minibatches=3, chunks=chunks), 2)
        assert "learning.batch_sequences" in str(caught.value)
    with pytest.raises(ConfigError, match="multiple of 3 on each device, to divide it into 12 "):
        _setting(TOY._replace(minibatches=12, chunks=4), 1)


def test_weights_are_relative_to_the_largest_of_all_devices(toy: Setting) -> None:
    sequence = _sequence(TOY)
    sequence.steps.timestep.reward[:] = 0.0
    sequence.steps.timestep.reward[0] = 1.0
    after, _, metrics = _learn(toy, toy.state, toy.memory(sequence))
    # P halves from sequence to sequence, and the last is the rarest: w = 2^(-0.6 (7 - i)).
    mean_weight = np.mean(0.5 ** (0.6 * np.arange(B)[::-1]))
    np.testing.assert_allclose(metrics["gradient_norm"], mean_weight * 1.25, rtol=1e-6)
    np.testing.assert_allclose(after.params, 4.0 - 0.5 * mean_weight * 1.25, rtol=1e-6)


def test_the_target_sees_the_number_of_this_update(toy: Setting) -> None:
    state = toy.state
    for before, expected in ((0, 101), (101, 203), (203, 306)):
        state, _, metrics = _learn(toy, state, toy.memory(_sequence(TOY)))
        assert metrics["target"] == before  # what the loss was given
        assert state.target == expected
    assert state.updates == 3


def test_every_update_draws_anew_and_from_the_state_alone(toy: Setting) -> None:
    def draws(state: LearnerState) -> list[float]:
        found = []
        for _ in range(3):
            state, _, metrics = _learn(toy, state, toy.memory(_sequence(TOY)))
            found.append(metrics["draw"])
            # Each device draws by itself: the mean of two is not the larger one.
            assert metrics["draw"] != metrics["draw_max"]
        return found

    first = draws(toy.state)
    assert len(set(first)) == 3
    assert draws(toy.state) == first


# --- epochs over one batch ---

WEIGHTS = jnp.linspace(0.1, 0.8, B)


def _counting_update(
    state: AgentState, sequence: Sequence, weights: Array, key: Array
) -> tuple[AgentState, UpdateOutput]:
    """Counts, per sequence, how often it was trained and with what weight; `extras` is the pass."""
    number = sequence.steps.action[-1]
    counted = {
        "times": state.params["times"].at[number].add(1),
        "weight": state.params["weight"].at[number].add(weights),
        "carry": state.params["carry"].at[sequence.carry["number"]].add(1),
        "draws": state.params["draws"].at[state.extras].set(jax.random.uniform(key)),
    }
    metrics = {"pass": state.extras, "pass_max": state.extras, "size": jnp.int32(number.size)}
    output = UpdateOutput(metrics, (state.extras,), number + 100.0 * state.extras)
    return state._replace(params=counted, extras=state.extras + 1), output


def _uncounted(num_passes: int) -> AgentState:
    params = {
        "times": jnp.zeros(B, jnp.int32),
        "weight": jnp.zeros(B),
        "carry": jnp.zeros(B, jnp.int32),
        "draws": jnp.zeros(num_passes),
    }
    return AgentState(params, (), (), jnp.int32(0), extras=jnp.int32(0))


def _run(update: Any, state: AgentState, epochs: int, minibatches: int) -> Any:
    # Sequence b has its number in every row and in its carry.
    numbers = jnp.broadcast_to(jnp.arange(B), (3, B))
    sequence = Sequence(StoredStep((), numbers, (), ()), carry={"number": jnp.arange(B)})
    arguments = state, sequence, WEIGHTS, jax.random.PRNGKey(0)
    return run_epochs(update, *arguments, epochs=epochs, minibatches=minibatches)


@pytest.mark.parametrize(
    ("epochs", "minibatches"), [pytest.param(3, 1, marks=pytest.mark.gate), (3, 4)]
)
def test_each_epoch_trains_each_sequence_once(epochs: int, minibatches: int) -> None:
    num_passes = epochs * minibatches
    state, output = jax.jit(
        lambda: _run(_counting_update, _uncounted(num_passes), epochs, minibatches)
    )()
    assert state.extras == num_passes
    np.testing.assert_array_equal(state.params["times"], np.full(B, epochs))
    np.testing.assert_array_equal(state.params["carry"], np.full(B, epochs))
    np.testing.assert_allclose(state.params["weight"], epochs * WEIGHTS, rtol=1e-6)
    assert len(set(state.params["draws"].tolist())) == num_passes  # a key of its own each
    assert output.metrics["size"] == B // minibatches
    assert output.metrics["pass"] == np.mean(np.arange(num_passes))
    assert output.metrics["pass_max"] == num_passes - 1
    np.testing.assert_array_equal(output.guarded[0], np.arange(num_passes))
    # Each sequence has the priority that the last epoch gave it.
    assert output.priorities.dtype == jnp.float32
    np.testing.assert_array_equal(output.priorities % 100, np.arange(B))
    assert output.priorities.min() >= 100 * (num_passes - minibatches)
