"""The one description that all job files are written from."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from learner.jobs.accelerators import Accelerator
from learner.jobs.template import yaml_text
from seedrl.config import Config, LaunchConfig
from seedrl.errors import ConfigError

Spot = Literal["none", "env-servers", "all"]
# A label of a domain name, with room for what engines append to it: `-learner-0-0-abcde`.
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")
_WORD = re.compile(r"[\w.,:/-]*")
# Which extra of seedrl brings an environment; others are the reader's to install.
_EXTRAS = {
    r"ALE/": "atari",
    r"(LunarLander|BipedalWalker|CarRacing)": "box2d",
    r"(MiniGrid|BabyAI)-": "minigrid",
    r"(HalfCheetah|Hopper|Walker2d|Swimmer|Ant|Humanoid|Reacher|Pusher|Inverted)": "mujoco",
    r"envs_server\.envs\.minatar:": "minatar",
    r"(envs_server\.envs\.popgym:|popgym-)": "popgym",
}
# These an env server builds without being told that it may.
_ALWAYS_ALLOWED = "envs_server.envs."
_MOST_PER_NODE = 4


class Needs(NamedTuple):
    """What a run asks of its processes, whatever places them.

    Attributes:
      training_slots, evaluation_slots: environments that there is room for.
      groups: groups that an env server steps interleaved.
      factories: what env servers must be allowed to build.
      extra: of seedrl, which brings the environments; "" if none does, or none is needed.
      regime: of learning.
      options: of an env server's command line, for what `LaunchConfig` says of each.
    """

    training_slots: int
    evaluation_slots: int
    groups: int
    factories: tuple[str, ...]
    extra: str
    regime: str
    options: tuple[str, ...] = ()

    @property
    def slots(self) -> int:
        """All of them."""
        return self.training_slots + self.evaluation_slots


@dataclass(frozen=True, kw_only=True)
class Job:
    """A run as an engine places it: which processes, where; nothing of how it learns.

    Attributes:
      command: the command line that describes it.
      config: what its learner is started with.
      needs: of that configuration.
      accelerator: of each host of the learner.
      hosts: of the learner, one process on each.
      env_servers: processes, as many for each host.
      env_servers_per_node: of these on one node, where the engine thinks in nodes; None for the
        largest number up to 4 that they can be shared out by.
      name: of the job, and of what belongs to it.
      registry: where the images are pulled from; "" to put it before their names by hand.
      spot: what may run on machines that can be taken away at any time.
      queue: of the engine, in which the job waits; "" for the engine's own choice.
      env_server_queue: the same for env servers, where they wait in one of their own.
      hours: after which the engine ends it.
      learner_cpus, env_server_cpus: cores of one process.
      learner_memory_gib, env_server_memory_gib: memory of one process.
    """

    command: str
    config: str
    needs: Needs
    accelerator: Accelerator
    hosts: int = 1
    env_servers: int = 2
    env_servers_per_node: int | None = None
    name: str = "seedrl"
    registry: str = ""
    spot: Spot = "none"
    queue: str = ""
    env_server_queue: str = ""
    hours: int = 24
    learner_cpus: int = 8
    learner_memory_gib: int = 48
    env_server_cpus: int = 4
    env_server_memory_gib: int = 4

    def __post_init__(self) -> None:
        slots = self.needs.slots
        if not 1 <= self.env_servers <= slots:
            raise ConfigError(
                f"--env-servers: expected 1 to {slots}, the slots of {self.config}, got "
                f"{self.env_servers}"
            )
        self._check_hosts()
        self._check_numbers()
        self._check_words()

    def _check_hosts(self) -> None:
        if self.hosts == 1:
            return
        slots, regime = self.needs.training_slots, self.needs.regime
        if not 1 <= self.hosts <= slots:
            raise ConfigError(
                f"--hosts: expected 1 to {slots}, the training slots of {self.config}, got "
                f"{self.hosts}"
            )
        if regime != "asynchronous":
            raise ConfigError(
                f"--hosts: {self.config} has learning.regime {regime}, which is for one host; "
                f"expected 1, got {self.hosts}"
            )
        least = slots // self.hosts
        if self.env_servers % self.hosts or self.per_host > least:
            raise ConfigError(
                f"--env-servers: expected as many for each of the {self.hosts} hosts, at most "
                f"{least} for its training slots, got {self.env_servers} in all"
            )

    def _check_numbers(self) -> None:
        positive = ("hours", "learner_cpus", "learner_memory_gib", "env_server_cpus")
        for name in (*positive, "env_server_memory_gib"):
            if getattr(self, name) < 1:
                flag = f"--{name.replace('_', '-')}"
                raise ConfigError(f"{flag}: expected at least 1, got {getattr(self, name)}")
        if self.per_node < 1 or self.env_servers % self.per_node:
            raise ConfigError(
                f"--env-servers-per-node: expected a number that divides {self.env_servers} env "
                f"servers, got {self.per_node}"
            )

    def _check_words(self) -> None:
        if not _NAME.fullmatch(self.name) or yaml_text(self.name) != self.name:
            raise ConfigError(
                "--name: expected at most 40 lower-case letters, digits and hyphens, a letter "
                f"first, and no yes or no, got {self.name!r}"
            )
        for name in ("registry", "queue", "env_server_queue"):
            if not _WORD.fullmatch(getattr(self, name)):
                flag = f"--{name.replace('_', '-')}"
                raise ConfigError(f"{flag}: expected one word, got {getattr(self, name)!r}")
        if not self.config.isprintable() or "$" in self.config:
            raise ConfigError(
                f"CONFIG: expected printable text without $, which engines replace, got "
                f"{self.config!r}"
            )

    @property
    def per_host(self) -> int:
        """Env servers of each host of the learner."""
        return self.env_servers // self.hosts

    def slots_of(self, host: int) -> int:
        """Slots of a host of the learner; the first one has all that evaluate."""
        training = len(range(host, self.needs.training_slots, self.hosts))
        return training + (self.needs.evaluation_slots if host == 0 else 0)

    @property
    def environments(self) -> int:
        """Environments of each env server of the first host: together they fill its slots."""
        return math.ceil(self.slots_of(0) / self.per_host)

    @property
    def environments_of_others(self) -> int:
        """The same for every other host; none has more slots than the second."""
        return math.ceil(self.slots_of(1) / self.per_host)

    @property
    def per_node(self) -> int:
        """Env servers of one node."""
        if self.env_servers_per_node is not None:
            return self.env_servers_per_node
        return max(n for n in range(1, _MOST_PER_NODE + 1) if self.env_servers % n == 0)

    @property
    def nodes(self) -> int:
        """Nodes of env servers."""
        return self.env_servers // self.per_node


def needs(config: Config) -> Needs:
    """What a configuration asks for."""
    environment, serving = config.environment, config.serving
    factories = [name for name in (environment.id, *environment.wrappers) if ":" in name]
    found = (extra for pattern, extra in _EXTRAS.items() if re.match(pattern, environment.id))
    return Needs(
        training_slots=serving.training_slots,
        evaluation_slots=serving.evaluation_slots,
        groups=config.launch.groups,
        factories=tuple(
            name for name in dict.fromkeys(factories) if not name.startswith(_ALWAYS_ALLOWED)
        ),
        extra=next(found, ""),
        regime=config.learning.regime,
        options=tuple(_options(config.launch)),
    )


def _options(launch: LaunchConfig) -> Iterator[str]:
    if not launch.local_link:
        yield "--no-local-link"
    if launch.max_memory_mib:
        yield f"--max-memory-mib={launch.max_memory_mib}"
    if launch.group_threads:
        yield "--group-threads"
