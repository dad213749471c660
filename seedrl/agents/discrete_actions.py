"""What agents that choose among discrete actions ask of an environment."""

from seedrl.errors import ConfigError
from seedrl.specs import DiscreteSpec, EnvSpec


def num_actions_of(spec: EnvSpec, agent: str) -> int:
    """A, the number of actions. Raises ConfigError, which names the agent, for a box of them."""
    if isinstance(spec.action, DiscreteSpec):
        return spec.action.num_actions
    raise ConfigError(
        f"agent: {agent} chooses among discrete actions, the environment has a box of shape "
        f"{list(spec.action.shape)}; choose an agent for continuous actions"
    )
