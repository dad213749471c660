"""What every environment must have shown, what must have been answered, and what replay holds."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from seedrl.agents.window import WindowSpec
from seedrl.replay.buffer import ReplayState
from seedrl.types import Sequence as Experience
from seedrl.types import StoredStep
from tests.system.oracle import Actions, priority, rows_of


class Row(NamedTuple):
    """One row of a stream as it must be, and the agent's carry before it."""

    observation: tuple[int, int, int, int]
    reward: int
    step_type: int
    discount: int
    action: int | list[int] | list[float]
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


class Streams:
    """Knows every stream by its seed. Collects what is wrong.

    Attributes:
      broken: the broken rules, one a line.
      num_checked: rows that were compared, by what held them.
    """

    def __init__(self, lengths: tuple[int, ...], num_actions: Actions):
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

    def check_steps(
        self, where: str, steps: StoredStep, carry: Any, exploration: np.ndarray
    ) -> tuple[int, int] | None:
        """As `check_rows`, of steps of the hashing agent; also who acted.

        `exploration`: of each slot.
        """
        timestep, extras = steps.timestep, steps.extras
        found = self.check_rows(
            where,
            observation=np.asarray(timestep.observation),
            columns={
                "reward": timestep.reward,
                "step_type": timestep.step_type,
                "discount": timestep.discount,
                "action": steps.action,
                "hash": extras["hash"],
            },
            carry=int(carry),
        )
        if not np.array_equal(steps.version, extras["version"]):
            self.broken.append(f"{where}: the stored version is not the one that acted")
        if (np.diff(steps.version) < 0).any():
            self.broken.append(f"{where}: parameters went back in time")
        if found is not None:
            own = exploration[self._started[found[0]].slot]
            if (extras["exploration"] != own).any():
                self.broken.append(f"{where}: acted with the exploration of another slot")
        return found


class Held(NamedTuple):
    """What replay holds of a stream.

    Attributes:
      pages: the numbers of its pages, in any order: 0 is the first of the stream.
      starts: the numbers of those in which sequences start that can be sampled.
    """

    pages: list[int]
    starts: list[int]


def check_memory(
    streams: Streams,
    memory: ReplayState,
    sequences: Experience,
    starts: np.ndarray,
    *,
    num_pages: int,
    page_steps: int,
    priority_exponent: float,
    exploration: np.ndarray,
) -> dict[int, Held]:
    """Looks at a replay with one start in each page; what it holds, by the seeds of the streams.

    Args:
      memory: on the host; its first `num_pages` pages hold something.
      sequences: those from `starts [n]`, leaves `[T, n, ...]`, carry `[n]`.
      exploration: of each slot.
    """
    held: dict[int, Held] = defaultdict(lambda: Held([], []))
    for place in range(num_pages):
        page = jax.tree.map(lambda leaf, place=place: leaf[place], memory.pages)
        found = streams.check_steps(f"page {place}", page.steps, page.carry, exploration)
        if found is not None:
            held[found[0]].pages.append(found[1] // page_steps)
            if found[1] % page_steps:
                streams.broken.append(f"page {place} begins with row {found[1]}")
    for number, start in enumerate(starts):
        steps = jax.tree.map(lambda leaf, number=number: leaf[:, number], sequences.steps)
        where = f"sequence {start}"
        found = streams.check_steps(where, steps, sequences.carry[number], exploration)
        if found is not None:
            held[found[0]].starts.append(found[1] // page_steps)
        first, mass = steps.extras["hash"][0], memory.sampling_weight[start]
        allowed = [
            float(priority(first, is_initial=flag)) ** priority_exponent for flag in (True, False)
        ]
        if not np.isclose(mass, allowed, rtol=1e-4).any():
            streams.broken.append(f"{where}: mass {mass}, expected one of {allowed}")
    return held


def check_held(held: dict[int, Held], window: WindowSpec, page_steps: int) -> list[str]:
    """The rules that streams break in a replay: no gaps, no doubles, every sequence that fits."""
    broken = []
    pages_per_sequence = -(-window.length // page_steps)
    for seed, (pages, starts) in held.items():
        first, last = min(pages), max(pages)
        if sorted(pages) != list(range(first, last + 1)):
            broken.append(f"seed {seed}: pages {sorted(pages)} have gaps or doubles")
        expected = [
            number
            for number in range(first, last + 2 - pages_per_sequence)
            if number % (window.stride // page_steps) == 0
        ]
        if sorted(starts) != expected:
            broken.append(f"seed {seed}: sequences from {sorted(starts)}, expected {expected}")
    return broken
