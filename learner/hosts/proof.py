"""How hosts that meet prove to each other that they have the run's token, without sending it."""

import hmac
import json
import secrets
from typing import Any, Literal

_CONTEXT = "seedrl hosts 1"
_CHALLENGE_BYTES = 32


def challenge() -> str:
    """What nobody has been asked before."""
    return secrets.token_hex(_CHALLENGE_BYTES)


class Token:
    """The run's token; empty where a run does without, and proofs show nothing. Immutable."""

    def __init__(self, text: str = ""):
        """`text` is never shown."""
        self._key = text.encode()

    def proof(self, side: Literal["first", "other"], challenges: tuple[str, str], said: Any) -> str:
        """HMAC-SHA256 over what one side says, and what both have asked: of no use a second time.

        Args:
          side: who says it; so no side's proof is one of the other.
          challenges: the first host's, then the other one's.
          said: anything that JSON can hold.
        """
        text = json.dumps([_CONTEXT, side, *challenges, said], sort_keys=True)
        return hmac.new(self._key, text.encode(), "sha256").hexdigest()

    def accepts(
        self,
        proof: object,
        side: Literal["first", "other"],
        challenges: tuple[str, str],
        said: Any,
    ) -> bool:
        """Whether it is that proof; takes as long for any that is not."""
        try:
            expected = self.proof(side, challenges, said)
        except RecursionError:  # JSON could read it, but not write it
            return False
        if not isinstance(proof, str):
            return False
        # A text of JSON may have half of a surrogate pair.
        return hmac.compare_digest(proof.encode("utf-8", "surrogatepass"), expected.encode())
