"""Q-values or a policy from a table: a network that is quick to compile and to write again."""

from dataclasses import dataclass
from typing import Any

import jax

from seedrl.networks.network import Network, NetworkInput, PolicyAndValue
from seedrl.specs import ArraySpec, EnvSpec
from seedrl.types import Tree


@dataclass(frozen=True, kw_only=True)
class Tables:
    """Q-values, or logits and values, of the state that an observation names: `[states, A]`."""

    states: int
    is_policy: bool = False

    def build(self, spec: EnvSpec) -> Network:
        """For observations that are numbers of states, without a mask."""
        assert spec.observation == ArraySpec((), "int32"), "a network does not see the mask"

        def init(key: Any) -> Tree:
            shapes = {"table": (self.states, spec.action.num_actions), "value": (self.states,)}
            return {name: jax.random.normal(key, shape) for name, shape in shapes.items()}

        def unroll(params: Tree, carry: Tree, inputs: NetworkInput) -> tuple[Any, Tree]:
            table = params["table"][inputs.observation]
            if not self.is_policy:
                return table, carry
            return PolicyAndValue(table, params["value"][inputs.observation]), carry

        return Network(init, lambda size: (), unroll)
