"""An agent of your own: R2D2 with a loss term, a metric and an exploration of its own."""

import functools
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
import optax

from seedrl.agents.r2d2 import R2D2Config


@dataclass(frozen=True, kw_only=True)
class PenalizedR2D2Config(R2D2Config):
    """R2D2 that keeps its parameters small, and explores equally on every slot.

    Every field is a flag, and this text is its help.

    Attributes:
      penalty: weight of the squared norm of the parameters in the loss.
      epsilon: probability of a random action.
    """

    penalty: float = 1e-4
    epsilon: float = 0.1

    def __post_init__(self):
        """Refuses a wrong value, in one line: field, expected and received value."""
        super().__post_init__()  # R2D2's own fields
        if not 0 <= self.epsilon <= 1:
            raise ValueError(f"agent.epsilon: expected 0 to 1, got {self.epsilon}")

    def build(self, spec):
        """R2D2's bundle of pure functions, two of them replaced."""
        agent = super().build(spec)
        loss = functools.partial(_penalized, agent.update.loss, self.penalty)
        return agent._replace(
            update=agent.update._replace(loss=loss),
            exploration=lambda slots: np.full(slots, self.epsilon, np.float32),
        )


def _penalized(r2d2_loss, penalty, params, target, sequence, weights, key):
    """The loss of `GradientUpdate`: a scalar, and metrics, which appear in every report."""
    loss, output = r2d2_loss(params, target, sequence, weights, key)
    squared_norm = jnp.square(optax.tree.norm(params))
    metrics = {**output.metrics, "squared_norm": squared_norm}
    return loss + penalty * squared_norm, output._replace(metrics=metrics)
