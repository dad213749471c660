"""The configuration of SAC: soft actor-critic with automatic temperature (Haarnoja et al. 2018b).

What it builds is in `functions`: reading a configuration imports no jax.
"""

import functools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from seedrl.agents.window import WindowSpec
from seedrl.config_types import check_ranges, check_types
from seedrl.networks.config import BoxNetworkConfig

if TYPE_CHECKING:  # import jax and numpy
    from seedrl.agents.agent import Agent
    from seedrl.specs import EnvSpec


@dataclass(frozen=True, kw_only=True)
class SacConfig:
    """SAC, for actions of a box. "Paper" is Haarnoja et al. 2018b, appendix D.

    Without a recurrent core (`network.core`) it learns from single transitions: what a policy must
    remember has to be in the observation. With one it learns from sequences, which begin with the
    carry that acting had there; a gradient goes back as far as `unroll` rows. Replay is uniform in
    the paper: set `replay.priority_exponent` and `replay.importance_exponent` to 0; with others it
    is prioritized by the critics' errors.

    Attributes:
      network: the actor, the critics and their memory.
      burn_in: rows before the trained ones. The memory goes through them from the stored carry, to
        forget the older parameters that made it. Leave it at 0 without a recurrent core.
      unroll: transitions of a sequence, one after another; sequences share none. More than 1 makes
        storing cheaper, and the transitions of a batch less varied.
      gamma: discount of one step. Paper: 0.99.
      actor_learning_rate: of Adam, for the actor. Paper: 3e-4.
      critic_learning_rate: of Adam, for both critics. Paper: 3e-4.
      temperature_learning_rate: of Adam, for the logarithm of the temperature; 0 keeps it as it
        is. Paper: 3e-4.
      initial_temperature: alpha at first, the weight of the entropy. The authors' code: 1.
      target_entropy: what the temperature steers the entropy of the policy to, in nats, for actions
        in [-1, 1]; None is minus the number of numbers of an action. Paper: the same.
      target_rate: tau: which part of the way target critics go to the critics at each update.
        Paper: 0.005.
    """

    network: BoxNetworkConfig = field(default_factory=BoxNetworkConfig)
    burn_in: int = 0
    unroll: int = 1
    gamma: float = 0.99
    actor_learning_rate: float = 3e-4
    critic_learning_rate: float = 3e-4
    temperature_learning_rate: float = 3e-4
    initial_temperature: float = 1.0
    target_entropy: float | None = None
    target_rate: float = 0.005

    def __post_init__(self) -> None:
        check_types("agent.", self)  # before anything is compared
        positive = (
            "actor_learning_rate",
            "critic_learning_rate",
            "initial_temperature",
            "target_rate",
        )
        check_ranges("agent.", self, _RANGES, positive)

    @property
    def window(self) -> WindowSpec:
        """Sequences of `unroll` transitions: one more row than that, after the burn-in."""
        return WindowSpec(self.burn_in, self.unroll, bootstrap=1, stride=self.unroll)

    def build(self, spec: "EnvSpec") -> "Agent":
        """The agent for environments of this spec.

        Raises ConfigError for actions that are not a box, and for a network that does not fit.
        """
        import numpy as np

        from seedrl.agents.agent import Agent, no_carry, whole_carry
        from seedrl.agents.gradient_update import GradientUpdate, polyak_average
        from seedrl.agents.network_inputs import initial_carry
        from seedrl.agents.sac import functions, transitions

        shape = functions.action_shape(spec)
        network = self.network.build(spec)
        target_entropy = self.target_entropy
        objective = functions.Objective(
            burn_in=self.burn_in,
            gamma=self.gamma,
            target_entropy=-math.prod(shape) if target_entropy is None else target_entropy,
        )
        update = GradientUpdate(
            loss=functools.partial(functions.loss, objective, network),
            optimizer=functions.optimizer(
                actor=self.actor_learning_rate,
                critics=self.critic_learning_rate,
                temperature=self.temperature_learning_rate,
            ),
            init_target=functions.init_target,
            update_target=functools.partial(
                functions.update_target, functools.partial(polyak_average, self.target_rate)
            ),
        )
        return Agent(
            window=self.window,
            init=functools.partial(functions.init, network, self.initial_temperature),
            initial_carry=functools.partial(
                initial_carry, network.memory, action=spec.action.array
            ),
            act=functools.partial(functions.act, network, shape),
            exploration=functools.partial(np.ones, dtype=np.float32),
            evaluation_exploration=0.0,
            init_state=update.init_state,
            update=update,
            initial_priorities=functools.partial(transitions.initial_priorities, self.burn_in),
            stored_carry=whole_carry if functions.has_memory(network) else no_carry,
            behaviour=functions.behaviour,
        )


_RANGES = {
    "burn_in": (0, math.inf),
    "unroll": (1, math.inf),
    "gamma": (0, 1),
    "temperature_learning_rate": (0, math.inf),
    "target_rate": (0, 1),
}
