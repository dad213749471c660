"""`status.json`: the state of a run, for readers of its folder.

It is replaced every second, whole or not at all. On the learner's host a run that has not finished
is dead if no process holds the lock on `.lock` in the same folder; seen from another host, if the
file is older than 15 seconds. The docstrings below are the source of docs/events.md.
"""

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from learner.report.json_lines import plain, replace_file
from seedrl.run_files import STATUS

State = Literal[
    "starting", "waiting", "compiling", "training", "evaluating", "stopping", "finished"
]
# Reasons of a run that has not reached its end: a signal, or an error.
STOPPED = "stopped by"
THREAD_DIED, ERROR = "a thread of the learner died", "an error"
NOT_FINITE = "too many updates in a row were not finite"
OUT_OF_TIME = "learning.max_seconds are over"
NO_IMPROVEMENT = "no new best"
FAILED = frozenset({THREAD_DIED, ERROR, NOT_FINITE, ""})

# A status is written, and env servers are looked at, once in this time.
INTERVAL_SECONDS = 1.0
# A learner whose status is older is dead, or hangs.
FRESH_SECONDS = 15 * INTERVAL_SECONDS

EnvServerState = Literal["building", "live", "hung", "left"]


@dataclass(frozen=True, kw_only=True)
class EnvServerStatus:
    """An env server.

    Attributes:
      name: `host:pid`, unique.
      host: where it runs.
      state: `building` its environments, `live`, `hung` (a group has not sent a step for longer
        than `serving.step_deadline_seconds`), or `left`.
      since_seconds: Unix time at which it entered that state.
      groups: groups of environments that step together.
      environments: number of its environments: training_slots + evaluation_slots.
      training_slots: environments whose experience is learned from.
      evaluation_slots: environments that evaluate.
      steps_per_second: environment steps over the last second, of all of its environments.
      training_steps_per_second: environment steps over the last second, of its training
        environments.
      failures: exceptions of its environments so far.
      last_failure: the newest failure of an environment, in one line; its env server's log has the
        exception. Empty if there is none.
      waiting_seconds: how long the learner has waited for the slowest group's step, or 0.
      hung_groups: numbers of the groups that have exceeded the deadline.
      left_because: why it has left; empty if it has not.
      quarantined: environments that it has disabled, because they fail too often.
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
    training_steps_per_second: float = 0.0
    failures: int = 0
    last_failure: str = ""
    waiting_seconds: float = 0.0
    hung_groups: tuple[int, ...] = ()
    left_because: str = ""
    quarantined: int = 0

    @property
    def pid(self) -> int:
        """Its process on its host."""
        # What comes before the number is the env server's own word, and may hold anything.
        return int(self.name.rpartition(":")[2])


@dataclass(frozen=True, kw_only=True)
class EvaluationStatus:
    """A round of evaluation that has ended.

    Attributes:
      mean_return: mean return of its episodes.
      episodes: number of its episodes.
      env_steps: training environment steps when its parameters were made.
      ended_env_steps: training environment steps when it ended.
      updates: number of updates behind the evaluated parameters.
      is_confirmation: true if it had `evaluation.confirm_episodes` episodes, to confirm a target.
    """

    mean_return: float
    episodes: int
    env_steps: int
    ended_env_steps: int
    updates: int
    is_confirmation: bool = False


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What binds a run.

    Attributes:
      cause: `slow environments`, `slow network`, `one straggler` (an env server at less than half
        the speed of the others), `long deadline` (of batches), `too few groups`, `small batches`
        (acting spends its time on few rows), `slow updates`, `high replay ratio`, `full queue`, or
        `busy neighbour` (other programs take the cores).
      change: the recommended change; empty if there is none.
      gain: predicted gain of the change: 0.25 is a quarter more environment steps.
    """

    cause: str
    change: str
    gain: float


@dataclass(frozen=True, kw_only=True)
class Slots:
    """Number of environments of one role.

    Attributes:
      total: slots of the learner.
      live: slots with an environment that is ready.
      waiting: live slots whose step the learner has awaited for a second or more.
      hung: live slots whose step is later than `serving.step_deadline_seconds`.
    """

    total: int
    live: int = 0
    waiting: int = 0
    hung: int = 0


@dataclass(frozen=True, kw_only=True)
class Status:
    """State of a run.

    Attributes:
      time_seconds: Unix time at which this was written.
      state: `starting`; `waiting` for env servers; `compiling`;
        `training`; `evaluating`: a target is being confirmed, or all steps are taken; `stopping`;
        `finished`.
      state_since_seconds: Unix time at which it entered that state.
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
      env_steps_per_second: over the last second.
      updates_per_second: over the last second.
      target_return: `evaluation.target_return`, or null.
      last_evaluation: the newest round, or null.
      best_evaluation: the one with the highest mean, or null.
      waiting_for: reason why no environment steps; empty if they do.
      training_slots: Slots (below) of environments whose experience is learned from.
      evaluation_slots: Slots of environments that evaluate.
      env_servers: all of this session; connected ones first, then those that have left.
      balance: which side waits, and the change to make; empty if that is not measured.
      verdict: why that side binds, and what to change; null if that is not measured.
      metrics: last value of every metric, by the names in metrics.md.
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
    env_steps_per_second: float = 0.0
    updates_per_second: float = 0.0
    target_return: float | None
    last_evaluation: EvaluationStatus | None = None
    best_evaluation: EvaluationStatus | None = None
    waiting_for: str = ""
    training_slots: Slots
    evaluation_slots: Slots
    env_servers: tuple[EnvServerStatus, ...] = ()
    balance: str = ""
    verdict: Verdict | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)


def write_status(workdir: Path, status: Status) -> None:
    """Replaces the folder's `status.json`. A disk that refuses it keeps the old one."""
    with contextlib.suppress(OSError):
        replace_file(workdir / STATUS, json.dumps(plain(status), allow_nan=False) + "\n")
