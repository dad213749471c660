"""The configuration of IMPALA: distributed actor-critic with V-trace (Espeholt et al. 2018).

What it builds is in `impala_functions`: reading a configuration imports no jax.
"""

import functools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from seedrl.agents.window import WindowSpec
from seedrl.config_types import check_ranges, check_types
from seedrl.networks.config import ActorCriticConfig

if TYPE_CHECKING:  # import jax and numpy
    from seedrl.agents.agent import Agent
    from seedrl.specs import EnvSpec


@dataclass(frozen=True, kw_only=True)
class ImpalaConfig:
    """IMPALA. "Paper" is Espeholt et al. 2018, appendix D; where we differ, it is said.

    It learns on policy, as nearly as acting and learning at once allow: its `replay` is a
    `seedrl.replay.queue.QueueConfig`, and V-trace corrects for the updates in between.

    The loss is a mean over rows, as in SEED RL and Acme, where the paper and its code sum over time
    and batch: so learning rate and gradient norm are of another size than theirs.

    Attributes:
      network: a frozen dataclass whose `build(spec)` gives a `Network` of a `PolicyAndValue`.
      unroll: trained rows of a sequence. Paper: 20 for Atari, 100 for DMLab. One more row follows,
        from which the value is bootstrapped, and with the row after it the next sequence begins:
        no two sequences share a row, and one step of unroll + 1 is not trained.
      gamma: discount of one step. Paper: 0.99.
      trace_lambda: lambda of V-trace. Paper: 1.
      rho_bar: caps the importance ratio in temporal differences. Paper: 1.
      c_bar: caps it in traces. Paper: 1.
      pg_rho_bar: caps it in the policy gradient. Paper: 1.
      correction: "vtrace"; "one_step": ratios weight the policy gradient alone; "none": as if the
        present policy had acted. The last two are what the paper compares V-trace with.
      value_cost: weight of half the squared error of the value. Paper: 0.5.
      entropy_cost: weight of the entropy of the policy, which is maximised. Paper: 0.01 for Atari.
      normalize_observations: whether arrays of floats of an observation are seen with mean 0 and
        deviation 1 over all trained rows so far, clipped to plus or minus 10.
      normalize_images: whether images are seen so, too, each pixel by itself, and not divided by
        255: what is small and rare in them, such as a ball, is seen from the first.
      normalize_rewards: whether rewards are divided by the deviation of their discounted sums so
        far, and clipped to plus or minus 10, before they are seen, scaled and learned from.
      reward_scale: rewards are multiplied by this when they are learned from. Values of hundreds,
        brought to about 1, are learned sooner; scale `entropy_cost` with it.
      reward_clip: and then clipped to plus or minus this; 0 clips none. Paper: 1 for Atari.
      learning_rate: of Adam. SEED RL: 4.8e-4.
      learning_rate_decay_updates: updates over which the learning rate falls linearly to 0; 0 keeps
        it. Paper: the length of the run.
      adam_b1: decay of the mean gradient. 0, as in SEED RL and Acme, makes Adam RMSProp, which the
        paper has, with a corrected start; more is a second lag.
      adam_b2: decay of the mean squared gradient. Paper: 0.99, of RMSProp.
      adam_epsilon: SEED RL: 3.1e-7.
      max_gradient_norm: gradients are scaled down to this global norm. Paper: 40, of a sum.
    """

    network: Any = field(default_factory=ActorCriticConfig)
    unroll: int = 20
    gamma: float = 0.99
    trace_lambda: float = 1.0
    rho_bar: float = 1.0
    c_bar: float = 1.0
    pg_rho_bar: float = 1.0
    correction: Literal["vtrace", "one_step", "none"] = "vtrace"
    value_cost: float = 0.5
    entropy_cost: float = 0.01
    normalize_observations: bool = False
    normalize_images: bool = False
    normalize_rewards: bool = False
    reward_scale: float = 1.0
    reward_clip: float = 0.0
    learning_rate: float = 4.8e-4
    learning_rate_decay_updates: int = 0
    adam_b1: float = 0.0
    adam_b2: float = 0.99
    adam_epsilon: float = 3.1e-7
    max_gradient_norm: float = 40.0

    def __post_init__(self) -> None:
        check_types("agent.", self)  # before anything is compared
        positive = (
            "rho_bar",
            "reward_scale",
            "learning_rate",
            "adam_epsilon",
            "max_gradient_norm",
        )
        check_ranges("agent.", self, _RANGES, positive)

    @property
    def window(self) -> WindowSpec:
        """Sequences of `unroll + 1` rows, one after another."""
        return WindowSpec(burn_in=0, unroll=self.unroll, bootstrap=1, stride=self.unroll + 1)

    def build(self, spec: "EnvSpec") -> "Agent":
        """The agent for environments of this spec.

        Raises ConfigError for actions that are not discrete, and for a network that does not fit.
        """
        import numpy as np

        from seedrl.agents import impala_functions as functions
        from seedrl.agents.agent import Agent
        from seedrl.agents.discrete_actions import num_actions_of
        from seedrl.agents.gradient_update import GradientUpdate
        from seedrl.agents.learning_rate import rate_metrics, rate_of
        from seedrl.agents.network_inputs import initial_carry
        from seedrl.agents.normalization.normalized import (
            seen_by_agent,
            settings_of,
            with_normalization,
        )
        from seedrl.networks.contract import build_actor_critic

        num_actions = num_actions_of(spec, "IMPALA")
        settings = settings_of(self, spec)
        network = build_actor_critic(self.network, seen_by_agent(settings), num_actions)
        update = GradientUpdate(
            loss=functools.partial(functions.loss, functions.objective_of(self), network),
            optimizer=functions.optimizer_of(self),
            optimizer_metrics=functools.partial(rate_metrics, rate_of(self)),
        )
        agent = Agent(
            window=self.window,
            init=network.init,
            initial_carry=functools.partial(initial_carry, network),
            act=functools.partial(functions.act, network),
            exploration=functools.partial(np.ones, dtype=np.float32),
            evaluation_exploration=0.0,
            init_state=update.init_state,
            update=update,
        )
        return with_normalization(agent, settings)


_RANGES = {
    "unroll": (1, math.inf),
    "gamma": (0, 1),
    "trace_lambda": (0, 1),
    "c_bar": (0, math.inf),
    "pg_rho_bar": (0, math.inf),
    "value_cost": (0, math.inf),
    "entropy_cost": (0, math.inf),
    "reward_clip": (0, math.inf),
    "learning_rate_decay_updates": (0, math.inf),
    "adam_b1": (0, 0.99999),
    "adam_b2": (0, 0.99999),
}
