"""Evaluation: rounds of episodes played by frozen parameters, shared out over slots beforehand."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from learner.report.status import EvaluationStatus
from learner.runtime.channel import VersionedParams
from learner.serving.core import Batch
from learner.serving.leases import Group
from seedrl.agents.agent import Agent
from seedrl.config import Actions, EvaluationConfig
from seedrl.types import StepType


class Episode(NamedTuple):
    """An episode that has ended."""

    episode_return: float  # undiscounted
    length: int = 0  # in agent steps
    # Of `environment.metrics`, in order; NaN for one it lacked. Empty if it was cut short.
    metrics: tuple[float, ...] = ()
    question: int = -1  # of a token policy: its number among those that are held out
    is_cut: bool = False


def pass_at(k: int, *, answers: int, right: int) -> float:
    """Estimate, without bias, of the chance that `k` answers contain a right one.

      1 - C(answers - right, k) / C(answers, k),  k <= answers

    Source: Chen et al. 2021, equation 1, https://arxiv.org/abs/2107.03374.
    """
    return 1.0 - math.comb(answers - right, k) / math.comb(answers, k)


class Score(NamedTuple):
    """What a round found: the frozen parameters, kept alive, and their episodes.

    It belongs to `frozen.env_steps`, not to the step at which the round ended.
    """

    frozen: VersionedParams
    episodes: tuple[Episode, ...]

    @property
    def returns(self) -> tuple[float, ...]:
        """Of each episode."""
        return tuple(each.episode_return for each in self.episodes)

    @property
    def mean(self) -> float:
        """Mean return."""
        return float(np.mean(self.returns))

    @property
    def mean_length(self) -> float:
        """Mean length of its episodes."""
        return float(np.mean([each.length for each in self.episodes]))

    def mean_metrics(self, names: Sequence[str]) -> dict[str, float]:
        """Means of `environment.metrics`, called `names`, over the episodes that have each."""
        rows = [each.metrics for each in self.episodes if each.metrics]
        # An episode may lack some of them; a round may have no episode with any.
        columns = zip(names, np.transpose(rows), strict=False)  # none without rows
        return {name: float(np.nanmean(x)) for name, x in columns if not np.isnan(x).all()}

    def pass_at_k(self) -> dict[str, float]:
        """Means over questions of `pass_at` for k = 1, 2, 4, ...; empty for one answer to each.

        An answer is right if its return is at least 1. A question with fewer than k answers, as
        after an env server was lost, is left out.
        """
        is_right: dict[int, list[bool]] = defaultdict(list)
        for each in self.episodes:
            if each.question >= 0:
                is_right[each.question].append(each.episode_return > 1 - 1e-6)
        most = max(map(len, is_right.values()), default=0)
        found = {}
        for k in (2**power for power in range(most.bit_length() if most > 1 else 0)):
            each_has = [own for own in is_right.values() if len(own) >= k]
            means = [pass_at(k, answers=len(own), right=sum(own)) for own in each_has]
            found[f"pass_at_{k}"] = float(np.mean(means))
        return found


def evaluation_exploration(agent: Agent, actions: Actions, training_slots: int) -> float:
    """What evaluation slots explore with; see `EvaluationConfig.actions`."""
    if actions == "agent":
        return agent.evaluation_exploration
    if actions == "deterministic":
        return 0.0  # by the contract of `Agent.act`
    return float(np.mean(agent.exploration(training_slots)))


class Round:
    """`episodes` of frozen parameters, shared out evenly over `slots`. The acting thread's.

    The number that each slot plays is fixed beforehand: taking the first ones to finish would
    prefer short ones. Episodes that were under way before the round do not count: env servers
    break them off, if they know how. When slots come or go, the missing episodes are shared out
    again.
    """

    def __init__(self, frozen: VersionedParams, slots: np.ndarray, episodes: int):
        self.frozen = frozen
        self._episodes = episodes
        self._has_left: set[int] = set()
        self._missing: dict[int, int] = {}  # episodes that each slot still has to play
        self._streams: dict[int, int] = {}  # of each slot, as it was last seen
        self._counting: set[int] = set()  # slots whose present episode counts
        # By slot, so that those of a slot that leaves can be taken back.
        self._played: list[tuple[int, Episode]] = []
        self.slots = slots  # those that are there; not all may be playing
        self._deal()

    def change(self, slots: np.ndarray) -> None:
        """Continues with other slots; without any it waits for some."""
        self.slots = slots
        self._leave(set(self._missing).difference(map(int, slots)))

    def _leave(self, left: set[int]) -> None:
        # A slot that leaves breaks off an episode, long ones rather than short ones. So no episode
        # that it has played counts, and it gets no more while others are there.
        for slot in left:
            self._streams.pop(slot, None)
        self._has_left |= left
        self._counting -= left
        self._played = [(slot, episode) for slot, episode in self._played if slot not in left]
        self._deal()

    def _deal(self) -> None:
        there = set(map(int, self.slots))
        # If all have left at some time, all start again.
        if there <= self._has_left:
            self._has_left = set()
        if not there:
            self._missing, self._counting = {}, set()
            return
        # A slot that stays keeps what it has played, and the episode that it is playing counts
        # whatever happens: leaving it out would prefer short ones again. So the number of episodes
        # of a slot is a stopping time, and by Wald's identity the mean is unbiased.
        playing = {slot for slot in self._counting if self.counts(slot)}
        # What plays comes first: none of it is left without an episode to play.
        slots = sorted(there - self._has_left, key=lambda slot: (slot not in playing, slot))
        share, rest = divmod(self._episodes - len(self._played), len(slots))
        self._missing = {slot: share + (rank < rest) for rank, slot in enumerate(slots)}
        # An episode that did not count when it began does not do so now.
        self._counting = playing

    def wants_reset(self, slots: np.ndarray, step_types: np.ndarray) -> bool:
        """Whether a group, whose rows come next, had better break off its episodes.

        At its first step of the round only: no action has been taken yet in an episode that counts.
        """
        if int(slots[0]) in self._streams:
            return False
        under_way = slots[step_types == StepType.MID.value].tolist()
        return any(map(self.counts, under_way))

    def observe(
        self,
        slots: np.ndarray,
        streams: np.ndarray,
        step_types: np.ndarray,
        ended: Mapping[int, Episode],
    ) -> None:
        """Takes the rows just acted on, and the episodes that ended in them, by slot."""
        # A slot with another stream than before has left, and returned before `change` could see.
        now = dict(zip(slots.tolist(), streams.tolist(), strict=True))
        cut = {slot for slot, stream in now.items() if self._streams.get(slot, stream) != stream}
        if left := cut & self._missing.keys():
            self._leave(left)
        self._streams |= now
        for slot, episode in ended.items():
            if slot in self._counting and self.counts(slot):
                self._missing[slot] -= 1
                self._played.append((slot, episode))
            # One that was cut short may go on: the next that counts begins with a FIRST row.
            self._counting.discard(slot)
        self._counting.update(map(int, slots[step_types == StepType.FIRST.value]))

    @property
    def returns(self) -> tuple[float, ...]:
        """Of the episodes that count and have ended."""
        return tuple(episode.episode_return for _, episode in self._played)

    def counts(self, slot: int) -> bool:
        """True if the slot still has episodes to play."""
        return self._missing.get(slot, 0) > 0

    @property
    def missing_slots(self) -> np.ndarray:
        """Slots that still have episodes to play, `[M] int64`."""
        return np.array([slot for slot, number in self._missing.items() if number > 0], np.int64)

    @property
    def score(self) -> Score | None:
        """The result, once every slot has played its share."""
        return None if len(self._played) < self._episodes else self.score_so_far

    @property
    def score_so_far(self) -> Score:
        """Of the episodes that have ended."""
        return Score(self.frozen, tuple(episode for _, episode in self._played))


class Evaluator:
    """Decides when rounds run and what their results mean. Owned by the acting thread.

    A round whose mean reaches `target_return` only nominates its parameters: the same frozen
    parameters must reach it again over `confirm_episodes` fresh episodes.
    """

    def __init__(self, config: EvaluationConfig, now: float, *, interval_steps: int = 1):
        """`interval_steps`: see `EvaluationConfig`, but never 0."""
        self._config, self._interval_steps = config, interval_steps
        self.rollouts_per_question = config.rollouts_per_question
        # The first round starts at once, so that a curve starts with untrained parameters.
        self._next_start, self._next_step = now, 0
        self.played_version = -1  # of the newest round; for any thread
        self._play(None)
        self.is_confirming = False  # the parameters of a nomination are being played again
        self.confirmed: Score | None = None  # over fresh episodes, once it has reached the target

    def resume(self, newest: EvaluationStatus) -> None:
        """Continues after the newest round of earlier sessions; before the acting thread starts.

        The next one is due as if the run had not been interrupted: however often it is, patience
        counts the same rounds. One that reached the target is played again at once, because its
        confirmation was broken off.
        """
        target = self._config.target_return
        if target is None or newest.mean_return < target:
            self._next_step = self._step_after(newest.env_steps)

    def _step_after(self, env_steps: int) -> int:
        # By steps, so that a curve has the same points on a slow machine and on a fast one.
        return (env_steps // self._interval_steps + 1) * self._interval_steps

    def _play(self, round_: Round | None) -> None:
        # Acting reads `is_running` at every batch: a plain attribute, no property.
        self._round, self.is_running = round_, round_ is not None

    @property
    def frozen(self) -> VersionedParams:
        """The parameters that act on the evaluation slots."""
        assert self._round is not None
        return self._round.frozen

    @property
    def round(self) -> tuple[int, bool] | None:
        """What tells the round that is running from all others; None between two."""
        return (self.frozen.version, self.is_confirming) if self.is_running else None

    def counts(self, slot: int) -> bool:
        """True if an episode that the slot starts now will count."""
        return self._round is not None and self._round.counts(slot)

    def resets(self, batch: Batch) -> list[Group]:
        """The groups of an evaluation batch that had better reset their environments."""
        assert self._round is not None
        return [
            item.group
            for item in batch.pending
            if self._round.wants_reset(item.group.slots, item.timestep.step_type)
        ]

    def poll(
        self, now: float, latest: VersionedParams, live_slots: np.ndarray, *, is_last: bool = False
    ) -> None:
        """Starts a round if one is due; evaluation slots that appeared or left change it.

        With `is_last`, which says that no update follows `latest`, one is due at once.
        """
        # Parameters are played once: while learning is compiled, for example, they do not change.
        if self.confirmed is not None:
            return
        if self._round is not None:
            if not np.array_equal(self._round.slots, live_slots):
                self._round.change(live_slots)
        elif len(live_slots) and latest.version != self.played_version:
            is_due = now >= self._next_start and latest.env_steps >= self._next_step
            if is_due or is_last:
                self._next_step = self._step_after(latest.env_steps)
                self._play(Round(latest, live_slots, self._episodes))
                # Last: the main thread ends the run if these were played and no round is running.
                self.played_version = latest.version

    @property
    def _episodes(self) -> int:
        return self._config.confirm_episodes if self.is_confirming else self._config.episodes

    def observe(
        self,
        now: float,
        slots: np.ndarray,
        streams: np.ndarray,
        step_types: np.ndarray,
        ended: Mapping[int, Episode],
    ) -> tuple[Score, bool] | None:
        """Takes rows of evaluation slots; returns a finished round's score, and if it confirmed."""
        assert self._round is not None
        self._round.observe(slots, streams, step_types, ended)
        score = self._round.score
        if score is None:
            return None
        was_confirming = self.is_confirming
        target = self._config.target_return
        is_reached = target is not None and score.mean >= target
        self.is_confirming = is_reached and not was_confirming
        if is_reached and was_confirming:
            self.confirmed = score
            self._play(None)
        elif self.is_confirming:
            self._play(Round(score.frozen, self._round.slots, self._episodes))
        else:
            self._play(None)
            self._next_start = now + self._config.interval_seconds
        return score, was_confirming
