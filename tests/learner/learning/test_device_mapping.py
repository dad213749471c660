"""What lies on which device, and what stays where it is."""

from itertools import chain
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from learner.learning.device_mapping import (
    MappedPrograms,
    map_programs,
    replicate,
    require_state_memory,
    require_update_memory,
    stack_shards,
    update_bytes,
)
from learner.learning.learn_step import LearnerState, build_learn_programs
from learner.learning.loop import fetched
from learner.learning.page_routing import Parcel, insert_parcels, owners, parcels
from seedrl.agents.agent import Agent
from seedrl.agents.gradient_update import GradientUpdate, LossOutput
from seedrl.agents.window import WindowSpec
from seedrl.errors import ConfigError
from seedrl.replay.buffer import ReplayState, paged_replay, prioritized_memory
from seedrl.replay.experience import Scale
from seedrl.replay.index import PageIndex, by_slot
from seedrl.types import Array, Page, Sequence, StoredStep, TimeStep, Tree

K, P = 2, 4  # steps of a page, pages of a shard
WINDOW = WindowSpec(burn_in=0, unroll=2, bootstrap=0, stride=2)


def _loss(
    params: Tree, target: Tree, sequence: Sequence, weights: Array, key: Array
) -> tuple[Array, LossOutput]:
    observation = sequence.steps.timestep.observation
    loss = jnp.mean(weights * jnp.sum((observation.mean(axis=0) - params[None]) ** 2, axis=-1))
    return loss, LossOutput(observation.sum(axis=(0, 2)), {})


UPDATE = GradientUpdate(
    _loss,
    optax.adam(0.01),
    init_target=jnp.copy,
    update_target=lambda params, target, updates: jnp.where(updates % 2 == 0, params, target),
)
AGENT = Agent(
    window=WINDOW,
    init=lambda key: jnp.zeros(64),
    initial_carry=lambda size: (),
    act=lambda *_: None,  # type: ignore[arg-type, return-value]
    exploration=lambda size: np.zeros(size),
    evaluation_exploration=0.0,
    init_state=UPDATE.init_state,
    update=UPDATE,
    initial_priorities=lambda steps: jnp.ones(steps.action.shape[1]),
)


class Setting(NamedTuple):
    devices: list[jax.Device]
    programs: MappedPrograms
    state: LearnerState
    replay: ReplayState
    indices: list[PageIndex]


@pytest.fixture(scope="module", params=[pytest.param(1, marks=pytest.mark.gate), 4])
def begun(request: pytest.FixtureRequest) -> Setting:
    """What all tests begin with; programs would consume it."""
    devices = jax.local_devices()[: request.param]
    replay = paged_replay(
        window=WINDOW,
        page_steps=K,
        capacity_pages=P,
        priority_exponent=1.0,
        initial_priorities=AGENT.initial_priorities,
    )
    per_device = build_learn_programs(
        AGENT,
        prioritized_memory(replay, batch_per_device=2, importance_exponent=0.5),
        batch_per_device=2,
    )
    page = jax.tree.map(lambda leaf: leaf[0], _pages([0.0]))
    return Setting(
        devices,
        map_programs(per_device, devices),
        # As a session begins: else the first update would be a program of its own.
        replicate(jax.jit(per_device.init)(jax.random.PRNGKey(0)), devices),
        stack_shards(lambda: replay.init(page), devices),
        [],
    )


@pytest.fixture
def setting(begun: Setting) -> Setting:
    """A copy, with indices of its own."""
    state, replay = jax.tree.map(
        lambda leaf: jax.device_put(np.array(leaf), leaf.sharding), (begun.state, begun.replay)
    )
    indices = [PageIndex(capacity_pages=P, window=WINDOW, page_steps=K) for _ in begun.devices]
    return begun._replace(state=state, replay=replay, indices=indices)


def _pages(marks: list[float]) -> Page:
    """Pages whose observations are all `mark`."""
    size = len(marks)
    observation = np.broadcast_to(np.array(marks, np.float32)[:, None, None], (size, K, 64))
    timestep = TimeStep(
        np.ones((size, K), np.uint8),
        np.zeros((size, K), np.float32),
        np.ones((size, K), np.float32),
        np.ascontiguousarray(observation),
    )
    numbers = np.zeros((size, K), np.int32)
    return Page(StoredStep(timestep, numbers, numbers, ()), ())


def _insert(setting: Setting, replay: ReplayState, marks: list[float]) -> ReplayState:
    """Inserts one page on each shard; `marks[i]` goes to shard i."""
    shards = range(len(marks))
    planned = [
        (parcel, setting.indices[parcel.shard].plan(parcel.streams))
        for parcel in parcels(shards, shards, num_rows=len(marks), sizes=[1, 4])
    ]
    inserted: ReplayState = insert_parcels(setting.programs, replay, _pages(marks), planned)
    return inserted


