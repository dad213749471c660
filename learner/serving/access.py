"""The way to a learner: its address, the lock on it, and the token that a call must carry.

An address that other machines reach needs TLS and a token (`seedrl.config` requires both);
without an address a learner serves on a socket that only its own user can reach.
"""

import contextlib
import dataclasses
import errno
import fcntl
import hashlib
import hmac
import os
import socket
import stat
import tempfile
import time
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc

from learner.serving.peer import EndError
from seedrl.config import Config
from seedrl.errors import AddressInUseError, ConfigError
from seedrl.wire.channel import TOKEN_KEY
from seedrl.wire.credentials import read_token

_LONGEST_FOLDER_BYTES = 60  # of the 107 bytes that a socket's path may have
# Between two reports of calls without the token: a flood must not take the hub's lock each time.
_REPORT_SECONDS = 1.0
_UNKNOWN = EndError(
    grpc.StatusCode.UNAUTHENTICATED,
    "expected the learner's token; start the env server with --token-file",
)


def with_address(config: Config, workdir: Path) -> Config:
    """The configuration with a private address, if it has none; see `private_address`."""
    if config.serving.bind:
        return config
    serving = dataclasses.replace(config.serving, bind=private_address(workdir))
    return dataclasses.replace(config, serving=serving)


def private_address(workdir: Path) -> str:
    """`unix:/path` in a folder of this user's alone: the same for each learner of the run folder.

    So env servers find a learner again that was started again. Raises ConfigError if the folder is
    somebody else's, or open to others.
    """
    parent = tempfile.gettempdir()
    if len(os.fsencode(parent)) > _LONGEST_FOLDER_BYTES:
        parent = "/tmp"
    folder = Path(parent) / f"seedrl-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise ConfigError(
            f"cannot make {folder} for the learner's socket ({error.strerror}); give --bind"
        ) from error
    # Whoever made it first could otherwise stand between the learner and its env servers.
    is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    if not is_own or found.st_mode & 0o077:
        raise ConfigError(
            f"expected {folder} to be a folder of this user's with mode 0700, for the learner's "
            "socket; remove it, or give --bind unix:/path in a folder of your own"
        )
    name = hashlib.sha256(os.fsencode(workdir.resolve())).hexdigest()[:16]
    return f"unix:{folder}/{name}"


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


def host_of(peer: str) -> str:
    """A peer as gRPC writes it without its port, which is another one whenever it returns."""
    peer = urllib.parse.unquote(peer)
    return peer.rpartition(":")[0] if peer.startswith(("ipv4:", "ipv6:")) else peer


class TokenInterceptor(grpc.ServerInterceptor):  # type: ignore[misc]
    """Refuses calls without the token, before anything of them is read. Used by any thread."""

    def __init__(self, path: str, turn_away: Callable[[str, EndError], object]) -> None:
        """`turn_away` is told of a refused peer, at most once a second.

        `path` is "" if any caller may come. Raises ConfigError if it holds no token.
        """
        self._expected = f"Bearer {read_token(Path(path))}".encode() if path else None
        self._turn_away = turn_away
        self._next_report = 0.0

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """The handler of a call: its own, or one that refuses it."""
        if self._admits(details.invocation_metadata or ()):
            return continuation(details)
        # A stream on both sides, whatever the call is: so gRPC reads nothing of it first.
        return grpc.stream_stream_rpc_method_handler(self._refuse)

    def _admits(self, metadata: Any) -> bool:
        if self._expected is None:
            return True
        shown = [value for key, value in metadata if key == TOKEN_KEY]
        if len(shown) != 1:
            return False
        given = shown[0] if isinstance(shown[0], bytes) else shown[0].encode()
        # Takes as long for any other token, however much of it is right.
        return hmac.compare_digest(given, self._expected)

    def _refuse(self, _: object, context: grpc.ServicerContext) -> None:
        now = time.monotonic()
        # Two threads may both report: that does no harm.
        if now >= self._next_report:
            self._next_report = now + _REPORT_SECONDS
            self._turn_away(host_of(context.peer()), _UNKNOWN)
        context.abort(_UNKNOWN.code, _UNKNOWN.details)
