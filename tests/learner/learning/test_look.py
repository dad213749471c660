"""A look into a real, small replay: what it finds, and that nothing changes by it."""

from typing import Any

import jax
import numpy as np
import pytest

from learner.learning.device_mapping import map_programs
from learner.learning.learn_step import build_learn_programs
from learner.learning.look import compile_look, take_look
from learner.threads.shapes import shapes_of
from seedrl.agents.r2d2 import R2D2Config
from seedrl.agents.window import WindowSpec
from seedrl.networks.q_network import QNetworkConfig
from seedrl.replay.experience import unknown_stream
from seedrl.replay.index import PageIndex
from seedrl.replay.replay import paged_replay, prioritized_memory
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec
from seedrl.types import Page, StoredStep, TimeStep

SPEC = EnvSpec(ArraySpec((3,), "float32"), DiscreteSpec(2))
NETWORK = QNetworkConfig(torso="mlp", torso_sizes=(), core="gru", core_size=4, frame_stack=1)
AGENT = R2D2Config(network=NETWORK, burn_in=0, unroll=2, n_steps=1, stride=2).build(SPEC)
WINDOW = WindowSpec(burn_in=0, unroll=2, bootstrap=0, stride=2)
PRIORITIES = (1.0, 3.0)


def pages() -> Page:
    """Two pages of two steps, `[2, K, ...]`: rewards 0, 1 and 10, 11; priorities in the extras."""
    reward = np.array([[0, 1], [10, 11]], np.float32)
    ones = np.ones_like(reward)
    timestep = TimeStep(ones.astype(np.uint8), reward, ones, reward[..., None])
    extras = np.array([[p, p] for p in PRIORITIES], np.float32)
    return Page(StoredStep(timestep, ones.astype(np.int32), ones.astype(np.int32), extras), ())


@pytest.fixture(scope="module")
def parts() -> tuple[Any, Any, PageIndex]:
    replay = paged_replay(
        window=WINDOW,
        page_steps=2,
        capacity_pages=4,
        priority_exponent=0.5,
        initial_priorities=lambda steps: steps.extras[0],
    )
    memory = prioritized_memory(replay, batch_per_device=8, num_devices=1, importance_exponent=0.6)
    index = PageIndex(capacity_pages=4, window=WINDOW, page_steps=2)
    example = jax.tree.map(lambda leaf: leaf[0], pages())
    state = jax.jit(replay.insert)(jax.jit(replay.init)(example), pages(), index.plan([6, 9]))
    programs = map_programs(
        build_learn_programs(AGENT, memory, batch_per_device=8), jax.devices()[:1]
    )
    # As learning keeps it: a shard on each device.
    stacked = jax.tree.map(lambda leaf: np.stack([leaf, np.zeros_like(leaf)]), state)
    return programs, jax.pmap(lambda shard: shard, devices=jax.devices()[:2])(stacked), index


def test_a_look_finds_what_is_stored_and_where_it_is_from(
    parts: tuple[Any, Any, PageIndex],
) -> None:
    programs, state, index = parts
    before = jax.tree.map(np.array, state)
    compiled = compile_look(programs, shapes_of(state), (), 8)
    look = take_look(compiled, state, index, PageIndex.stream_of, 70)
    rewards = look.steps.timestep.reward
    assert look.updates == 70 and rewards.shape == (2, 8)
    assert set(map(tuple, rewards.T.tolist())) == {(0, 1), (10, 11)}
    masses = {6: PRIORITIES[0] ** 0.5, 9: PRIORITIES[1] ** 0.5}
    mean = sum(masses.values()) / 2
    for number, stream in enumerate(look.streams):
        assert rewards[0, number] == (0 if stream == 6 else 10)
        assert look.about["priority^α"][number] == pytest.approx(masses[stream])
        relative = look.about["draws relative to the mean"][number]
        assert relative == pytest.approx(masses[stream] / mean)
    assert look.about["weight"].max() == 1
    jax.tree.map(np.testing.assert_array_equal, before, jax.tree.map(np.array, state))
    # Each look draws for itself, and an index may not know of streams.
    other = [take_look(compiled, state, index, unknown_stream, 70) for _ in range(20)]
    assert len({tuple(found.steps.timestep.reward[0]) for found in other}) > 1
    assert other[0].streams == [-1] * 8


def test_a_replay_of_which_a_look_would_take_is_refused(parts: tuple[Any, Any, PageIndex]) -> None:
    programs, state, _ = parts
    with pytest.raises(ValueError, match="hands out what it draws"):
        compile_look(programs, shapes_of(state), np.zeros(3, np.int32), 1)


def test_pages_that_were_restored_are_of_no_known_stream() -> None:
    index = PageIndex(capacity_pages=2, window=WINDOW, page_steps=2)
    assert index.stream_of(0) == -1
    index.plan([5, 6, 7][:2])
    index.plan([7])
    assert [index.stream_of(page) for page in (0, 1)] == [7, 6]
    other = PageIndex(capacity_pages=2, window=WINDOW, page_steps=2)
    other.restore(index.state())
    assert other.stream_of(0) == -1
