"""The lines of `metrics.jsonl` that are not of an interval; docs/metrics.md is made from them.

A test compares their kinds and fields with those that the code writes, in both directions.
"""

from typing import NamedTuple


class Record(NamedTuple):
    """A line of another kind, written when something happens.

    Attributes:
      kind: what `kind` says in the line.
      fields: name -> meaning.
      meaning: when it is written.
    """

    kind: str
    fields: dict[str, str]
    meaning: str


RECORDS: tuple[Record, ...] = (
    Record(
        "session",
        {
            "env_steps": "training environment steps of the run at its start; what lines above it "
            "say of later steps was not saved, and is not learned from; its rounds were played",
            "is_begun_anew": "whether `--resume never` began another attempt, to which nothing "
            "above belongs",
        },
        "a session begins to train",
    ),
    Record(
        "evaluation",
        {
            "mean_return": "of the round's episodes",
            "standard_deviation": "of their returns",
            "episodes": "number of episodes",
            "updates": "updates in the parameters that were evaluated",
            "env_steps": "training environment steps when the round ended",
            "is_confirmation": "whether the round was one of `evaluation.confirm_episodes`",
        },
        "a round of evaluation has ended",
    ),
    Record("checkpoint", {"updates": "updates in the checkpoint"}, "a save has begun"),
    Record(
        "ledger",
        {},
        "the run has ended and all is at rest; the accounts without the prefix `ledger/`",
    ),
)
