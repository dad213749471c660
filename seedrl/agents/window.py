"""The window of an agent: which stretches of a stream it learns from."""

from typing import NamedTuple


class WindowSpec(NamedTuple):
    """Which stretches of a slot's stream are learned from, in environment steps.

    A sequence has `length = burn_in + unroll + bootstrap` rows and starts at every `stride`-th row
    of a stream. R2D2 (Kapturowski et al. 2019): (40, 80, n, 40); DQN: (0, 1, n, 1).

    Attributes:
      burn_in: leading rows that only warm the carry up; never trained.
      unroll: rows that are trained.
      bootstrap: trailing rows that only supply targets; n for n-step returns.
      stride: distance between the starts of neighbouring sequences of one stream.
    """

    burn_in: int
    unroll: int
    bootstrap: int
    stride: int

    @property
    def length(self) -> int:
        """Rows of a sequence."""
        return self.burn_in + self.unroll + self.bootstrap
