"""How a run went."""

from pathlib import Path
from typing import NamedTuple


class Summary(NamedTuple):
    """How a training run went.

    Attributes:
      mean_return, episodes: of the last evaluation round; None and 0 if there was none.
      env_steps: training environment steps, over all sessions of the run.
      wall_seconds: of this session, from the start of the learner.
      env_steps_per_second: of this session.
      replay_ratio: measured: trained steps per training environment step.
      policy_lag_updates: measured: mean updates between acting and learning, last interval.
      updates: applied updates.
      best_return, best_updates: of the best checkpoint; None and 0 if there is none.
      workdir: the run folder.
      solved: whether a target return was reached and confirmed.
    """

    mean_return: float | None
    episodes: int
    env_steps: int
    wall_seconds: float
    env_steps_per_second: float
    replay_ratio: float
    policy_lag_updates: float
    updates: int
    workdir: Path
    solved: bool
    best_return: float | None = None
    best_updates: int = 0
