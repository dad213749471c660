"""What is asked of a learner, and what it runs on."""

import math
from dataclasses import dataclass

from seedrl.config import Config


@dataclass(frozen=True, kw_only=True)
class Demand:
    """Environments, and what is learned from them.

    Attributes:
      environments: all of them.
      envs_per_server: of each env server.
      groups: that an env server steps one after another, each while the others wait for actions.
      groups_at_once: how many of these step side by side, each in a thread of its own.
      step_seconds: of one environment, by the clock; a group's environments take turns.
      step_cpu_seconds: of these, what it computes.
      equal_steps: whether each step takes exactly that long, rather than about that.
      batch_deadline_seconds: see `ServingConfig`.
      steps_per_update: environment steps for each update; infinite if nothing is learned.
      message_bytes: of a group's step on the wire, with its answer.
      in_rounds: whether a batch waits for all environments, and acting waits for each update, as in
        every `learning.regime` but asynchronous.
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
    groups_at_once: int = 1
    in_rounds: bool = False

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
      devices: that it learns with, and acts with unless others do; of a CPU, cores.
      learning: devices that share the batch of an update; of a CPU, one.
      acting: threads that act, one for each device that does. Each has a queue and batches of its
        own, and its part of the messages.
      act_elsewhere: whether these devices only act.
      shared_cores: of the one machine that has the env servers too, whose cores are the devices; 0
        if env servers have machines of their own, with as many cores as they take.
      network_bytes_per_second: into the learner's host; infinite within one machine.
    """

    devices: int = 1
    learning: int = 1
    acting: int = 1
    act_elsewhere: bool = False
    shared_cores: int = 0
    network_bytes_per_second: float = math.inf


def machines_of(
    config: Config,
    hosts: int,
    *,
    devices: int,
    cores: int = 0,
    network_bytes_per_second: float = math.inf,
) -> Machines:
    """Each of that many hosts, and which of its devices learn and act.

    As `learner.session.geometry.split_devices` does it, but that what CONFIG asks for and a host
    cannot have is given as far as it can: `remarks` says what would have to change.

    Args:
      devices: that jax sees on each host.
      cores: that they are, if they are no accelerators; 0 if they are.
    """
    own = min(-(-config.serving.inference_devices // hosts), devices - 1)
    learning = min(-(-config.learning.num_devices // hosts) or devices, devices - own)
    together = learning if config.learning.regime == "asynchronous" else 1
    return Machines(
        devices=cores or learning,
        learning=learning,
        acting=own or together,
        act_elsewhere=own > 0,
        network_bytes_per_second=network_bytes_per_second,
    )
