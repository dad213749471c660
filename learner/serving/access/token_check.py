"""The token that an env server must show."""

import hmac
from collections.abc import Iterable
from pathlib import Path

from seedrl.wire.channel import TOKEN_KEY
from seedrl.wire.credentials import read_token


class TokenCheck:
    """Compares what a call's metadata carries with the token in a file. Immutable."""

    def __init__(self, path: str) -> None:
        """`path` is "" if anybody may come. Raises ConfigError if it holds no token."""
        self._expected = f"Bearer {read_token(Path(path))}".encode() if path else None

    def admits(self, metadata: Iterable[tuple[str, str | bytes]] | None) -> bool:
        """Whether a call with this metadata has the token; takes as long for any that has not."""
        if self._expected is None:
            return True
        shown = [value for key, value in metadata or () if key == TOKEN_KEY]
        if len(shown) != 1:
            return False
        given = shown[0] if isinstance(shown[0], bytes) else shown[0].encode()
        return hmac.compare_digest(given, self._expected)
