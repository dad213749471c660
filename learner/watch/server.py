"""The web server of the page: one thread, no log of its own."""

import socket
from pathlib import Path

import uvicorn

from learner.watch.application import application
from seedrl.errors import AddressInUseError


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens at `host` and `port`; 0 takes a free port.

    Raises AddressInUseError if it cannot.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=64)
    except OSError as error:
        raise AddressInUseError(
            f"cannot serve on {host} port {port}: {error.strerror}; choose another --bind or --port"
        ) from error


def web_server(folder: Path) -> uvicorn.Server:
    """Serves the page of `folder` with `run(sockets=[...])` until `should_exit`, or a signal."""
    config = uvicorn.Config(
        application(folder),
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        # Pages keep their stream open for ever.
        timeout_graceful_shutdown=1,
    )
    return uvicorn.Server(config)
