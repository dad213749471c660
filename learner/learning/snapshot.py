"""What a checkpoint keeps of a session, as one value on the host."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from learner.learning.learn_step import LearnerState
from seedrl.replay.replay import ReplayState
from seedrl.types import Tree


class Snapshot(NamedTuple):
    """What a checkpoint needs, on the host. Learning takes it; whoever wires adds acting's part.

    Attributes:
      state: numpy leaves.
      indices: the replay's page indices, one per shard, as plain values.
      replay: numpy leaves, or `()` if the replay is not saved.
      acting: numpy leaves; `()` if the streams are cut where the run resumes.
      meta: counts of that very moment, by their names in a checkpoint.
      confirmed: parameters that are saved in place of those of `state`; None if none are.
    """

    state: LearnerState
    indices: list[dict[str, object]]
    replay: ReplayState | tuple[()]
    acting: Tree = ()
    meta: Mapping[str, Any] = {}
    confirmed: Tree | None = None
