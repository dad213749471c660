"""For `tests.system.large_fleet`: environments that sleep, and an agent that does nothing."""

import dataclasses
import json

from learner.bench.workloads import ENDLESS, NullAgentConfig
from seedrl.agents.agent import Agent
from seedrl.agents.window import WindowSpec
from seedrl.config import Config, EnvironmentConfig, ReplayConfig, ServingConfig
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
    base = Config(
        environment=EnvironmentConfig(
            id="envs_server.envs.constant:make",
            arguments=json.dumps({"shape": (4,), "dtype": "float32"}),
            vectorization="native",
        ),
        agent=Idle(),
        # So few updates are due that none is ever made.
        replay=ReplayConfig(capacity_steps=100_000, min_steps=50_000, ratio=1e-9),
        serving=ServingConfig(evaluation_slots=0, insecure=True),
    )
    return dataclasses.replace(
        base,
        learning=dataclasses.replace(base.learning, num_devices=1, total_steps=ENDLESS),
        evaluation=dataclasses.replace(base.evaluation, target_return=None),
    )
