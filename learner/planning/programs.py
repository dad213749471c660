"""What a configuration's programs take of a device: from shapes alone, nothing is computed."""

import sys
from typing import NamedTuple

import jax
import numpy as np

from learner.acting.act_step import ActPrograms, build_act_programs, example_page, example_timestep
from learner.bench.measure.flops import count_flops
from learner.learning.device_mapping import map_programs
from learner.learning.learn_step import LearnPrograms, build_learn_programs
from learner.planning.demand import Machines
from seedrl.agents.agent import Agent
from seedrl.agents.contract import build_agent
from seedrl.config import Config
from seedrl.config_checks import page_steps
from seedrl.errors import ConfigError
from seedrl.replay.experience import Experience, Scale
from seedrl.replay.index import tree_bytes
from seedrl.specs import EnvSpec
from seedrl.types import Page, Tree
from seedrl.wire.action_layout import ActionLayout
from seedrl.wire.payload import StepLayout

# Those that act, and those that the next publication brings.
_COPIES_OF_PARAMETERS = 2


class Programs(NamedTuple):
    """Sizes on each device, and operations of products and convolutions, which are nearly all.

    Attributes:
      replay_bytes: of experience.
      state_bytes: parameters and what learns them.
      acting_bytes: of those that act, carries, open pages, and copies of the parameters.
      act_flops: for each environment's step.
      update_flops: of an update, over all devices.
    """

    replay_bytes: int
    state_bytes: int
    acting_bytes: int
    act_flops: float
    update_flops: float

    @property
    def device_bytes(self) -> int:
        """All of it; an update takes more while it runs, which only compiling it shows."""
        return self.replay_bytes + self.state_bytes + self.acting_bytes


def programs_of(
    config: Config, spec: EnvSpec, *, slots: int, machines: Machines, hosts: int = 1
) -> Programs:
    """Sizes of `config` for environments of `spec`.

    They are those that a learner asks its devices for: the shapes of its own programs.

    Args:
      slots: environments that train, over all devices; each that acts has its part.
      machines: of each of the hosts.

    Raises ConfigError if the agent does not fit the environment, or the batch not the devices.
    """
    num_devices = hosts * machines.learning
    of_devices = _scale(config, slots, num_devices)
    agent = build_agent(config.agent, spec)
    page = example_page(agent, spec, page_steps(config))
    experience: Experience = config.replay.build(
        agent.window, page=page, initial_priorities=agent.initial_priorities, scale=of_devices
    )
    learning = build_learn_programs(
        agent, experience.memory, batch_per_device=of_devices.batch_per_device
    )
    memory = jax.eval_shape(experience.memory.init, page)
    key = jax.random.PRNGKey(0)
    state = jax.eval_shape(learning.init, key)
    behaviour = jax.eval_shape(lambda key: agent.behaviour(agent.init(key)), key)
    own_slots = -(-slots // (hosts * machines.acting))
    acting = _act_programs(agent, page, own_slots)
    acting_state = jax.eval_shape(acting.init, key)
    return Programs(
        replay_bytes=tree_bytes(memory),
        state_bytes=_tree_bytes(state),
        acting_bytes=_tree_bytes(acting_state) + _COPIES_OF_PARAMETERS * _tree_bytes(behaviour),
        act_flops=_act_flops(acting, acting_state, behaviour, spec, own_slots) / own_slots,
        update_flops=num_devices * _update_flops(learning, state, memory, experience),
    )


def _scale(config: Config, slots: int, num_devices: int) -> Scale:
    batch = config.learning.batch_sequences
    if batch % num_devices:
        raise ConfigError(
            f"learning.batch_sequences: expected a multiple of the {num_devices} devices that "
            f"would learn, got {batch}; change it or plan with others"
        )
    return Scale(
        num_devices=num_devices,
        batch_per_device=batch // num_devices,
        training_slots=slots,
        # Too much memory and too many slots are for the reader to see, not to be refused.
        device_bytes=sys.maxsize,
        device_name="a device",
        is_planned=True,
    )


def message_bytes(spec: EnvSpec, rows: int) -> int:
    """Of a group's step and its answer, as they lie on the wire, without gRPC's own."""
    return StepLayout(spec, rows).num_bytes + ActionLayout(spec.action, rows).num_bytes


def _act_programs(agent: Agent, page: Page, slots: int) -> ActPrograms:
    return build_act_programs(
        agent,
        page,
        num_training=slots,
        num_slots=slots,
        exploration=np.zeros(slots, np.float32),
    )


def _tree_bytes(tree: Tree) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def _act_flops(
    programs: ActPrograms, state: Tree, behaviour: Tree, spec: EnvSpec, rows: int
) -> float:
    """Of a batch of `rows` rows."""
    timestep = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((rows, *leaf.shape), leaf.dtype), example_timestep(spec)
    )
    places = jax.ShapeDtypeStruct((rows,), np.int32)
    number = np.uint32(0)
    return count_flops(
        programs.act, state, behaviour, np.int32(0), number, places, places, timestep
    )


def _update_flops(
    programs: LearnPrograms, state: Tree, memory: Tree, experience: Experience
) -> float:
    """On one device."""

    def of_one_device(tree: Tree) -> Tree:
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct((1, *x.shape), x.dtype), tree)

    mapped = map_programs(programs, jax.local_devices()[:1])
    return count_flops(
        mapped.learn,
        state,
        of_one_device(memory),
        of_one_device(experience.example_draw),
        np.bool_(True),
    )
