"""Which of a run's learner processes this one is."""

from typing import Any, NamedTuple

from seedrl.errors import ConfigError


class Topology(NamedTuple):
    """How many learner processes share a run, and which of them this is. No field of a config.

    A config describes the whole run, however many hosts share it: each has its part of the training
    slots, of the devices and of a batch, and the first one evaluates, saves and reports.
    """

    coordinator: str = ""  # HOST:PORT at which the first one is reached; empty where it is alone
    process_count: int = 1
    process_index: int = 0

    @property
    def is_first(self) -> bool:
        """Whether this one does what is done once for all."""
        return self.process_index == 0

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.coordinator.rpartition(":")
        return host.strip("[]"), int(port)

    @property
    def name(self) -> str:
        return f"host {self.process_index} of {self.process_count}"

    def part(self, number: int) -> int:
        """How many of `number` things, dealt one by one, are this host's: i, i + H, i + 2H, …"""
        return len(self.own(range(number)))

    def own(self, of_all: Any) -> Any:
        return of_all[self.process_index :: self.process_count]


ALONE = Topology()


def topology_of(coordinator: str | None, count: int, index: int | None) -> Topology:
    """The topology that a command line names. Raises ConfigError if it is none."""
    # Index 0: schedulers set it for one host, too.
    if count == 1 and coordinator is None and index in (None, 0):
        return ALONE
    if count < 1:
        raise ConfigError(f"--process-count: expected at least 1, got {count}")
    if count == 1 or coordinator is None or index is None:
        raise ConfigError(
            "--process-count, --coordinator and --process-index: expected all three, the count at "
            "least 2, or none of them"
        )
    if not 0 <= index < count:
        raise ConfigError(
            f"--process-index: expected 0 to {count - 1} (--process-count {count}), got {index}"
        )
    host, colon, port = coordinator.rpartition(":")  # the last colon: an IPv6 address has others
    if not (host and colon and port.isdecimal() and 0 < int(port) < 65536):
        raise ConfigError(
            f"--coordinator: expected HOST:PORT, where the first host is reached, got "
            f"{coordinator!r}"
        )
    return Topology(coordinator, count, index)
