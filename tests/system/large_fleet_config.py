"""For `tests.system.large_fleet`: environments that sleep, and an agent that does nothing."""

import dataclasses

from learner.bench.rigs.null_agent import NullAgentConfig
from learner.bench.scaling import constant
from seedrl.agents.agent import Agent
from seedrl.agents.window import WindowSpec
from seedrl.config import Config, LaunchConfig, ServingConfig
from seedrl.specs import EnvSpec


@dataclasses.dataclass(frozen=True, kw_only=True)
class Idle:
    """The benchmarks' agent, as a configuration that can be saved."""

    @property
    def window(self) -> WindowSpec:
        """The sequences that its experience is cut into."""
        return WindowSpec(burn_in=0, unroll=20, bootstrap=1, stride=20)

    def build(self, spec: EnvSpec) -> Agent:
        """The agent, for any environment."""
        return NullAgentConfig(window=self.window).build(spec)


def config() -> Config:
    """Slots and the time of a step are given as flags."""
    base = constant({"shape": (4,), "dtype": "float32"}, LaunchConfig(), capacity_steps=100_000)
    return dataclasses.replace(
        base,
        agent=Idle(),
        serving=ServingConfig(evaluation_slots=0, insecure=True),
        evaluation=dataclasses.replace(base.evaluation, target_return=None),
    )
