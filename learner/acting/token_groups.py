"""Rollouts of token policies and their questions: which is asked when, and which form a group.

Rollouts are numbered. Number n belongs to group n // G, and each group has one question, whose seed
follows from the run's seed and the group's number. When an environment is ready for an episode, it
gets the next number, whichever env server it is of; a number that is lost with its env server goes
to the next one that is ready. Groups are sent to learning in order.

Learning takes groups in that order, so the update that will train a group is known when its
question is asked; see `GroupQueueConfig`.
"""

import hashlib
import heapq
from typing import NamedTuple

import jax
import numpy as np

from seedrl.agents.token_agent import POLICY
from seedrl.specs import FIRST_HELD_OUT_SEED, MOST_SEED
from seedrl.types import StoredStep


def question_seed(run_seed: int, group: int) -> int:
    """The seed of a training group's question."""
    return _hash(f"{run_seed}/group/{group}") % FIRST_HELD_OUT_SEED


def held_out_seed(run_seed: int, episode: int) -> int:
    """The seed of an evaluation episode's question, which no training group has."""
    number = _hash(f"{run_seed}/held out/{episode}")
    return FIRST_HELD_OUT_SEED + number % (MOST_SEED + 1 - FIRST_HELD_OUT_SEED)


def training_seeds(run_seed: int, number: int) -> list[int]:
    """Seeds of questions for pretraining, none of which is held out."""
    return [_hash(f"{run_seed}/solution/{index}") % FIRST_HELD_OUT_SEED for index in range(number)]


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


class GroupPlan(NamedTuple):
    """How rollouts form groups and updates."""

    run_seed: int  # of questions
    group: int  # rollouts of a group, G
    groups_per_update: int
    max_lag_updates: int  # see `GroupQueueConfig`


class Groups:
    """The rollouts that are asked, and those that wait for the others of their group.

    Owned by the acting thread.
    """

    def __init__(self, plan: GroupPlan, first_group: int = 0):
        """`first_group`: the number of the first that is asked."""
        self._plan, self._size = plan, plan.group
        self._next = first_group * plan.group
        self._returned: list[int] = []  # numbers whose rollout was lost, a heap
        self._finished: dict[int, dict[int, StoredStep]] = {}  # by group and number
        self._next_group = first_group  # the first that was not sent

    def take(self, *, waiting: int, learned: int, acting: int) -> int | None:
        """The next number to play; None if an answer could be trained too late.

        Args:
          waiting: groups that were sent and that no update has taken.
          learned, acting: versions of the newest parameters, and of those that act.
        """
        # The group at place p behind those that wait is trained by version
        # learned + (waiting + p) // groups_per_update, or an earlier one if updates are skipped.
        updates = self._plan.max_lag_updates - (learned - acting) + 1
        ahead_groups = updates * self._plan.groups_per_update - waiting
        end = (self._next_group + ahead_groups) * self._size
        if self._returned and self._returned[0] < end:
            return heapq.heappop(self._returned)
        if self._next >= end:
            return None
        self._next += 1
        return self._next - 1

    def lost(self, *numbers: int) -> None:
        """The rollouts of these numbers will not be finished: others are played instead."""
        for number in numbers:
            heapq.heappush(self._returned, number)

    def finished(self, number: int, rollout: StoredStep) -> None:
        """Takes a rollout, see `TokenGenerator.rollout`."""
        self._finished.setdefault(number // self._size, {})[number] = rollout

    def pop(self) -> StoredStep | None:
        """The next group in order, leaves `[G, context]`, once it is whole."""
        found = self._finished.get(self._next_group, {})
        if len(found) < self._size:
            return None
        del self._finished[self._next_group]
        self._next_group += 1
        rollouts = [found[number] for number in sorted(found)]
        return jax.tree.map(lambda *leaves: np.stack(leaves), *rollouts)

    @property
    def num_waiting_tokens(self) -> int:
        """Sampled tokens of rollouts that wait for others of their group."""
        sources = [
            each.extras.source for group in self._finished.values() for each in group.values()
        ]
        return int(sum(np.count_nonzero(each == POLICY) for each in sources))
