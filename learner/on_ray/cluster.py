"""What a run asks of a cluster; `learner.on_ray.ray_cluster` asks Ray."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from learner.on_ray.nodes import Demand, Node


class LostError(Exception):
    """An actor is gone, with its process; the text says why."""


class UnansweredError(Exception):
    """An actor has not answered, and may be there or not."""


class Place(NamedTuple):
    """Where an actor is: the id and the address of its node, and seedrl's version there."""

    node: str
    address: str
    version: str


class Cluster(Protocol):
    """Actors, each a `HostedProcess` that also answers `place`; what a call returns is opaque.

    All methods raise HostLostError if the cluster cannot be reached any more.
    """

    def nodes(self) -> list[Node]:
        """Those that are alive."""

    def place(self, demand: Demand, node: Node | None) -> Any:
        """An actor: on that node if it can, else wherever `demand` is met, once it is."""

    def call(self, actor: Any, method: str, *arguments: object) -> Any:
        """Calls a method, and does not wait for it."""

    def ready(self, calls: Sequence[Any], seconds: float) -> Sequence[Any]:
        """Calls that have an answer; waits for one, so long at most."""

    def answer(self, call: Any) -> Any:
        """What a call that is ready has returned.

        Raises LostError, UnansweredError, or a ConfigError that it has raised.
        """

    def remove(self, actor: Any) -> None:
        """Ends an actor, and what it has started, by force."""
