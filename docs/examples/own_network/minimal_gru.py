"""A recurrent network of your own: a minimal gated unit, written without a library."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from seedrl.networks.network import Network


@dataclass(frozen=True, kw_only=True)
class MinimalGRUConfig:
    """A minimal gated unit (Zhou et al. 2016) and a linear head.

    Attributes:
      size: size of the recurrent state.
    """

    size: int = 32

    def build(self, spec):
        """The three pure functions; `inputs` is a `seedrl.networks.network.NetworkInput`."""
        num_inputs = spec.observation.shape[0] + self.size + 1

        def init(key):
            gate, candidate, head = jax.random.split(key, 3)
            matrix = jax.nn.initializers.lecun_normal()
            return {
                "gate": matrix(gate, (num_inputs, self.size)),
                "candidate": matrix(candidate, (num_inputs, self.size)),
                "head": matrix(head, (self.size, spec.action.num_actions)),
            }

        def initial_carry(batch_size):
            return jnp.zeros((batch_size, self.size))

        def unroll(params, carry, inputs):  # observation [T, B, D] -> Q-values [T, B, A], carry
            def step(hidden, row):
                observation, is_first = row
                # The previous episode must not influence this one.
                hidden = jnp.where(is_first[:, None], 0.0, hidden)
                ones = jnp.ones((*is_first.shape, 1))
                gate = jax.nn.sigmoid(
                    jnp.concatenate([observation, hidden, ones], axis=-1) @ params["gate"]
                )
                candidate = jnp.tanh(
                    jnp.concatenate([observation, gate * hidden, ones], axis=-1)
                    @ params["candidate"]
                )
                hidden = (1 - gate) * hidden + gate * candidate
                return hidden, hidden @ params["head"]

            carry, q_values = jax.lax.scan(step, carry, (inputs.observation, inputs.is_first))
            return q_values, carry

        return Network(init, initial_carry, unroll)
