"""The way to a learner: its address, the lock on it, and the token that a call must carry.

An address that other machines reach needs TLS and a token (`seedrl.config` requires both);
without an address a learner serves on a socket that only its own user can reach.
"""

import contextlib
import hashlib
import hmac
import os
import stat
import tempfile
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc

from learner.processes.locks import locked
from learner.serving.hub import EndError
from seedrl.config import Config
from seedrl.errors import AddressInUseError, ConfigError
from seedrl.fields import with_fields
from seedrl.wire.channel import TOKEN_KEY
from seedrl.wire.credentials import read_token

_LONGEST_FOLDER_BYTES = 60  # of the 107 bytes that a socket's path may have
_UNKNOWN = EndError(
    grpc.StatusCode.UNAUTHENTICATED,
    "expected the learner's token; give a copy of its file as --token-file",
)


def with_address(config: Config, workdir: Path) -> Config:
    """The configuration with a private address, if it has none; see `private_address`."""
    if config.serving.bind:
        return config
    return with_fields(config, {"serving.bind": private_address(workdir)})


def private_address(workdir: Path) -> str:
    """`unix:/path` in a private directory of this user, the same for each learner of a run.

    So env servers find a learner again that was restarted. Raises ConfigError if the directory is
    another user's, or open to others.
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
    # A user who made it first could otherwise stand between the learner and its env servers.
    is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    if not is_own or found.st_mode & 0o077:
        raise ConfigError(
            f"expected {folder} to be a directory of this user's with mode 0700, for the learner's "
            "socket; remove it, or give --bind unix:/path in a directory of your own"
        )
    name = hashlib.sha256(os.fsencode(workdir.resolve())).hexdigest()[:16]
    return f"unix:{folder}/{name}"


def lock_address(bind: str) -> contextlib.ExitStack:
    """Holds `<socket path>.lock` for a `unix:` address until it is closed.

    Raises AddressInUseError if another process holds it, ConfigError if it cannot be made.
    """
    held = contextlib.ExitStack()
    if not bind.startswith("unix:"):
        return held  # a port is its own lock; but gRPC replaces a socket that another one serves
    path = Path(bind.removeprefix("unix:"))
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        held.callback(os.close, locked(path.with_name(f"{path.name}.lock")))
    except BlockingIOError as error:
        raise AddressInUseError(
            f"cannot serve on {bind}: another learner serves there; stop it or choose another "
            "serving.bind"
        ) from error
    except OSError as error:  # some file systems have no locks
        raise ConfigError(
            f"serving.bind: expected a path where a socket and its lock can be made, got {bind} "
            f"({error.strerror})"
        ) from error
    return held


def host_of(peer: str) -> str:
    """A peer as gRPC writes it without its port, which is another one whenever it returns."""
    peer = urllib.parse.unquote(peer)
    return peer.rpartition(":")[0] if peer.startswith(("ipv4:", "ipv6:")) else peer


class TokenInterceptor(grpc.ServerInterceptor):  # type: ignore[misc]
    """Refuses calls without the token, before any message of them is read. Used by any thread."""

    def __init__(self, path: str, turn_away: Callable[[str, EndError], object]) -> None:
        """`path` is "" if any caller may come. Raises ConfigError if it holds no token.

        `turn_away` takes each refused peer.
        """
        self._expected = f"Bearer {read_token(Path(path))}".encode() if path else None
        self._turn_away = turn_away

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """The handler of a call: its own, or one that refuses it. Called once for each call."""
        if self._admits(details.invocation_metadata or ()):
            return continuation(details)
        # A stream on both sides, whatever the call is: so gRPC reads no message of it first.
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
        self._turn_away(host_of(context.peer()), _UNKNOWN)
        context.abort(_UNKNOWN.code, _UNKNOWN.details)
