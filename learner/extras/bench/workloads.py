"""What is measured: bundled configurations, scaled to what a short measurement can show.

And the limits of its parts: the learner's compiled programs without its threads.
"""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from learner.acting.act_step import example_page, example_timestep
from learner.build import plan_geometry, scale
from learner.learning.device_mapping import map_programs, replicate, stack_shards
from learner.learning.learn_step import build_learn_programs
from learner.learning.loop import fetched
from learner.learning.page_routing import insert_parcels, parcels
from seedrl import config_io
from seedrl.agents.r2d2 import R2D2Config
from seedrl.config import Config, EnvironmentConfig, LaunchConfig, LearningConfig, ServingConfig
from seedrl.fields import with_fields
from seedrl.networks.config import QNetworkConfig
from seedrl.networks.network import NetworkInput
from seedrl.replay.prioritized import ReplayConfig
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec
from seedrl.types import Page

# Steps of a run whose end no measurement reaches.
ENDLESS = 10**15
_PAGES_PER_INSERT = 16


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A configuration, and its environment's spec, so that no environment need be built."""

    name: str
    config: Config
    spec: EnvSpec


def pong() -> Workload:
    """Pong as one accelerator would learn it: Atari's 84 x 84 pixels, and less work than the paper.

    Sequences are shorter than those of `atari_r2d2` and the core is smaller.
    """
    network = QNetworkConfig(
        torso="nature", torso_sizes=(512,), core_size=256, head_sizes=(256,), frame_stack=4
    )
    config = Config(
        environment=EnvironmentConfig(id="ALE/Pong-v5", vectorization="atari", frames_per_step=4),
        agent=R2D2Config(network=network, burn_in=20, unroll=40, stride=20, learning_rate=3e-4),
        serving=ServingConfig(training_slots=64, evaluation_slots=8),
        replay=ReplayConfig(capacity_steps=200_000, min_steps=10_240, ratio=2.0),
        learning=LearningConfig(batch_sequences=32, keep_freed_memory=True),
    )
    spec = EnvSpec(ArraySpec((84, 84), "uint8"), DiscreteSpec(6))
    return Workload(name="Pong", config=config, spec=spec)


def cartpole() -> Workload:
    """CartPole with the settings of `cartpole_r2d2`."""
    spec = EnvSpec(ArraySpec((4,), "float32"), DiscreteSpec(2))
    return Workload(name="CartPole", config=config_io.load("cartpole_r2d2"), spec=spec)


def scaled(
    workload: Workload,
    *,
    capacity_steps: int,
    min_steps: int | None = None,
    batch_sequences: int | None = None,
    launch: LaunchConfig | None = None,
) -> Workload:
    """The workload with another size of replay, of batches and of its fleet, at replay ratio 1.

    Every slot explores at random, whatever the network computes, so that episodes are as long as
    with random actions.
    """
    config = workload.config
    changes = {
        "agent.exploration_base": 1.0,
        "agent.exploration_alpha": 0.0,
        "replay.capacity_steps": capacity_steps,
        "replay.min_steps": min_steps or config.replay.min_steps,
        "replay.ratio": 1.0,
        "learning.batch_sequences": batch_sequences or config.learning.batch_sequences,
        "learning.num_devices": 1,  # the limits are those of one device, too
        "learning.total_steps": ENDLESS,
        "launch": launch or config.launch,
    }
    return dataclasses.replace(workload, config=with_fields(config, changes))


def bare_forward(workload: Workload, rows: int) -> Callable[[], int]:
    """A forward pass over `rows` rows that are on the device already; it returns `rows`."""
    network = workload.config.agent.network.build(workload.spec)
    params = jax.jit(network.init)(jax.random.PRNGKey(0))
    carry = network.initial_carry(rows)
    timestep = example_timestep(workload.spec)
    inputs = NetworkInput(
        observation=jax.tree.map(
            lambda leaf: jnp.zeros((1, rows, *leaf.shape), leaf.dtype), timestep.observation
        ),
        previous_action=jnp.zeros((1, rows), jnp.int32),
        reward=jnp.zeros((1, rows), jnp.float32),
        is_first=jnp.zeros((1, rows), bool),
    )
    # Like the act step without its tables: what remains is the network.
    program = jax.jit(network.unroll)

    def step() -> int:
        jax.block_until_ready(program(params, carry, inputs))
        return rows

    step()  # compiles
    return step


class BareUpdate:
    """Owns a learner state and a replay full of random experience. Used by one thread."""

    def __init__(self, workload: Workload):
        config = workload.config
        geometry = plan_geometry(config)
        batch = config.learning.batch_sequences
        agent = config.agent.build(workload.spec)
        page = example_page(agent, workload.spec, geometry.page_steps)
        experience = config.replay.build(
            agent.window,
            page=page,
            initial_priorities=agent.initial_priorities,
            scale=scale(config, geometry),
        )
        programs = build_learn_programs(agent, experience.memory, batch_per_device=batch)
        self._programs = map_programs(programs, geometry.devices)
        # Replicated as in a run: the update is compiled for that layout.
        state = jax.jit(programs.init)(jax.random.PRNGKey(config.seed))
        self._state = replicate(state, geometry.devices)
        self._memory = stack_shards(lambda: experience.memory.init(page), geometry.devices)
        # The same pages again and again: sampling does not look at them.
        index, pages = experience.index(), random_pages(page, _PAGES_PER_INSERT)
        while index.fill < 1.0 and index.has_room(_PAGES_PER_INSERT):
            sent = parcels(
                range(_PAGES_PER_INSERT), [0] * _PAGES_PER_INSERT, num_rows=_PAGES_PER_INSERT
            )
            planned = [(parcel, index.plan(parcel.streams)) for parcel in sent]
            self._memory = insert_parcels(self._programs, self._memory, pages, planned)
        # Of an on-policy queue one batch is learned again and again: its host forgets what it has
        # handed out, its memory on the device does not.
        self._draw = jax.tree.map(lambda leaf: leaf[None], index.draw())
        ratio = getattr(config.replay, "ratio", None)
        rows = agent.window.length if ratio is None else agent.window.unroll
        # Environment steps that one update makes up for, at the workload's replay ratio.
        self.steps = batch * rows / (ratio or 1.0)

    def learn(self) -> float:
        self.update()
        return self.steps

    def update(self) -> Mapping[str, float]:
        """One update; returns its metrics, once they are there."""
        self._state, self._memory, numbers = self._programs.learn(
            self._state, self._memory, self._draw, np.float32(0)
        )
        return fetched(numbers)


def random_pages(page: Page, num_pages: int) -> Page:
    """Pages without structure: nothing about them can be compressed, skipped or predicted."""
    random = np.random.default_rng(0)

    def fill(leaf: jax.ShapeDtypeStruct) -> np.ndarray:
        shape = (num_pages, *leaf.shape)
        if np.issubdtype(leaf.dtype, np.floating):
            return random.standard_normal(shape, np.float32).astype(leaf.dtype)
        return random.integers(0, 256 if leaf.dtype == np.uint8 else 2, shape).astype(leaf.dtype)

    pages: Page = jax.tree.map(fill, page)
    timestep = pages.steps.timestep
    ordinary = timestep._replace(
        # MID: an episode that never ends lets every sequence be drawn
        step_type=np.ones_like(timestep.step_type),
        discount=np.ones_like(timestep.discount),
    )
    return pages._replace(steps=pages.steps._replace(timestep=ordinary))
