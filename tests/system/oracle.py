"""An agent whose every output can be computed by hand, and what replay must then hold.

With the counting environment, everything in a stream follows from its seed: the observation says
where it is, the reward hashes the action received, and this agent's carry hashes all that it has
seen and done since the episode began. So any row that is swapped, shifted, doubled, lost, stitched
to another stream or acted on with another carry differs from what `predict` says.
"""

import functools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax
from seedrl_plugin.counting import code_of, reward_of

from seedrl.agents.agent import ActOutput, Agent
from seedrl.agents.gradient_update import GradientUpdate, LossOutput
from seedrl.agents.window import WindowSpec
from seedrl.config import EnvironmentConfig
from seedrl.specs import DiscreteSpec, EnvSpec, MultiDiscreteSpec
from seedrl.types import Array, Sequence, StepType, TimeStep, Tree

# Bounds of two real actions: rescaling to them is exact, and takes each of them elsewhere.
BOX = ((-2.0, 6.0), (0.0, 0.5))
# How many actions there are of a kind: of one choice, of several at once, or those of BOX if none.
Actions: TypeAlias = int | tuple[int, ...]
START = 0x811C_9DC5
_FACTOR = 0x9E37_79B1
_MASK = 0xFFFF_FFFF


def exploration(num_slots: int) -> np.ndarray:
    """A number for each training slot, so that rows tell which one they were acted on as."""
    return (0.25 + np.arange(num_slots) / 64).astype(np.float32)


@dataclass(frozen=True, kw_only=True)
class HashingAgent:
    """Acts by hashing; its parameters count the updates and sum up the rewards trained on."""

    window: WindowSpec

    def build(self, spec: EnvSpec) -> Agent:
        """The agent, for the counting environment."""
        if isinstance(spec.action, DiscreteSpec):
            choose = functools.partial(_choose, spec.action.num_actions)
        elif isinstance(spec.action, MultiDiscreteSpec):
            choose = functools.partial(_choose_several, spec.action.counts)
        else:
            choose = _choose_in_box
        update = GradientUpdate(
            functools.partial(_loss, self.window),
            optax.GradientTransformation(lambda params: (), _count_and_add),
        )
        return Agent(
            window=self.window,
            init=lambda key: {"version": jnp.zeros(()), "seen": jnp.zeros(())},
            initial_carry=lambda batch_size: jnp.zeros(batch_size, jnp.uint32),
            act=functools.partial(_act, choose),
            exploration=exploration,
            evaluation_exploration=0.0,
            init_state=update.init_state,
            update=update,
            initial_priorities=lambda steps: priority(steps.extras["hash"][0], is_initial=True),
        )


def priority(first_hash: Array, *, is_initial: bool) -> Array:
    """The priority of a sequence, from the hash of its first row."""
    return (first_hash % np.uint32(7)).astype(np.float32) + (1 if is_initial else 11)


def _mix(mixed: Array, field: Array) -> Array:
    mixed = (mixed ^ field.astype(jnp.uint32)) * jnp.uint32(_FACTOR)
    return mixed ^ mixed >> jnp.uint32(15)


def _choose(num_actions: int, mixed: Array) -> tuple[Array, Array]:
    action = (mixed % jnp.uint32(num_actions)).astype(jnp.int32)
    return action, action


def _choose_several(counts: tuple[int, ...], mixed: Array) -> tuple[Array, Array]:
    """Of each count, by 8 bits of its own."""
    octets = [mixed >> (8 * k) & 0xFF for k in range(len(counts))]
    parts = [octet % jnp.uint32(count) for octet, count in zip(octets, counts, strict=True)]
    return jnp.stack(parts, axis=-1).astype(jnp.int32), mixed & 0xFF_FFFF


def _choose_in_box(mixed: Array) -> tuple[Array, Array]:
    """Two numbers of [-1, 1) of 8 bits each, so that no rescaling by powers of 2 rounds them."""
    octets = jnp.stack([mixed & 0xFF, mixed >> 8 & 0xFF], axis=-1)
    return octets.astype(jnp.float32) / 128 - 1, mixed & 0xFFFF


