"""What every environment must have shown, and what must have been answered to it."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tests.system.oracle import rows_of

NUM_ACTIONS = 5


class Row(NamedTuple):
    """One row of a stream as it must be, and the agent's carry before it."""

    observation: tuple[int, int, int, int]
    reward: int
    step_type: int
    discount: int
    action: int | list[float]
    hash: int
    carry: int


class _Started(NamedTuple):
    slot: int
    is_evaluation: bool
    rows: list[Row]
    more: Iterator[Any]


def _is_equal(held: Any, expected: Any) -> bool:
    # Plain numbers by far the fastest way: there are thousands of them for each seed.
    is_array = isinstance(held, np.ndarray)
    return np.array_equal(held, expected) if is_array else bool(held == expected)


class Oracle:
    """Knows every stream by its seed. Collects what is wrong.

    Attributes:
      broken: the broken rules, one a line.
      num_checked: rows that were compared, by what held them.
    """

    def __init__(self, lengths: tuple[int, ...], num_actions: int):
        """`num_actions` is as in `rows_of`."""
        self._lengths = lengths
        self._num_actions = num_actions
        self._started: dict[int, _Started] = {}
        self.broken: list[str] = []
        self.num_checked = {"action": 0, "reset": 0, "page": 0, "sequence": 0}

    def started(self, seed: int, slot: int, *, is_evaluation: bool) -> None:
        """An environment begins. No seed may ever be given twice, also not in another session."""
        if seed in self._started:
            self.broken.append(f"seed {seed} was given to slot {slot} for a second time")
        rows = rows_of(seed, self._lengths, self._num_actions)
        self._started[seed] = _Started(slot, is_evaluation, [], rows)

    def row(self, seed: int, number: int) -> Row:
        """Row `number` of the stream with this seed."""
        stream = self._started[seed]
        while len(stream.rows) <= number:
            stream.rows.append(Row(*next(stream.more)))
        return stream.rows[number]

    def check_action(self, seed: int, number: int, action: int | list[float]) -> None:
        """The answer to row `number`."""
        self.num_checked["action"] += 1
        expected = self.row(seed, number).action
        if action != expected:
            self.broken.append(f"seed {seed}, row {number}: action {action}, expected {expected}")

    def check_rows(
        self,
        where: str,
        *,
        observation: Sequence[Any],
        columns: dict[str, Sequence[Any]],
        carry: int | None,
    ) -> tuple[int, int] | None:
        """Consecutive rows as the learner holds them; the stream's seed and the first's number.

        Args:
          where: what holds them: the first word counts in `num_checked`.
          observation: `[R, 4]`.
          columns: `[R]` each: reward, step_type, discount, action, hash; arrays or plain numbers.
          carry: the stored carry before the first; None if it means nothing.
        """
        environment, incarnation, episode, step = map(int, observation[0])
        seed = incarnation << 16 | environment
        stream = self._started.get(seed)
        if stream is None or stream.is_evaluation:
            self.broken.append(f"{where}: seed {seed} was never started for training")
            return None
        rounds, rest = divmod(episode, len(self._lengths))
        rows_before = [length + 1 for length in self._lengths]
        first = rounds * sum(rows_before) + sum(rows_before[:rest]) + step
        self.num_checked[where.split()[0]] += len(observation)
        for offset in range(len(observation)):
            expected = self.row(seed, first + offset)
            if tuple(map(int, observation[offset])) != expected.observation:
                self.broken.append(f"{where}: row {first + offset} of seed {seed}: observation")
            self.broken += [
                f"{where}: row {first + offset} of seed {seed}: {name} {column[offset]}"
                for name, column in columns.items()
                if not _is_equal(column[offset], getattr(expected, name))
            ]
        # Before its first row a stream has no past: FIRST resets whatever the slot held.
        if first and carry is not None and carry != self.row(seed, first).carry:
            self.broken.append(f"{where}: carry before row {first} of seed {seed}")
        return seed, first

    def slot(self, seed: int) -> int:
        """The slot that the environment had."""
        return self._started[seed].slot
