"""A lock per served address: gRPC lets a second server steal a unix socket, or share a port."""

import contextlib
import errno
import fcntl
import os
import socket
from pathlib import Path

from seedrl.errors import AddressInUseError, ConfigError


class AddressLock:
    """Holds `<socket path>.lock` for a `unix:` address; for others the port itself is the lock.

    A port is only looked at, so that one that is taken is reported in one line: gRPC, which
    takes it, would report it a second time in its own words.

    Raises AddressInUseError if another process holds it, ConfigError if the file of a socket
    cannot be made.
    """

    def __init__(self, bind: str):
        self._descriptor: int | None = None
        if not bind.startswith("unix:"):
            _look_at_port(bind)
            return
        path = Path(bind.removeprefix("unix:"))
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._descriptor = os.open(f"{path}.lock", os.O_CREAT | os.O_RDWR, 0o600)
        except OSError as error:
            raise ConfigError(
                f"serving.bind: expected a path where a socket can be made, got {bind} "
                f"({error.strerror})"
            ) from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.release()
            raise AddressInUseError(
                f"cannot serve on {bind}: another learner serves there; stop it or choose another "
                "serving.bind"
            ) from error

    def release(self) -> None:
        """Lets others have the address."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _look_at_port(bind: str) -> None:
    host, _, port = bind.rpartition(":")
    # What is no name, or cannot be resolved, is left to gRPC.
    with contextlib.suppress(socket.gaierror, UnicodeError):
        for family, kind, protocol, _, address in socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_STREAM
        ):
            try:
                with socket.socket(family, kind, protocol) as probe:
                    # As gRPC does: what a dead process left in TIME_WAIT is free.
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(address)
            except OSError as error:  # also a family that this kernel does not have
                if error.errno == errno.EADDRINUSE:
                    raise AddressInUseError(
                        f"cannot serve on {bind}: the address is in use; stop the other "
                        "process or choose another serving.bind"
                    ) from error
