"""Evaluation: rounds of episodes played by frozen parameters, shared out over slots beforehand."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from learner.threads.exchange import FrozenParams
from seedrl.config import EvaluationConfig
from seedrl.types import StepType


class Score(NamedTuple):
    """What a round found: the frozen parameters and their undiscounted returns."""

    frozen: FrozenParams
    returns: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean return."""
        return float(np.mean(self.returns))


class BestScore(NamedTuple):
    """The highest score of a session, the first of equal ones.

    Attributes:
      score: with the parameters, which it keeps alive.
      env_steps: training environment steps when the round ended.
    """

    score: Score
    env_steps: int


class Confirmation(NamedTuple):
    """How far a round of confirmation is.

    Attributes:
      returns: of the episodes that have ended.
      episodes: how many there shall be.
      num_slots: that play them.
    """

    returns: tuple[float, ...]
    episodes: int
    num_slots: int


class Round:
    """`episodes` of frozen parameters, shared out evenly over `slots`.

    How many each slot plays is fixed beforehand: taking the first ones to finish would prefer
    short ones. Episodes that had begun before the round do not count.
    """

    def __init__(self, frozen: FrozenParams, slots: np.ndarray, episodes: int):
        self.frozen = frozen
        self.slots = slots
        share, rest = divmod(episodes, len(slots))
        self._missing = {int(slot): share + (rank < rest) for rank, slot in enumerate(slots)}
        self._counting: set[int] = set()
        self._returns: list[float] = []

    def observe(
        self, slots: np.ndarray, step_types: np.ndarray, ended: Mapping[int, float]
    ) -> None:
        """Takes the rows just acted on, and the returns of episodes that ended in them, by slot."""
        for slot, episode_return in ended.items():
            if slot in self._counting and self._missing.get(slot, 0) > 0:
                self._missing[slot] -= 1
                self._returns.append(episode_return)
        self._counting.update(map(int, slots[step_types == StepType.FIRST.value]))

    @property
    def returns(self) -> tuple[float, ...]:
        """Of the episodes that count and have ended; for any thread."""
        return tuple(self._returns)

    @property
    def score(self) -> Score | None:
        """The result, once every slot has played its share."""
        if any(self._missing.values()):
            return None
        return Score(self.frozen, self.returns)


class Evaluator:
    """Decides when rounds run and what their results mean. Owned by the acting thread.

    A round whose mean reaches `target_return` only nominates its parameters: the same frozen
    parameters must reach it again over `confirm_episodes` fresh episodes.

    Attributes:
      is_running: whether evaluation slots should be acted on.
      confirmed: the score over the fresh episodes, once it has held.
    """

    def __init__(self, config: EvaluationConfig, now: float):
        self._config = config
        self._next_start = now
        self._play(None)
        self._is_confirming = False
        self.confirmed: Score | None = None

    def _play(self, round_: Round | None) -> None:
        # Acting looks at every batch: at something plain.
        self._round, self.is_running = round_, round_ is not None

    @property
    def is_confirming(self) -> bool:
        """Whether the parameters of a nomination are being played again."""
        return self._is_confirming

    @property
    def confirmation(self) -> Confirmation | None:
        """How far the confirmation is that is being played, if one is; for any thread."""
        round_ = self._round
        if not self._is_confirming or round_ is None:
            return None
        return Confirmation(round_.returns, self._config.confirm_episodes, len(round_.slots))

    @property
    def frozen(self) -> FrozenParams:
        """What acts on the evaluation slots."""
        assert self._round is not None
        return self._round.frozen

    def poll(self, now: float, latest: FrozenParams, live_slots: np.ndarray) -> None:
        """Starts a round if one is due; starts it again if evaluation slots appeared or left."""
        if self.confirmed is not None:
            return
        if self._round is not None:
            if np.array_equal(self._round.slots, live_slots):
                return
            latest = self._round.frozen
        elif now < self._next_start:
            return
        self._play(Round(latest, live_slots, self._episodes) if len(live_slots) else None)
        if not len(live_slots):
            # The nomination ends with its parameters: those of the next round are others.
            self._is_confirming = False

    @property
    def _episodes(self) -> int:
        return self._config.confirm_episodes if self._is_confirming else self._config.episodes

    def observe(
        self, now: float, slots: np.ndarray, step_types: np.ndarray, ended: Mapping[int, float]
    ) -> tuple[Score, bool] | None:
        """Takes rows of evaluation slots; returns a finished round's score, and if it confirmed."""
        assert self._round is not None
        self._round.observe(slots, step_types, ended)
        score = self._round.score
        if score is None:
            return None
        was_confirming = self._is_confirming
        target = self._config.target_return
        is_reached = target is not None and score.mean >= target
        self._is_confirming = is_reached and not was_confirming
        if is_reached and was_confirming:
            self.confirmed = score
            self._play(None)
        elif self._is_confirming:
            self._play(Round(score.frozen, self._round.slots, self._episodes))
        else:
            self._play(None)
            self._next_start = now + self._config.interval_seconds
        return score, was_confirming
