"""What is asked of a learner, and what it runs on."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Demand:
    """Environments, and what is learned from them.

    Attributes:
      environments: all of them.
      envs_per_server: of each env server.
      groups: that an env server steps one after another, each while the others wait for actions.
      step_seconds: of one environment, by the clock; a group's environments take turns.
      step_cpu_seconds: of these, what it computes.
      equal_steps: whether each step takes exactly that long, rather than about that.
      batch_deadline_seconds: see `ServingConfig`.
      steps_per_update: environment steps for each update; infinite if nothing is learned.
      message_bytes: of a group's step on the wire, with its answer.
    """

    environments: int
    envs_per_server: int
    groups: int
    step_seconds: float
    step_cpu_seconds: float
    batch_deadline_seconds: float = 0.001
    steps_per_update: float = math.inf
    message_bytes: float = 0.0
    equal_steps: bool = False

    @property
    def env_servers(self) -> int:
        """Processes."""
        return math.ceil(self.environments / self.envs_per_server)

    @property
    def messages(self) -> int:
        """Groups of all env servers: the most messages that can be under way."""
        return self.env_servers * self.groups

    @property
    def rows(self) -> float:
        """Environments of a message."""
        return self.environments / self.messages


@dataclass(frozen=True, kw_only=True)
class Machines:
    """What one learner runs on.

    Attributes:
      devices: that it acts and learns with; of a CPU, cores.
      acting: threads that act, one for each device that does.
      shared_cores: of the one machine that has the env servers too, whose cores are the devices; 0
        if env servers have machines of their own, with as many cores as they take.
      network_bytes_per_second: into the learner's host; infinite within one machine.
    """

    devices: int = 1
    acting: int = 1
    shared_cores: int = 0
    network_bytes_per_second: float = math.inf
