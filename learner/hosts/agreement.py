"""What hosts agree on before each update: whether to learn, to save, or to end."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Self


class Vote(NamedTuple):
    """What one host knows and wants.

    Attributes:
      steps: environment steps of its training slots since its vote before.
      sequences: that each of its shards holds.
      is_able: whether it can take part in an update: its programs are compiled.
      wants_save: whether a checkpoint is due.
      wants_end: why the run is over; empty if it is not.
    """

    steps: int
    sequences: Sequence[int]
    is_able: bool
    wants_save: bool = False
    wants_end: str = ""

    @classmethod
    def from_json(cls, values: Sequence[Any]) -> Self:
        """Inverse of what JSON makes of a vote, a list."""
        return cls(*values)


class Decision(NamedTuple):
    """What follows from all votes; the same on all hosts.

    Attributes:
      steps: of all hosts.
      sequences: of all shards, in the order of their devices.
      are_able: whether all can take part in an update.
      is_saved: whether every host takes a snapshot now.
      end: why the run is over; empty if it is not. No update follows.
    """

    steps: int
    sequences: Sequence[int]
    are_able: bool
    is_saved: bool
    end: str


def decide(votes: Sequence[Vote]) -> Decision:
    """The decision; of several reasons to end the first host's counts, then the next one's."""
    end = next((vote.wants_end for vote in votes if vote.wants_end), "")
    return Decision(
        steps=sum(vote.steps for vote in votes),
        sequences=[number for vote in votes for number in vote.sequences],
        are_able=all(vote.is_able for vote in votes),
        # The end has a save of its own.
        is_saved=any(vote.wants_save for vote in votes) and not end,
        end=end,
    )