def _marks(setting: Setting, base: float) -> list[float]:
    return [base + shard for shard in range(len(setting.devices))]


def _pointers(tree: Tree) -> list[list[int]]:
    return [
        [shard.data.unsafe_buffer_pointer() for shard in leaf.addressable_shards]
        for leaf in jax.tree.leaves(tree)
    ]


def test_learning_leaves_the_replay_and_the_parameters_where_they_are(setting: Setting) -> None:
    state, replay = setting.state, _insert(setting, setting.replay, _marks(setting, 1.0))
    state, replay, _ = setting.programs.learn(state, replay, (), np.float32(0))
    before = _pointers(replay.pages), _pointers((state.params, state.optimizer))
    state, replay, _ = setting.programs.learn(state, replay, (), np.float32(0))
    assert _pointers(replay.pages) == before[0]
    after = _pointers((state.params, state.optimizer))
    assert sorted(chain(*after)) == sorted(chain(*before[1]))


def test_new_priorities_replace_those_of_the_sequences_drawn(setting: Setting) -> None:
    replay = setting.replay
    for base in (10.0, 20.0):
        replay = _insert(setting, replay, _marks(setting, base))
    state, replay, numbers = setting.programs.learn(setting.state, replay, (), np.float32(0))
    # Two draws from two equal masses, one from each half: each page once, on every shard.
    for shard, mass in enumerate(np.asarray(replay.sampling_weight)):
        expected = [K * 64 * (10.0 + shard), K * 64 * (20.0 + shard), 0.0, 0.0]
        np.testing.assert_allclose(mass, expected)
    assert fetched(numbers)["skipped_updates"] == 0.0
    assert int(state.updates) == 1


def test_published_parameters_outlive_the_update_that_consumes_the_original(
    setting: Setting,
) -> None:
    state, replay = setting.state, _insert(setting, setting.replay, _marks(setting, 1.0))
    state, replay, _ = setting.programs.learn(state, replay, (), np.float32(0))
    expected = np.array(state.params.addressable_data(0))
    (copy,) = setting.programs.publish(jax.tree.map(setting.programs.local_part, state.params))
    assert copy.devices() == {setting.devices[0]}
    assert copy.unsafe_buffer_pointer() not in _pointers(state.params)[0]
    state, replay, _ = setting.programs.learn(state, replay, (), np.float32(0))
    np.testing.assert_array_equal(copy, expected)
    assert (np.asarray(state.params) != expected).any()


def test_pages_go_to_the_shard_of_their_slot_padded_to_a_compiled_size() -> None:
    indices = [PageIndex(capacity_pages=P, window=WINDOW, page_steps=K) for _ in range(2)]
    assert owners(indices, by_slot, [0, 1, 2, 3], stale=(2,)) == [0, 1, -1, 1]
    sent = parcels([10, 11, 12, 13, 14], [1, 0, 1, 3, 1], num_rows=8, sizes=[1, 4, 8])
    assert sent == [
        Parcel(0, [1], [11]),
        Parcel(1, [0, 2, 4, 0], [10, 12, 14, -1]),
        Parcel(3, [3], [13]),
    ]


# --- memory ---


def _scale(device_bytes: int) -> Scale:
    return Scale(2, 16, 4, device_bytes, "some device")


def test_what_is_donated_counts_once_and_on_each_device() -> None:
    program: Any = jax.pmap(
        lambda state, stored: (state + 1, stored * 2),
        in_axes=(None, 0),
        out_axes=(None, 0),
        donate_argnums=(0, 1),
        devices=jax.devices()[:2],
    )
    state, stored = jnp.zeros(100, jnp.float32), jnp.zeros((2, 50), jnp.float32)
    needed = update_bytes(program.lower(state, stored).compile())
    assert needed is not None and 4 * 150 <= needed < 4 * 200


def test_an_update_that_no_device_has_memory_for_is_refused_by_field() -> None:
    needs = SimpleNamespace(
        argument_size_in_bytes=5 * 2**30,
        output_size_in_bytes=3 * 2**30,
        alias_size_in_bytes=2 * 2**30,
        temp_size_in_bytes=4 * 2**30,
    )
    compiled = SimpleNamespace(memory_analysis=lambda: needs)
    require_update_memory(compiled, _scale(10 * 2**30), 0)
    with pytest.raises(ConfigError) as caught:
        require_update_memory(compiled, _scale(10 * 2**30), 1)
    assert "learning.batch_sequences" in str(caught.value)


def test_parameters_that_no_device_has_memory_for_are_refused_before_they_are_made() -> None:
    shapes = {"a": jax.ShapeDtypeStruct((2**20, 1024), jnp.float32), "b": jax.random.key(0)}
    require_state_memory(shapes, _scale(5 * 2**30))
    with pytest.raises(ConfigError) as caught:
        require_state_memory(shapes, _scale(4 * 2**30))
    assert "agent" in str(caught.value)
