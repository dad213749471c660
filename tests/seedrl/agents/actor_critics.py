"""What actor-critic agents are tried on: a network with memory, and streams it has acted on."""

import functools
from typing import Any

import jax
import numpy as np

from seedrl.agents.agent import Agent, AgentState, UpdateOutput
from seedrl.agents.inputs import inputs_of_sequence
from seedrl.networks.config import ActorCriticConfig
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec
from seedrl.types import Sequence, StepType, StoredStep, TimeStep
from tests.seedrl.random_parameters import random_parameters

FIRST, MID, LAST = StepType.FIRST, StepType.MID, StepType.LAST
SPEC = EnvSpec(
    {"image": ArraySpec((3, 3), "uint8"), "speed": ArraySpec((2,), "float32")}, DiscreteSpec(3)
)
# No dense layers: what agents give it and take from it would be the same.
NETWORK = ActorCriticConfig(torso="mlp", torso_sizes=(), core_size=5, frame_stack=3)
ROWS, B = 14, 3
# Of both agents, for their losses.
SETTINGS: dict[str, Any] = {
    "network": NETWORK,
    "unroll": 6,
    "gamma": 0.9,
    "entropy_cost": 0.03,
    "reward_scale": 2.0,
    "reward_clip": 1.0,
}
# Of one observation, which looks the same at every step.
PLAIN_SPEC = EnvSpec(ArraySpec((1,), "float32"), DiscreteSpec(2))
PLAIN_NETWORK = ActorCriticConfig(torso="mlp", torso_sizes=(), core="none", head_sizes=())


def jitted(agent: Agent) -> tuple[Agent, Any]:
    """The agent with jitted functions, and parameters whose policy is far from uniform."""
    update: Any = agent.update
    loss_and_gradient = jax.jit(jax.value_and_grad(loss_at_start(agent), has_aux=True))
    agent = agent._replace(
        act=jax.jit(agent.act),
        initial_carry=jax.jit(agent.initial_carry, static_argnums=0),
        preprocess_batch=jax.jit(agent.preprocess_batch),
        update=update._replace(loss=loss_and_gradient),
    )
    return agent, random_parameters(agent.init)


def loss_at_start(agent: Agent) -> Any:
    """The loss before anything has decayed."""
    update: Any = agent.update
    costs = {name: decay.start for name, decay in update.scheduled.items()}
    return functools.partial(update.loss, **costs)


def updated(agent: Agent, state: AgentState, sequence: Sequence) -> tuple[AgentState, UpdateOutput]:
    """One pass over all of a batch `[T, B]`, on one device."""
    batch = agent.preprocess_batch(state, sequence, np.ones(B, np.float32))
    return agent.update(state, *batch, jax.random.key(3), mean=lambda tree: tree)


@functools.cache
def unroll() -> Any:
    """What the network says of all rows of a sequence, compiled once."""
    network = NETWORK.build(SPEC)

    def said(params: Any, sequence: Sequence) -> Any:
        return network.unroll(params, sequence.carry.network, inputs_of_sequence(sequence))[0]

    return jax.jit(said)


def random_timesteps() -> TimeStep:
    """Three streams: episodes that terminate and are truncated, and one that never ends."""
    random = np.random.default_rng(5)
    types = np.full((ROWS, B), MID, np.uint8)
    types[0] = FIRST
    discount = np.ones((ROWS, B), np.float32)
    for row, stream, is_terminated in ((4, 0, True), (9, 0, False), (6, 1, False)):
        types[row : row + 2, stream] = [LAST, FIRST]
        discount[row, stream] = 1 - is_terminated
    reward = np.where(types == FIRST, 0, random.normal(size=types.shape)).astype(np.float32)
    observation = {
        "image": random.integers(0, 256, (ROWS, B, 3, 3), dtype=np.uint8),
        "speed": random.normal(size=(ROWS, B, 2)).astype(np.float32),
    }
    return TimeStep(types, reward, discount, observation)


def acted(
    agent: Agent, params: Any, timesteps: TimeStep | None = None
) -> tuple[StoredStep, list[Any]]:
    """A stream acted on step by step, and the carry before every row."""
    timesteps = random_timesteps() if timesteps is None else timesteps
    exploration = np.ones(B, np.float32)
    carry, carries, actions, extras = agent.initial_carry(B), [], [], []
    for row in range(ROWS):
        carries.append(carry)
        timestep = jax.tree.map(lambda leaf, row=row: leaf[row], timesteps)
        output = agent.act(params, carry, timestep, exploration, jax.random.key(row))
        carry = output.carry
        actions.append(output.action)
        extras.append(output.extras)
    stored = jax.tree.map(lambda *rows: np.stack(rows), *extras)
    versions = np.zeros((ROWS, B), np.int32)
    return StoredStep(timesteps, np.stack(actions), versions, stored), carries


def window_of(stream: tuple[StoredStep, list[Any]], start: int, length: int) -> Sequence:
    """The sequence that begins in this row."""
    steps, carries = stream
    return Sequence(jax.tree.map(lambda leaf: leaf[start : start + length], steps), carries[start])


@functools.cache
def built(config: Any) -> tuple[Agent, Any]:
    return jitted(config.build(SPEC))


@functools.cache
def stream(config: Any) -> tuple[StoredStep, list[Any]]:
    return acted(*built(config))


def window_at(config: Any, start: int) -> Sequence:
    return window_of(stream(config), start, config.window.length)


@functools.cache
def outputs_at(config: Any, start: int) -> Any:
    """What the network says of all rows of a window, float64."""
    output = unroll()(built(config)[1], window_at(config, start))
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), output)


def of_another_policy(sequence: Sequence, difference: float) -> Sequence:
    """As if a policy had acted that thought otherwise of each action, and of each row."""
    random = np.random.default_rng(2)
    extras = jax.tree.map(
        lambda leaf: leaf + np.float32(difference * random.normal(size=leaf.shape)),
        sequence.steps.extras,
    )
    return sequence._replace(steps=sequence.steps._replace(extras=extras))
