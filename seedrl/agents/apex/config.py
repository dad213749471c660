"""The configuration of Ape-X DQN: distributed prioritized experience replay (Horgan et al. 2018).

What it builds is in `functions`: reading a configuration imports no jax.
"""

import functools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from seedrl.agents.window import WindowSpec
from seedrl.config_types import check_ranges, check_types
from seedrl.networks.config import QNetworkConfig

if TYPE_CHECKING:  # import jax and numpy
    from seedrl.agents.agent import Agent
    from seedrl.specs import EnvSpec


def feed_forward() -> QNetworkConfig:
    """The network of the paper: R2D2's without a core."""
    return QNetworkConfig(core="none")


@dataclass(frozen=True, kw_only=True)
class ApexConfig:
    """Ape-X DQN. "Paper" is Horgan et al. 2018, appendix C; where we differ, it is said.

    Double Q-learning from single n-step transitions, without memory: what is to be remembered must
    be in the observation, or in stacked frames. In the paper replay holds 2 million steps, learns
    from 50,000 on, and has `replay.priority_exponent` 0.6 and `replay.importance_exponent` 0.4.

    Attributes:
      network: a frozen dataclass whose `build(spec)` gives a `Network` of Q-values without a
        recurrent core. Paper: dueling.
      earlier_rows: rows before the trained one that its network sees: k - 1 where it stacks k
        frames. A network of your own that looks at the previous action needs one at least.
      n_steps: n of the n-step return. Paper: 3.
      gamma: discount of one step. Paper: 0.99.
      reward_scale: rewards are multiplied by this when they are learned from.
      reward_clip: and then clipped to plus or minus this; 0 clips none. Paper: 1 for Atari.
      optimizer: "rmsprop", centred, or "adam". Paper: "rmsprop".
      learning_rate: Paper: 0.00025 / 4.
      learning_rate_decay_updates: updates over which the learning rate falls linearly to 0; 0 keeps
        it, as the paper does.
      rmsprop_decay: of the mean squared gradient. Paper: 0.95.
      optimizer_epsilon: of either optimizer. Paper: 1.5e-7.
      max_gradient_norm: gradients are scaled down to this global norm. Paper: 40.
      target_update_interval: updates between two copies to the target network. Paper: 2500.
      value_scaling: whether Q-values are rescaled by h, as R2D2's are. Paper: no.
      value_scaling_epsilon: epsilon of h.
      exploration_base: epsilon of the most exploratory slot. Paper: 0.4.
      exploration_alpha: exponents of epsilon range from 1 to 1 + alpha. Paper: 7.
      evaluation_epsilon: epsilon of evaluation slots. As R2D2's.
    """

    network: Any = field(default_factory=feed_forward)
    earlier_rows: int = 0
    n_steps: int = 3
    gamma: float = 0.99
    reward_scale: float = 1.0
    reward_clip: float = 0.0
    optimizer: Literal["rmsprop", "adam"] = "rmsprop"
    learning_rate: float = 6.25e-5
    learning_rate_decay_updates: int = 0
    rmsprop_decay: float = 0.95
    optimizer_epsilon: float = 1.5e-7
    max_gradient_norm: float = 40.0
    target_update_interval: int = 2500
    value_scaling: bool = False
    value_scaling_epsilon: float = 1e-3
    exploration_base: float = 0.4
    exploration_alpha: float = 7.0
    evaluation_epsilon: float = 1e-3

    def __post_init__(self) -> None:
        check_types("agent.", self)  # before anything is compared
        positive = ("reward_scale", "learning_rate", "optimizer_epsilon", "max_gradient_norm")
        check_ranges("agent.", self, _RANGES, positive)

    @property
    def window(self) -> WindowSpec:
        """A transition, which starts at every row, behind the rows that stacked frames are of."""
        return WindowSpec(self.earlier_rows, unroll=1, bootstrap=self.n_steps, stride=1)

    def build(self, spec: "EnvSpec") -> "Agent":
        """The agent for environments of this spec.

        Raises ConfigError for actions that are not discrete, and for a network that does not fit.
        """
        from seedrl.agents.agent import Agent, no_carry
        from seedrl.agents.apex import functions
        from seedrl.agents.discrete_actions import num_actions_of
        from seedrl.agents.gradient_update import GradientUpdate, copied, periodic_copy
        from seedrl.agents.learning_rate import rate_metrics, rate_of
        from seedrl.agents.network_inputs import initial_carry
        from seedrl.agents.r2d2_functions import act
        from seedrl.networks.contract import build_q_network
        from seedrl.rl.exploration import epsilons

        network = build_q_network(self.network, spec, num_actions_of(spec, "Ape-X"))
        functions.require_no_memory(network, self.earlier_rows)
        objective = functions.objective_of(self)
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
            act=functools.partial(act, network),
            exploration=functools.partial(
                epsilons, base=self.exploration_base, alpha=self.exploration_alpha
            ),
            evaluation_exploration=self.evaluation_epsilon,
            init_state=update.init_state,
            update=update,
            initial_priorities=functools.partial(functions.initial_priorities, objective),
            stored_carry=no_carry,
        )


_RANGES = {
    "earlier_rows": (0, math.inf),
    "n_steps": (1, math.inf),
    "gamma": (0, 1),
    "reward_clip": (0, math.inf),
    "learning_rate_decay_updates": (0, math.inf),
    "rmsprop_decay": (0, 0.99999),
    "target_update_interval": (1, math.inf),
    "value_scaling_epsilon": (0, math.inf),
    "exploration_base": (0, 1),
    "exploration_alpha": (0, math.inf),
    "evaluation_epsilon": (0, 1),
}
