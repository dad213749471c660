"""Q-values from a table: a network that is quick to compile and to write again."""

from dataclasses import dataclass
from typing import Any

import jax

from seedrl.networks.network import Network, NetworkInput
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec
from seedrl.types import Array, Tree

STATES, ACTIONS = 5, 3
# An observation is the number of a state.
SPEC = EnvSpec(ArraySpec((), "int32"), DiscreteSpec(ACTIONS))


@dataclass(frozen=True, kw_only=True)
class TableConfig:
    """A row of Q-values for each state; the parameters are the table, `[STATES, ACTIONS]`."""

    def build(self, spec: EnvSpec) -> Network:
        """Of any environment whose observations are numbers of states."""
        del spec
        return Network(_init, lambda size: (), _unroll)


def _init(key: Array) -> Array:
    return jax.random.normal(key, (STATES, ACTIONS))


def _unroll(params: Array, carry: Tree, inputs: NetworkInput) -> tuple[Any, Tree]:
    return params[inputs.observation], carry
