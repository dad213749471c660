"""The window of an agent: which stretches of a stream it learns from."""

from typing import NamedTuple


class WindowSpec(NamedTuple):
    """Which stretches of a slot's stream are learned from, in environment steps.

    A sequence has `length = burn_in + unroll + bootstrap` steps and starts at every `stride`-th
    step of a stream. R2D2 (Kapturowski et al. 2019): (40, 80, n, 40); DQN: (0, 1, n, 1).
    """

    burn_in: int  # leading steps that only bring the recurrent state up to date; never trained
    unroll: int  # steps that are trained
    bootstrap: int  # trailing steps that only supply targets; n for n-step returns
    stride: int  # distance between the starts of neighbouring sequences of one stream

    @property
    def length(self) -> int:
        """Steps of a sequence."""
        return self.burn_in + self.unroll + self.bootstrap

    def starts_in_page(self, page_steps: int) -> int:
        """M: how many sequences start in a page of K steps; 1 if it is no longer than a stride."""
        # Of pages that are shorter than a stride, most begin no sequence.
        return max(1, page_steps // self.stride)

    def pages_per_sequence(self, page_steps: int) -> int:
        """How many pages the sequences that start in one page of K steps reach into."""
        last_start = (self.starts_in_page(page_steps) - 1) * self.stride
        return -(-(last_start + self.length) // page_steps)
