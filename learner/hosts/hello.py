"""What a host says of itself when hosts meet, and what must be the same on all of them."""

from typing import Any, NamedTuple, Self


class Hello(NamedTuple):
    """What a host says of itself.

    Attributes:
      host_index, num_hosts: see `Place`.
      run: what must be the same on all hosts, by name, each as a short text.
    """

    host_index: int
    num_hosts: int
    run: dict[str, str]

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """Inverse of what JSON makes of its fields.

        Raises TypeError, ValueError, KeyError, and OverflowError for an infinite number.
        """
        return cls(int(values["host_index"]), int(values["num_hosts"]), dict(values["run"]))

    def problem_of(self, other: Self) -> str:
        """Why another host cannot take part in this one's run; empty if it can."""
        if other.num_hosts != self.num_hosts:
            return f"--hosts: expected {self.num_hosts}, as host 0 has, got {other.num_hosts}"
        if not 0 < other.host_index < self.num_hosts:
            return (
                f"--host-index: expected 1 to {self.num_hosts - 1} beside host 0, got "
                f"{other.host_index}"
            )
        for name, value in self.run.items():
            if other.run.get(name) != value:
                return (
                    f"{name}: expected the same on all hosts, got {other.run.get(name)} where host "
                    f"0 has {value}; start all with one command line but for --host-index and "
                    "--bind"
                )
        return ""
