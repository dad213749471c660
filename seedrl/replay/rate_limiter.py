"""The rate limiter: keeps learning and acting at the configured replay ratio. Pure.

With E the training environment steps since learning became possible, T the steps of the updates
taken, r the replay ratio, b the trained steps of one update and c the tolerance in updates (cf. the
rate limiter of Cassirer et al. 2021, Reverb, which bounds samples_per_insert * inserts - samples):

    owed = r * E - T
    learning may take an update   iff  ready and owed >= b
    acting on training slots waits iff ready and owed >= c * b

Hence, if at most n environment steps are taken between two questions whether to act,

    0 <= owed < c * b + r * n

so the ratio T / E is never above r, and is below it by less than c updates whenever acting is
allowed to continue. At every moment one of the two may continue, for any r, b and any c >= 1: not
ready, acting may; ready with owed < c * b, acting may; ready with owed >= c * b, learning may.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, Self


class Limiter(Protocol):
    """What decides which side may continue: a value, each method of which gives the next one.

    Several hosts that give it the same inputs decide alike.
    """

    # True if there is enough experience to learn from.
    @property
    def is_ready(self) -> bool: ...
    # True if training slots may act.
    def may_act(self) -> bool: ...
    # True if an update may be taken.
    def may_learn(self) -> bool: ...
    # Training slots have taken this many environment steps, and filled this many pages. A negative
    # number of pages takes back so many that were filled, then dropped on arrival.
    def acted(self, steps: int, pages: int = 0) -> Self: ...
    # How many sequences can be drawn from each shard.
    def holds(self, num_sequences: Sequence[int]) -> Self: ...
    # An update was taken.
    def took(self) -> Self: ...
    # An update that was taken has been applied: it was not skipped.
    def applied(self) -> Self: ...
    # What is reported of it, by name.
    def metrics(self) -> Mapping[str, float]: ...
    # What a checkpoint keeps of it.
    def counts(self) -> Mapping[str, float]: ...
    # This limiter with the counts of an earlier session.
    def restored(self, counts: Mapping[str, float]) -> Self: ...


class RatioLimiter(NamedTuple):
    """Holds the replay ratio. `ReplayConfig` checks the settings."""

    replay_ratio: float  # r, trained (non-burn-in) steps per training environment step
    batch_steps: int  # b of all shards: sequences of an update times trained steps of each
    tolerance_updates: float  # c, how many updates acting may run ahead of learning
    # What shards must hold before learning starts, on average: one whose env servers never come
    # does not keep the others from it.
    min_sequences: int = 1
    env_steps: int = 0  # E
    # Those before learning became possible: they owe nothing, and count in the reported ratio.
    early_steps: int = 0
    taken_steps: int = 0  # T
    applied_steps: int = 0  # those of T whose update was applied
    is_ready: bool = False  # shards hold enough; while not, acting is free and owes nothing
    num_filled: int = 1  # shards that hold experience, of
    num_shards: int = 1

    def may_act(self) -> bool:
        return not self.is_ready or self.owed_steps < self.tolerance_updates * self.update_steps

    def may_learn(self) -> bool:
        return self.is_ready and self.owed_steps >= self.update_steps

    def acted(self, steps: int, pages: int = 0) -> Self:
        del pages
        # Steps are owed only while it is ready.
        if not self.is_ready:
            return self._replace(early_steps=self.early_steps + steps)
        return self._replace(env_steps=self.env_steps + steps)

    def holds(self, num_sequences: Sequence[int]) -> Self:
        return self._replace(
            is_ready=sum(num_sequences) >= self.min_sequences * len(num_sequences),
            num_filled=max(1, sum(number > 0 for number in num_sequences)),
            num_shards=len(num_sequences),
        )

    def took(self) -> Self:
        # An update that was taken pays, whether or not it is applied: what makes every update fail
        # must not make acting wait for ever. The ratio that is reported counts applied ones only.
        return self._replace(taken_steps=self.taken_steps + self.update_steps)

    def applied(self) -> Self:
        return self._replace(applied_steps=self.applied_steps + self.update_steps)

    @property
    def update_steps(self) -> int:
        # The device of a shard without experience trains on nothing: b is less until all have some.
        return self.batch_steps * self.num_filled // self.num_shards

    @property
    def owed_steps(self) -> float:
        # Acting and learning decide on this one value, so that rounding cannot come between them.
        return self.replay_ratio * self.env_steps - self.taken_steps

    @property
    def measured_ratio(self) -> float:
        # Of all steps, those before learning too.
        return self.applied_steps / max(1, self.early_steps + self.env_steps)

    def metrics(self) -> Mapping[str, float]:
        return {"replay_ratio": self.measured_ratio, "replay_ratio_target": self.replay_ratio}

    def counts(self) -> Mapping[str, float]:
        names = ("env_steps", "early_steps", "taken_steps", "applied_steps", "replay_ratio")
        return {name: getattr(self, name) for name in names}

    def restored(self, counts: Mapping[str, float]) -> Self:
        # Counts of another ratio are dropped, as are those of another kind of replay, which have
        # none. Kept, they would make a run resumed at a higher ratio first train for all its past.
        is_same = counts.get("replay_ratio") == self.replay_ratio
        names = ("env_steps", "early_steps", "taken_steps", "applied_steps")
        kept: Any = {name: int(counts[name]) if is_same else 0 for name in names}
        return self._replace(**kept)


class QueueLimiter(NamedTuple):
    """The limiter of the on-policy queue: in sequences, where that of replay counts steps.

    With S the sequences that acting has completed, D those that updates have taken, n devices, b
    sequences of one update on each of them and c the updates that acting may be ahead:

        learning may take an update   iff  every shard holds b sequences
        acting on training slots waits iff S - D >= c n b

    In rounds learning may take one as soon as any shard holds a sequence: all of a round arrive at
    once, and one without disabled environments has less than n b.
    """

    batch_per_device: int  # b
    num_devices: int  # n
    ahead_updates: int  # c, at least 1
    completed: int = 0  # S
    taken: int = 0  # D
    held: int = 0  # sequences that every shard holds at least; in rounds the most that one holds
    in_rounds: bool = False  # see `Scale`

    @property
    def is_ready(self) -> bool:
        return self.held >= (1 if self.in_rounds else self.batch_per_device)

    def may_act(self) -> bool:
        # At every moment one of the two may continue: what acting has completed arrives, it is
        # dealt to shards by turns, and updates take as much from each; so from S - D >= n b on,
        # every shard will hold b.
        return self.completed - self.taken < self.ahead_updates * self._batch

    def may_learn(self) -> bool:
        return self.is_ready

    def acted(self, steps: int, pages: int = 0) -> Self:
        del steps
        # Counted when acting completes a sequence, which is a page, not when learning takes it in:
        # so what is on its way between them is bounded, too.
        return self._replace(completed=self.completed + pages)

    def holds(self, num_sequences: Sequence[int]) -> Self:
        return self._replace(held=(max if self.in_rounds else min)(num_sequences))

    def took(self) -> Self:
        taken = self.taken + self._batch
        if self.in_rounds:  # what waited may have been less
            taken = min(taken, self.completed)
        return self._replace(taken=taken, held=self.held - self.batch_per_device)

    def applied(self) -> Self:
        return self  # what an update took is gone, whether or not it was applied

    def metrics(self) -> Mapping[str, float]:
        return {"queue_updates": (self.completed - self.taken) / self._batch}

    def counts(self) -> Mapping[str, float]:
        return {}  # what waits is known from what is restored of the queue itself

    def restored(self, counts: Mapping[str, float]) -> Self:
        del counts
        return self

    @property
    def _batch(self) -> int:
        return self.num_devices * self.batch_per_device
