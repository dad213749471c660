"""`cartpole_masked_r2d2` whose sequences start from another recurrent state than the stored one.

seedrl train tests/benchmarks/stored_state.py --agent.stored-state zero
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import jax

from configs import cartpole_masked_r2d2
from seedrl.agents.agent import Agent
from seedrl.agents.check import build_network, num_actions_of, q_values_of
from seedrl.agents.inputs import inputs_of_sequence
from seedrl.agents.r2d2 import R2D2Config
from seedrl.config import Config
from seedrl.networks.network import Network
from seedrl.specs import EnvSpec
from seedrl.types import Sequence, Tree


@dataclass(frozen=True, kw_only=True)
class StoredStateR2D2Config(R2D2Config):
    """R2D2, with a choice of the carry from which a sequence is replayed.

    Attributes:
      stored_state: "exact" is the carry with which its first row was acted. "zero" is that of an
        episode's start (Kapturowski et al. 2019, section 3, "zero-state"). "late" is the carry of
        `burn_in` rows later, as SEED RL stores it: the burn-in's rows are gone through twice.
    """

    stored_state: Literal["exact", "zero", "late"] = "exact"

    def build(self, spec: EnvSpec) -> Agent:
        """R2D2 whose loss sees a sequence with that carry; acting is the same."""
        agent = super().build(spec)
        network = build_network(self.network, spec, q_values_of(num_actions_of(spec, "R2D2")))
        start = {"exact": exact, "zero": zero, "late": late}[self.stored_state]
        loss = agent.update.loss

        def started(params: Tree, target: Tree, sequence: Sequence, *rest: Any) -> Any:
            carry = start(network, self.burn_in, params, sequence)
            sequence = sequence._replace(carry=sequence.carry._replace(network=carry))
            return loss(params, target, sequence, *rest)

        return agent._replace(update=agent.update._replace(loss=started))


Start = Callable[[Network, int, Tree, Sequence], Tree]


def exact(network: Network, burn_in: int, params: Tree, sequence: Sequence) -> Tree:
    """The network's carry that was stored, leaves `[B, ...]`."""
    del network, burn_in, params
    return sequence.carry.network


def zero(network: Network, burn_in: int, params: Tree, sequence: Sequence) -> Tree:
    """The network's carry at an episode's start."""
    del burn_in, params
    return network.initial_carry(sequence.steps.action.shape[1])


def late(network: Network, burn_in: int, params: Tree, sequence: Sequence) -> Tree:
    """The network's carry after the burn-in.

    Today's parameters compute it; SEED RL's is as old as its rows.
    """
    rows = jax.tree.map(lambda leaf: leaf[:burn_in], inputs_of_sequence(sequence))
    _, carry = network.unroll(jax.lax.stop_gradient(params), sequence.carry.network, rows)
    return carry


def config() -> Config:
    """Masked CartPole with this agent, exact until a flag says otherwise."""
    masked = cartpole_masked_r2d2.config()
    settings = {
        each.name: getattr(masked.agent, each.name) for each in dataclasses.fields(R2D2Config)
    }
    return dataclasses.replace(masked, agent=StoredStateR2D2Config(**settings))
