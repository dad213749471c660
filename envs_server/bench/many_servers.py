"""Many small env servers in one process: `python -m envs_server.bench.many_servers`.

For measuring how a learner bears a large fleet. Each is a whole env server with a connection of its
own, in a thread; only environments that sleep make sense, because all share one interpreter.
"""

import sys
import threading
from dataclasses import dataclass

import tyro

from envs_server.connection import Offer
from envs_server.reconnecting_client import ReconnectingClient
from envs_server.stop import Stop
from seedrl.exit_codes import ExitCode

_MAX_MESSAGE_BYTES = 64 * 2**20


@dataclass(frozen=True, kw_only=True)
class Options:
    """Run many small env servers in one process."""

    learner: str
    """Address of the learner: host:port or unix:/path."""

    env_servers: int
    """Env servers to run."""

    num_envs: int
    """Environments of each."""

    groups: int = 1
    """Groups of each."""

    local_link: bool = True
    """See the env server's own."""


def main() -> None:
    """Runs until all of them have ended; exits with the worst of their codes."""
    options = tyro.cli(Options)
    offer = Offer(options.num_envs, options.groups, ())
    codes: list[ExitCode] = []

    def serve() -> None:
        client = ReconnectingClient(
            options.learner, offer, Stop(), _MAX_MESSAGE_BYTES, local_link=options.local_link
        )
        codes.append(client.run())

    threads = [threading.Thread(target=serve) for _ in range(options.env_servers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.exit(max(codes))


if __name__ == "__main__":
    main()
