"""The configuration of PPO: proximal policy optimization (Schulman et al. 2017).

What it builds is in `functions`: reading a configuration imports no jax.
"""

import functools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from seedrl.agents.window import WindowSpec
from seedrl.config_types import check_ranges, check_types
from seedrl.networks.config import ActorCriticConfig

if TYPE_CHECKING:  # import jax and numpy
    from seedrl.agents.agent import Agent
    from seedrl.specs import EnvSpec


@dataclass(frozen=True, kw_only=True)
class PpoConfig:
    """PPO. "Paper" is Schulman et al. 2017, its table 5 for Atari; where we differ, it is said.

    Its `replay` is a `seedrl.replay.queue.QueueConfig`. In rounds, `learning.regime` synchronous,
    it is the paper's; asynchronously it is APPO: acting goes on while a batch is learned from, and
    ratios are to the policy that acted.

    An update goes through its batch `epochs` times, in `minibatches` parts of whole sequences or of
    pieces of them, and a recurrent policy from the carry that acting had before each sequence.

    Attributes:
      network: a frozen dataclass whose `build(spec)` gives a `Network` of a `PolicyAndValue`, or,
        for a box of actions, of a `GaussianAndValue`.
      unroll: trained rows of a sequence. Paper: 128. One more row follows, from which the value is
        bootstrapped, and with the row after it the next sequence begins: no two sequences share a
        row, and one step of unroll + 1 is not trained.
      epochs: how often a batch is gone through. Paper: 3.
      minibatches: parts of equal size of a batch, dealt again for each epoch; its sequences, or
        pieces, on each device must be a multiple. Paper: 4.
      piece_rows: rows of a sequence that stay together when minibatches are dealt; `unroll` must be
        a multiple. 0 keeps whole sequences; 1 deals rows, as the paper's code does for policies
        without memory: minibatches of a few sequences say little that is new of each other. To
        pieces that do not begin a sequence a recurrent core is brought by the parameters before the
        update, and no gradient goes beyond a piece.
      gamma: discount of one step. Paper: 0.99.
      trace_lambda: lambda of generalized advantage estimation. Paper: 0.95.
      clip: how far from 1 a ratio of probabilities may go and still gain. Paper: 0.1.
      value_clip: how far from its old value a value may go and still gain; 0 sets no limit. Paper:
        none.
      normalize_advantages: whether those of a minibatch are given mean 0 and deviation 1, over the
        rows that are trained. Not in the paper, but in its code.
      kl_stop: leaves out what remains of a batch once a minibatch's estimate of the divergence of
        the policy that acted and the present one is above this; 0 never does.
      value_cost: weight of half the squared error of the value. Paper: 1, of the whole square.
      entropy_cost: weight of the entropy of the policy, which is maximised. Paper: 0.01.
      normalize_observations: whether arrays of floats of an observation are seen with mean 0 and
        deviation 1 over all trained rows so far, clipped to plus or minus 10.
      normalize_images: whether images are seen so, too, each pixel by itself, and not divided by
        255: what is small and rare in them, such as a ball, is seen from the first.
      normalize_rewards: whether rewards are divided by the deviation of their discounted sums so
        far, and clipped to plus or minus 10, before they are seen, scaled and learned from.
      reward_scale: rewards are multiplied by this when they are learned from. Values of hundreds,
        brought to about 1, are learned sooner.
      reward_clip: and then clipped to plus or minus this; 0 clips none.
      learning_rate: of Adam. Paper: 2.5e-4.
      learning_rate_decay_updates: updates, of a whole batch each, over which the learning rate
        falls linearly to 0; 0 keeps it. Paper: the length of the run.
      adam_epsilon: the paper's code: 1e-5.
      max_gradient_norm: gradients are scaled down to this global norm. The paper's code: 0.5.
    """

    network: Any = field(default_factory=ActorCriticConfig)
    unroll: int = 127
    epochs: int = 4
    minibatches: int = 4
    piece_rows: int = 0
    gamma: float = 0.99
    trace_lambda: float = 0.95
    clip: float = 0.2
    value_clip: float = 0.0
    normalize_advantages: bool = True
    kl_stop: float = 0.0
    value_cost: float = 1.0
    entropy_cost: float = 0.01
    normalize_observations: bool = False
    normalize_images: bool = False
    normalize_rewards: bool = False
    reward_scale: float = 1.0
    reward_clip: float = 0.0
    learning_rate: float = 2.5e-4
    learning_rate_decay_updates: int = 0
    adam_epsilon: float = 1e-5
    max_gradient_norm: float = 0.5

    def __post_init__(self) -> None:
        check_types("agent.", self)  # before anything is compared
        positive = ("clip", "reward_scale", "learning_rate", "adam_epsilon", "max_gradient_norm")
        check_ranges("agent.", self, _RANGES, positive)
        if self.unroll % (self.piece_rows or 1):
            raise ValueError(
                f"agent.piece_rows: expected a divisor of agent.unroll, {self.unroll}, got "
                f"{self.piece_rows}; change either (an unroll of 128 has many)"
            )

    @property
    def window(self) -> WindowSpec:
        """Sequences of `unroll + 1` rows, one after another."""
        return WindowSpec(burn_in=0, unroll=self.unroll, bootstrap=1, stride=self.unroll + 1)

    def build(self, spec: "EnvSpec") -> "Agent":
        """The agent for environments of this spec.

        Raises ConfigError for a network that does not fit.
        """
        import numpy as np

        from seedrl.agents.agent import Agent, Passes
        from seedrl.agents.gradient_update import GradientUpdate
        from seedrl.agents.learning_rate import rate_metrics
        from seedrl.agents.network_inputs import initial_carry
        from seedrl.agents.normalization.normalized import (
            seen_by_agent,
            settings_of,
            with_normalization,
        )
        from seedrl.agents.ppo import functions
        from seedrl.agents.ppo.policies import policy_and_network

        settings = settings_of(self, spec)
        policy, network = policy_and_network(self.network, seen_by_agent(settings))
        objective, piece_rows = functions.objective_of(self), self.piece_rows or self.unroll
        update = GradientUpdate(
            loss=functools.partial(functions.loss, objective, policy, network),
            optimizer=functions.optimizer_of(self),
            optimizer_metrics=functools.partial(rate_metrics, functions.learning_rate(self)),
        )
        agent = Agent(
            window=self.window,
            init=network.init,
            initial_carry=functools.partial(initial_carry, network, action=spec.action.array),
            act=functools.partial(functions.act, policy, network),
            exploration=functools.partial(np.ones, dtype=np.float32),
            evaluation_exploration=0.0,
            init_state=update.init_state,
            update=update,
            passes=Passes(self.epochs, self.minibatches, self.unroll // piece_rows),
            before_batch=functools.partial(functions.before_batch, objective, network, piece_rows),
        )
        agent = functions.with_kl_stop(agent, self.kl_stop) if self.kl_stop else agent
        return with_normalization(agent, settings)


_RANGES = {
    "unroll": (1, math.inf),
    "epochs": (1, math.inf),
    "minibatches": (1, math.inf),
    "piece_rows": (0, math.inf),
    "gamma": (0, 1),
    "trace_lambda": (0, 1),
    "value_clip": (0, math.inf),
    "kl_stop": (0, math.inf),
    "value_cost": (0, math.inf),
    "entropy_cost": (0, math.inf),
    "reward_clip": (0, math.inf),
    "learning_rate_decay_updates": (0, math.inf),
}
