"""A lock per served address: gRPC lets a second server steal a unix socket, or share a port."""

import fcntl
import os
from pathlib import Path

from seedrl.errors import AddressInUseError


class AddressLock:
    """Holds `<socket path>.lock` for a `unix:` address; for others the port itself is the lock.

    Raises AddressInUseError if another process holds it.
    """

    def __init__(self, bind: str):
        self._descriptor: int | None = None
        if not bind.startswith("unix:"):
            return
        path = Path(bind.removeprefix("unix:"))
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._descriptor = os.open(f"{path}.lock", os.O_CREAT | os.O_RDWR, 0o600)
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
