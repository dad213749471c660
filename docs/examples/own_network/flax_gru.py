"""A recurrent network of your own with flax: its GRU cell, reset at the start of an episode."""

from dataclasses import dataclass

import flax.linen as nn
import jax.numpy as jnp

from seedrl.networks.network import Network, NetworkInput


class GRU(nn.Module):
    """A GRU and a linear head."""

    size: int
    num_actions: int

    @nn.compact
    def __call__(self, carry, inputs):
        def step(cell, carry, row):
            observation, is_first = row
            # The previous episode must not influence this one.
            return cell(jnp.where(is_first[:, None], 0.0, carry), observation)

        # All time steps share the parameters (`variable_broadcast`).
        scan = nn.scan(step, variable_broadcast="params", split_rngs={"params": False})
        carry, seen = scan(nn.GRUCell(self.size), carry, (inputs.observation, inputs.is_first))
        return nn.Dense(self.num_actions)(seen), carry


@dataclass(frozen=True, kw_only=True)
class FlaxGRUConfig:
    """The network for observations `[D]` and Q-values.

    Attributes:
      size: size of the recurrent state.
    """

    size: int = 64

    def build(self, spec):
        """The three pure functions."""
        module = GRU(self.size, spec.action.num_actions)

        def initial_carry(batch_size):
            return jnp.zeros((batch_size, self.size))

        row = NetworkInput(
            observation=jnp.zeros((1, 1, *spec.observation.shape)),
            previous_action=jnp.zeros((1, 1), jnp.int32),
            reward=jnp.zeros((1, 1)),
            is_first=jnp.ones((1, 1), bool),
        )
        return Network(
            init=lambda key: module.init(key, initial_carry(1), row),
            initial_carry=initial_carry,
            unroll=module.apply,
        )
