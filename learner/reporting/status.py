"""`status.json`: what a run is doing now, for readers of its folder.

It is written every second, whole or not at all. A reader takes a run for dead when the file of one
that has not finished is older than a few seconds; on the same host at once, when nobody holds the
lock on the file `.lock` beside it. These docstrings are the source of
docs/events.md.
"""

import contextlib
import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from learner.reporting.json_lines import plain
from seedrl.run_files import STATUS

State = Literal[
    "starting", "waiting", "compiling", "training", "evaluating", "stopping", "finished"
]
# Why a run has ended without having got where it was to get: by a signal, or by an error.
STOPPED = "a signal asked for it"
THREAD_DIED, ERROR = "a thread of the learner died", "an error"
NOT_FINITE = "no update was finite any more"
FAILED = frozenset({THREAD_DIED, ERROR, NOT_FINITE, ""})

EnvServerState = Literal["building", "live", "hung", "left"]


@dataclass(frozen=True, kw_only=True)
class EnvServerStatus:
    """An env server, as the learner sees it.

    Attributes:
      name: `host:pid`, unique.
      host: where it runs.
      state: `building` its environments, `live`, `hung` (a group has not sent a step for longer
        than `serving.step_deadline_seconds`), or `left`.
      since_seconds: Unix time since which it has been in that state.
      groups: groups of environments that step together.
      environments: all of its environments: training_slots + evaluation_slots.
      training_slots: environments whose experience is learned from.
      evaluation_slots: environments that measure.
      steps_per_second: environment steps over the last second, of all of its environments.
      failures: exceptions of its environments so far.
      last_failure: the newest of them, in one line; empty if there is none.
      waiting_seconds: how long the learner has waited for the slowest group's step; 0 if for none.
      hung_groups: numbers of the groups that have exceeded the deadline.
      left_because: why it has left; empty if it has not.
      quarantined: environments that it goes on without, because they fail too often.
    """

    name: str
    host: str
    state: EnvServerState
    since_seconds: float
    groups: int
    environments: int
    training_slots: int
    evaluation_slots: int
    steps_per_second: float = 0.0
    failures: int = 0
    last_failure: str = ""
    waiting_seconds: float = 0.0
    hung_groups: tuple[int, ...] = ()
    left_because: str = ""
    quarantined: int = 0


@dataclass(frozen=True, kw_only=True)
class EvaluationStatus:
    """A round of evaluation that has ended.

    Attributes:
      mean_return: of its episodes.
      episodes: how many.
      env_steps: training environment steps when it ended.
      updates: in the parameters that were evaluated.
      is_confirmation: whether it was one of `evaluation.confirm_episodes`.
    """

    mean_return: float
    episodes: int
    env_steps: int
    updates: int
    is_confirmation: bool = False


@dataclass(frozen=True, kw_only=True)
class Slots:
    """How many environments there are.

    Attributes:
      total: that the learner would take.
      live: of env servers that are ready.
      waiting: of those, the ones for whose step the learner has waited for a second or more.
      hung: of those, the ones beyond `serving.step_deadline_seconds`.
    """

    total: int
    live: int = 0
    waiting: int = 0
    hung: int = 0


@dataclass(frozen=True, kw_only=True)
class Status:
    """What a run is doing.

    Attributes:
      time_seconds: Unix time at which this was written.
      state: `starting`; `waiting` for env servers; `compiling`, acting already or not yet;
        `training`; `evaluating`: a confirmation is being played; `stopping`; `finished`.
      state_since_seconds: Unix time since which it is in that state.
      reason: why the run has ended; empty before.
      config: name of the configuration.
      pid: of the learner.
      host: name of the machine that it runs on.
      address: where it serves.
      started_seconds: Unix time at which this session began.
      elapsed_seconds: time of the run, over all of its sessions.
      env_steps: training environment steps of the run.
      total_steps: `learning.total_steps`.
      updates: updates of the run.
      skipped_updates: updates that were not finite.
      target_return: `evaluation.target_return`, or null.
      training_return: mean of the training episodes that ended last, or null.
      last_evaluation: the newest round, or null.
      best_evaluation: the one with the highest mean, or null.
      is_evaluating: whether a round is being played.
      env_steps_per_second: over the last second.
      updates_per_second: over the last second.
      replay_ratio: measured.
      replay_ratio_target: configured.
      policy_lag_updates: measured, over the last interval of metrics; null before there is one.
      acting_waits_share: of the last interval of metrics.
      learning_waits_share: of the last interval of metrics.
      waiting_for: who waits for whom, in words; empty if nobody waits.
      training_slots: environments whose experience is learned from.
      evaluation_slots: environments that measure.
      env_servers: all that have been there in this session, those that have left last.
    """

    time_seconds: float
    state: State
    state_since_seconds: float = 0.0
    reason: str = ""
    config: str
    pid: int
    host: str = ""
    address: str = ""
    started_seconds: float
    elapsed_seconds: float
    env_steps: int = 0
    total_steps: int
    updates: int = 0
    skipped_updates: int = 0
    target_return: float | None
    training_return: float | None = None
    last_evaluation: EvaluationStatus | None = None
    best_evaluation: EvaluationStatus | None = None
    is_evaluating: bool = False
    env_steps_per_second: float = 0.0
    updates_per_second: float = 0.0
    replay_ratio: float | None = None
    replay_ratio_target: float | None = None
    policy_lag_updates: float | None = None
    acting_waits_share: float | None = None
    learning_waits_share: float | None = None
    waiting_for: str = ""
    training_slots: Slots
    evaluation_slots: Slots
    env_servers: tuple[EnvServerStatus, ...] = ()


def write_status(workdir: Path, status: Status) -> None:
    """Replaces the folder's `status.json`. A disk that refuses it keeps the old one."""
    try:
        text = json.dumps(status, default=vars, allow_nan=False)
    except ValueError:  # not finite: rare, and ten times as slow
        text = json.dumps(plain(dataclasses.asdict(status)), allow_nan=False)
    new = workdir / f".{STATUS}.new"
    with contextlib.suppress(OSError):
        new.write_text(text + "\n")
        os.replace(new, workdir / STATUS)
