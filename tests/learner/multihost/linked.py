"""Hosts that are threads of one process, joined by pairs of sockets."""

import contextlib
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from learner.multihost.peers import MessageSocket, Peers
from learner.multihost.topology import Topology
from tests.patience import SECONDS

Found = TypeVar("Found")


@contextlib.contextmanager
def linked(count: int, losses: list[str] | None = None, **options: Any) -> Iterator[list[Peers]]:
    """The peers of as many hosts; `losses` takes what each says of a host that it has lost."""
    pairs = {index: socket.socketpair() for index in range(1, count)}
    taken: list[str] = [] if losses is None else losses
    is_over: list[bool] = []

    def lose(line: str) -> None:
        if not is_over:
            taken.append(line)

    links = [{index: MessageSocket(pair[0]) for index, pair in pairs.items()}]
    links += [{0: MessageSocket(pair[1])} for pair in pairs.values()]
    hosts = [
        Peers(Topology("there:1", count, index), own, on_loss=lose, **options)
        for index, own in enumerate(links)
    ]
    try:
        yield hosts
    finally:
        is_over.append(True)
        for peers in hosts:
            peers.close()


def at_once(works: Sequence[Callable[[], Found]]) -> list[Found]:
    """What each gives, all of them in threads of their own."""
    with ThreadPoolExecutor(len(works)) as pool:
        return [each.result(SECONDS) for each in [pool.submit(work) for work in works]]
