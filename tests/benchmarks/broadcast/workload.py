"""What both arms run: the fleet, a policy of a given number of parameters, an update without work.

An update would cost the same in both arms. So it computes nothing here: it counts, and publishes
the parameters.
"""

import itertools
import json
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from seedrl.agents.agent import Agent, AgentState, UpdateOutput
from seedrl.agents.impala import ImpalaConfig
from seedrl.config import Config, EnvironmentConfig, LaunchConfig, LearningConfig, ServingConfig
from seedrl.networks.network import Network, NetworkInput, PolicyAndValue
from seedrl.replay.queue import QueueConfig
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec
from seedrl.types import Array, Tree

NUM_SERVERS = 4  # or actors
NUM_ENVS = 16  # of each
NUM_GROUPS = 2  # in which it steps them
GROUP_ENVS = NUM_ENVS // NUM_GROUPS
ROWS = NUM_SERVERS * NUM_ENVS
PAGE_STEPS = 21
_ENDLESS = 10**15
_NUM_ACTIONS = 6
_FEATURES = 16


def spec_of(num_bytes: int) -> EnvSpec:
    """Of environments with observations of N bytes, a multiple of 16."""
    return EnvSpec(ArraySpec((num_bytes,), "uint8"), DiscreteSpec(_NUM_ACTIONS))


def num_parameters(width: int) -> int:
    """Of a network of this width."""
    return width * (_FEATURES + width + _NUM_ACTIONS + 1)


@dataclass(frozen=True, kw_only=True)
class MeanMlpConfig:
    """Three layers over the means of 16 parts of the observation.

    It reads every byte, and its number of parameters does not depend on their number.

    Attributes:
      width: of the two hidden layers.
    """

    width: int = 64

    def build(self, spec: EnvSpec) -> Network:
        sizes = (_FEATURES, self.width, self.width, _NUM_ACTIONS + 1)

        def init(key: Array) -> Tree:
            shapes = itertools.pairwise(sizes)
            return [jax.random.normal(key, shape) / np.sqrt(shape[0]) for shape in shapes]

        def unroll(params: Tree, carry: Tree, inputs: NetworkInput) -> tuple[Tree, Tree]:
            parts = inputs.observation.reshape(*inputs.observation.shape[:2], _FEATURES, -1)
            hidden = jnp.mean(parts, axis=-1, dtype=jnp.float32)
            for weights in params[:-1]:
                hidden = jax.nn.relu(hidden @ weights)
            output = hidden @ params[-1]
            return PolicyAndValue(output[..., :-1], output[..., -1]), carry

        return Network(init, lambda batch_size: (), unroll)


@dataclass(frozen=True, kw_only=True)
class UnlearningConfig(ImpalaConfig):
    """IMPALA's acting, and an update that keeps the parameters."""

    def build(self, spec: EnvSpec) -> Agent:
        return super().build(spec)._replace(init_state=_state, update=_update)


def _state(params: Tree) -> AgentState:
    return AgentState(params, (), (), jnp.zeros((), jnp.int32))


def _update(state: AgentState, *_: object, **__: object) -> tuple[AgentState, UpdateOutput]:
    zero = jnp.zeros(())
    return state, UpdateOutput(metrics={"loss": zero}, guarded=zero)


def config_of(width: int, num_bytes: int, folder: Path) -> Config:
    """A run whose update takes a sequence of each environment, and is published.

    `folder`: of the environments' pace.
    """
    arguments = {"shape": [num_bytes], "dtype": "uint8", "folder": str(folder)}
    return Config(
        environment=EnvironmentConfig(
            id="tests.benchmarks.paced_environment:still",
            arguments=json.dumps(arguments),
            vectorization="native",
        ),
        agent=UnlearningConfig(network=MeanMlpConfig(width=width), unroll=PAGE_STEPS - 1),
        serving=ServingConfig(training_slots=ROWS, evaluation_slots=0),
        # Pages that are open while the other arm runs are as old as all its updates.
        replay=QueueConfig(max_lag_updates=_ENDLESS),
        learning=LearningConfig(batch_sequences=ROWS, total_steps=_ENDLESS, num_devices=1),
        launch=LaunchConfig(
            env_servers=NUM_SERVERS, envs_per_server=NUM_ENVS, groups=NUM_GROUPS, local_link=False
        ),
    )
