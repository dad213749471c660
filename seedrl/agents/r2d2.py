"""The configuration of R2D2: recurrent, replayed, distributed Q-learning (Kapturowski et al. 2019).

What it builds is in `r2d2_functions`: reading a configuration imports no jax.
"""

import functools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from seedrl.agents.window import WindowSpec
from seedrl.config_types import check_ranges, check_types
from seedrl.networks.config import QNetworkConfig

if TYPE_CHECKING:  # import jax and numpy
    from seedrl.agents.agent import Agent
    from seedrl.specs import EnvSpec


@dataclass(frozen=True, kw_only=True)
class R2D2Config:
    """R2D2. "Paper" is Kapturowski et al. 2019, table 2; where we differ, it is said.

    Attributes:
      network: a frozen dataclass whose `build(spec)` gives a `Network` of Q-values.
      burn_in: rows that only warm the carry up, without gradient. Paper: 40 (also 0 and 20).
      unroll: trained rows. Paper: sequences of m = 80, which we take as 80 trained rows after the
        burn-in, as Acme and SEED RL's Atari recipe do.
      n_steps: n of the n-step return. Paper: 5.
      stride: rows between the starts of neighbouring sequences. Paper: 40 (they overlap by half).
      gamma: discount of one step. Paper: 0.997.
      reward_scale: rewards are multiplied by this when they are learned from: Q-values that differ
        by hundredths are learned sooner as Q-values that differ by ones. Paper: 1.
      learning_rate: of Adam. Paper: 1e-4.
      learning_rate_decay_updates: updates over which the learning rate falls linearly to 0; 0 keeps
        it, as the paper does.
      adam_epsilon: Paper: 1e-3.
      max_gradient_norm: gradients are scaled down to this global norm. 80 is SEED RL's Atari recipe
        for 80 rows; its code's default is 40, and the paper names none. The loss sums over time, so
        a norm grows with `unroll`: scale both together.
      target_update_interval: updates between two copies to the target network. Paper: 2500.
      value_scaling: whether Q-values are rescaled by h. Paper: yes.
      value_scaling_epsilon: epsilon of h. Paper: 1e-3.
      priority_mix: eta: weight of the largest error, the rest is the mean's. Paper: 0.9.
      exploration_base: epsilon of the most exploratory slot. Ape-X and the paper: 0.4.
      exploration_alpha: exponents of epsilon range from 1 to 1 + alpha. Ape-X and the paper: 7.
      evaluation_epsilon: epsilon of evaluation slots. SEED RL: 1e-3.
    """

    network: Any = field(default_factory=QNetworkConfig)
    burn_in: int = 40
    unroll: int = 80
    n_steps: int = 5
    stride: int = 40
    gamma: float = 0.997
    reward_scale: float = 1.0
    learning_rate: float = 1e-4
    learning_rate_decay_updates: int = 0
    adam_epsilon: float = 1e-3
    max_gradient_norm: float = 80.0
    target_update_interval: int = 2500
    value_scaling: bool = True
    value_scaling_epsilon: float = 1e-3
    priority_mix: float = 0.9
    exploration_base: float = 0.4
    exploration_alpha: float = 7.0
    evaluation_epsilon: float = 1e-3

    def __post_init__(self) -> None:
        check_types("agent.", self)  # before anything is compared
        positive = ("reward_scale", "learning_rate", "adam_epsilon", "max_gradient_norm")
        check_ranges("agent.", self, _RANGES, positive)

    @property
    def window(self) -> WindowSpec:
        """Sequences of `burn_in + unroll + n_steps` rows."""
        return WindowSpec(self.burn_in, self.unroll, self.n_steps, self.stride)

    def build(self, spec: "EnvSpec") -> "Agent":
        """The agent for environments of this spec.

        Raises ConfigError for actions that are not discrete, and for a network that does not fit.
        """
        from seedrl.agents import r2d2_functions as functions
        from seedrl.agents.agent import Agent
        from seedrl.agents.discrete_actions import num_actions_of
        from seedrl.agents.gradient_update import GradientUpdate, copied, periodic_copy
        from seedrl.agents.learning_rate import rate_metrics, rate_of
        from seedrl.agents.network_inputs import initial_carry
        from seedrl.networks.contract import build_q_network
        from seedrl.rl.exploration import epsilons
        from seedrl.rl.value_scaling import identity, signed_hyperbolic

        num_actions = num_actions_of(spec, "R2D2")
        network = build_q_network(self.network, spec, num_actions)
        epsilon = self.value_scaling_epsilon
        scaling = signed_hyperbolic(epsilon) if self.value_scaling else identity()
        objective = functions.Objective(
            window=self.window,
            gamma=self.gamma,
            reward_scale=self.reward_scale,
            scaling=scaling,
            priority_mix=self.priority_mix,
        )
        update = GradientUpdate(
            loss=functools.partial(functions.loss, objective, network),
            optimizer=functions.optimizer_of(self),
            optimizer_metrics=functools.partial(rate_metrics, rate_of(self)),
            init_target=copied,
            update_target=functools.partial(periodic_copy, self.target_update_interval),
        )
        return Agent(
            window=self.window,
            init=network.init,
            initial_carry=functools.partial(initial_carry, network),
            act=functools.partial(functions.act, network),
            exploration=functools.partial(
                epsilons, base=self.exploration_base, alpha=self.exploration_alpha
            ),
            evaluation_exploration=self.evaluation_epsilon,
            init_state=update.init_state,
            update=update,
            initial_priorities=functools.partial(functions.initial_priorities, objective),
        )


_RANGES = {
    "burn_in": (0, math.inf),
    "unroll": (1, math.inf),
    "n_steps": (1, math.inf),
    "stride": (1, math.inf),
    "gamma": (0, 1),
    "learning_rate_decay_updates": (0, math.inf),
    "target_update_interval": (1, math.inf),
    "value_scaling_epsilon": (0, math.inf),
    "priority_mix": (0, 1),
    "exploration_base": (0, 1),
    "exploration_alpha": (0, math.inf),
    "evaluation_epsilon": (0, 1),
}