def _act(
    choose: Callable[[Array], tuple[Array, Array]],
    params: Tree,
    carry: Array,
    timestep: TimeStep,
    epsilon: Array,
    key: Array,
) -> ActOutput:
    del key
    mixed = jnp.where(timestep.step_type == StepType.FIRST, jnp.uint32(START), carry)
    fields = [*timestep.observation.T, timestep.reward, timestep.step_type, timestep.discount]
    for field in fields:
        mixed = _mix(mixed, field)
    action, remembered = choose(mixed)
    version = jnp.full(mixed.shape, params["version"], jnp.int32)
    extras = {"hash": mixed, "version": version, "exploration": epsilon}
    return ActOutput(action, _mix(mixed, remembered), extras)


def _loss(
    window: WindowSpec, params: Tree, target: Tree, sequence: Sequence, weights: Array, key: Array
) -> tuple[Array, LossOutput]:
    del target, weights
    rows = slice(window.burn_in, window.burn_in + window.unroll)
    reward = jnp.mean(sequence.steps.timestep.reward[rows])
    versions = sequence.steps.extras["version"][rows].astype(jnp.float32)
    drawn = jax.random.uniform(key)
    metrics = {
        "learner_version": params["version"],
        "acting_version": jnp.mean(versions),
        "trained_reward": reward,
        # The learner takes means over devices; these two tell whether the keys were equal.
        "drawn": drawn,
        "drawn_squared": jnp.square(drawn),
    }
    priorities = priority(sequence.steps.extras["hash"][0], is_initial=False)
    return params["seen"] * reward, LossOutput(priorities, metrics)


def _count_and_add(gradients: Tree, state: Tree, params: Tree) -> tuple[Tree, Tree]:
    del params
    return {"version": jnp.ones(()), "seen": gradients["seen"]}, state


def counting(lengths: tuple[int, ...], num_actions: Actions) -> EnvironmentConfig:
    """The counting environment, with those actions."""
    name, actions = "seedrl_plugin.counting:make_real", {"bounds": BOX}
    if isinstance(num_actions, tuple):
        actions = {"counts": num_actions}
    elif num_actions:
        name, actions = "seedrl_plugin.counting:make", {"num_actions": num_actions}
    return EnvironmentConfig(id=name, arguments=json.dumps({"lengths": lengths, **actions}))


def rows_of(seed: int, lengths: tuple[int, ...], num_actions: Actions) -> Iterator[tuple[Any, ...]]:
    """The rows of a counting environment played by a hashing agent: the fields of `Row`."""
    episode, step, received, carry = 0, 0, 0, 0
    while True:
        length = lengths[episode % len(lengths)]
        observation = (seed & 0xFFFF, seed >> 16, episode, step)
        step_type = StepType.LAST if step == length else StepType.MID if step else StepType.FIRST
        reward = reward_of(*observation, received) if step else 0
        discount = 0 if step_type == StepType.LAST and episode % 2 == 0 else 1
        mixed = carry if step else START
        for field in (*observation, reward, int(step_type), discount):
            mixed = mix(mixed, field)
        action, received, remembered = choose(mixed, num_actions)
        yield observation, reward, int(step_type), discount, action, mixed, carry
        carry = mix(mixed, remembered)
        episode, step = (episode + 1, 0) if step == length else (episode, step + 1)


class Choice(NamedTuple):
    """An action as it is stored, as its environment hashes it, and as the carry does."""

    action: Any
    received: int
    remembered: int


def choose(mixed: int, num_actions: Actions) -> Choice:
    """What `_choose`, `_choose_several` and `_choose_in_box` do on the device."""
    if isinstance(num_actions, tuple):
        parts = [(mixed >> 8 * k & 0xFF) % count for k, count in enumerate(num_actions)]
        return Choice(parts, code_of(parts), mixed & 0xFF_FFFF)
    if num_actions:
        return Choice(*[mixed % num_actions] * 3)
    action = [(mixed & 0xFF) / 128 - 1, (mixed >> 8 & 0xFF) / 128 - 1]
    rescaled = [
        low + (number + 1) / 2 * (high - low)
        for number, (low, high) in zip(action, BOX, strict=True)
    ]
    return Choice(action, code_of(rescaled), mixed & 0xFFFF)


def mix(mixed: int, field: int) -> int:
    """What `_act` does on the device, on Python's integers."""
    mixed = (mixed ^ field) * _FACTOR & _MASK
    return mixed ^ mixed >> 15
