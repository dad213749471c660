"""Which of a run's learner processes this one is."""

from typing import Any, NamedTuple

from seedrl.errors import ConfigError


class Place(NamedTuple):
    """The place of this process among those of a run. Not a hyper-parameter: no config has it.

    A config describes the whole run, however many hosts share it: each has its part of the training
    slots, of the devices and of a batch, and the first one evaluates, saves and reports.

    Attributes:
      coordinator: `HOST:PORT` at which the first one is reached; empty where it is alone.
      num_hosts: H, how many there are.
      host_index: which one this is, from 0.
    """

    coordinator: str = ""
    num_hosts: int = 1
    host_index: int = 0

    @property
    def is_first(self) -> bool:
        """Whether this one does what is done once for all."""
        return self.host_index == 0

    @property
    def address(self) -> tuple[str, int]:
        """Of the coordinator: a name or an address, and a port."""
        host, _, port = self.coordinator.rpartition(":")
        return host.strip("[]"), int(port)

    @property
    def name(self) -> str:
        """For messages."""
        return f"host {self.host_index} of {self.num_hosts}"

    def part(self, number: int) -> int:
        """How many of `number` things, dealt one by one, are this host's: i, i + H, i + 2H, …"""
        return len(range(self.host_index, number, self.num_hosts))

    def own(self, of_all: Any) -> Any:
        """Those of things so dealt that are this host's."""
        return of_all[self.host_index :: self.num_hosts]


ALONE = Place()


def place_of(coordinator: str | None, count: int, index: int | None) -> Place:
    """The place that a command line names. Raises ConfigError if it is none."""
    if count == 1 and coordinator is None and index in (None, 0):
        return ALONE
    if count < 1:
        raise ConfigError(f"--hosts: expected at least 1, got {count}")
    if count == 1 or coordinator is None or index is None:
        raise ConfigError(
            "--hosts, --coordinator and --host-index: expected all three, with --hosts of at least "
            "2, or none of them"
        )
    if not 0 <= index < count:
        raise ConfigError(f"--host-index: expected 0 to {count - 1} (--hosts {count}), got {index}")
    host, colon, port = coordinator.rpartition(":")
    if not (host and colon and port.isdecimal() and 0 < int(port) < 65536):
        raise ConfigError(
            f"--coordinator: expected HOST:PORT, where the first host is reached, got "
            f"{coordinator!r}"
        )
    return Place(coordinator, count, index)
