"""The replay against a model of it in plain Python, after every one of many random operations."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedrl.agents.window import WindowSpec
from seedrl.replay.buffer import Replay, ReplayState, paged_replay
from seedrl.replay.index import PageIndex
from seedrl.rl.priorities import MIN_SAMPLING_WEIGHT
from seedrl.types import Array, Page, StoredStep, TimeStep
from tests.gated import all_but

ALPHA = 0.9
INSERTS = 4
BATCH = 8


def initial_priorities(steps: StoredStep) -> Array:
    """Reads every row, so that a wrong one anywhere shows."""
    assert steps.timestep.observation == ()
    return jnp.sum(steps.extras["priority"], axis=0)


def make_page(
    life: int, number: int, page_steps: int, rng: np.random.Generator, *, has_carry: bool = True
) -> Page:
    """Page `number` of a stream's `life`; every row says which life and step it is."""
    step = np.arange(number * page_steps, (number + 1) * page_steps, dtype=np.int32)
    name = np.stack([np.full_like(step, life), step], axis=-1)
    priority = rng.exponential(size=page_steps).astype(np.float32)
    if rng.random() < 0.1:
        priority[rng.integers(page_steps)] = rng.choice([np.nan, np.inf, -1e9])
    elif rng.random() < 0.1:
        priority[:] = 0.0
    return Page(
        steps=StoredStep(
            timestep=TimeStep(
                step_type=np.ones(page_steps, np.uint8),
                reward=step.astype(np.float32),
                discount=np.ones(page_steps, np.float32),
                observation={"name": name},
            ),
            action=step,
            version=np.full_like(step, life),
            extras={"priority": priority},
        ),
        carry=(name[0], (step[0].astype(np.float32),)) if has_carry else (),
    )


def poison(state: ReplayState) -> ReplayState:
    """Fills what was never written with values that show wherever they are read."""

    def fill(leaf: Array) -> np.ndarray:
        return np.full(leaf.shape, np.nan if leaf.dtype.kind == "f" else 99, leaf.dtype)

    return state._replace(pages=jax.tree.map(fill, state.pages))


def model_mass(priority: float) -> float | None:
    """The mass of a priority; None if it is refused."""
    if not (np.isfinite(priority) and priority >= 0):
        return None
    return priority**ALPHA if priority > 0 else MIN_SAMPLING_WEIGHT


@dataclasses.dataclass
class Stored:
    """A page of the model; `masses` are of the sequences that start in it, None if none does."""

    life: int
    number: int
    page: Page
    masses: list[float | None]


@dataclasses.dataclass
class Model:
    """What the replay must be: the last P pages, in a list with holes, and loops over them."""

    window: WindowSpec
    page_steps: int
    pages: list[Stored | None]
    num_inserted: int = 0

    def insert(self, pages: list[Stored]) -> None:
        for stored in pages:
            self.pages[self.num_inserted % len(self.pages)] = stored
            self.num_inserted += 1
        # What teaches nothing does not count.
        known = [mass for mass in self.masses() if mass > 1.5 * MIN_SAMPLING_WEIGHT]
        fallback = float(np.mean(known)) if known else 1.0
        for stored in [s for s in self.pages if s is not None]:
            # They can be sampled all at once.
            if (
                self.sequence(stored, len(stored.masses) - 1) is None
                or stored.masses[0] is not None
            ):
                continue
            for place in range(len(stored.masses)):
                rows = self.sequence(stored, place)
                assert rows is not None
                mass = model_mass(np.sum(rows.extras["priority"], dtype=np.float64))
                stored.masses[place] = fallback if mass is None else mass

    def masses(self) -> list[float]:
        """Those of all places; 0 where no sequence can be sampled."""
        num_starts = max(1, self.page_steps // self.window.stride)
        return [
            mass or 0.0
            for stored in self.pages
            for mass in (stored.masses if stored else [None] * num_starts)
        ]

    def at(self, place: int) -> tuple[Stored | None, int]:
        """The page of a place, and which of its sequences it is."""
        page, number = divmod(place, max(1, self.page_steps // self.window.stride))
        return self.pages[page], number

    def sequence(self, start: Stored, place: int) -> StoredStep | None:
        """The rows of the n-th sequence that starts in a page; None if it is not there in full."""
        if start.number * self.page_steps % self.window.stride and len(start.masses) == 1:
            return None
        first = place * self.window.stride
        chain: list[StoredStep] = []
        while len(chain) * self.page_steps < first + self.window.length:
            wanted = (start.life, start.number + len(chain))
            found = [s for s in self.pages if s is not None and (s.life, s.number) == wanted]
            if not found:
                return None
            chain.append(found[0].page.steps)
        rows = slice(first, first + self.window.length)
        return jax.tree.map(lambda *x: np.concatenate(x)[rows], *chain)

    def update(self, index: np.ndarray, priorities: np.ndarray) -> None:
        for place, priority in zip(index, priorities, strict=True):
            stored, number = self.at(place)
            mass = model_mass(float(priority))
            if mass is not None and stored is not None and stored.masses[number] is not None:
                stored.masses[number] = mass


@dataclasses.dataclass
class Harness:
    """The replay, its index and the model, driven alike."""

    replay: Replay
    index: PageIndex
    model: Model
    state: ReplayState

    def __post_init__(self) -> None:
        self.insert = jax.jit(self.replay.insert, donate_argnums=0)
        self.sample = jax.jit(self.replay.sample, static_argnums=2)
        self.update_priorities = jax.jit(self.replay.update_priorities, donate_argnums=0)

    def check(self, seed: int) -> str:
        """The rule that the replay breaks, or nothing."""
        expected = self.model.masses()
        mass = np.asarray(self.state.sampling_weight)
        num_sequences = int(np.count_nonzero(expected))
        if not np.array_equal(mass > 0, np.asarray(expected) > 0):
            return f"sampleable are {np.flatnonzero(mass)}, not {np.flatnonzero(expected)}"
        if not np.allclose(mass, expected, rtol=1e-4, atol=0):
            return f"masses are {mass}, not {expected}"
        if self.index.num_sequences != num_sequences:
            return f"the index counts {self.index.num_sequences} sequences, not {num_sequences}"
        return self._check_sample(seed, num_sequences)

    def _check_sample(self, seed: int, num_sequences: int) -> str:
        sample = jax.device_get(self.sample(self.state, jax.random.key(seed), BATCH))
        mass = np.asarray(self.state.sampling_weight)
        if num_sequences == 0:
            return "" if np.all(sample.probability == 0) else "something came out of nothing"
        share = mass[sample.index] / mass.sum()
        if not np.allclose(sample.probability, share, rtol=1e-4):
            return f"probabilities are {sample.probability}, not {share}"
        for draw, place in enumerate(sample.index):
            start, number = self.model.at(place)
            if start is None or start.masses[number] is None:
                return f"draw {draw} is place {place}, where no sequence starts"
            wanted = (self.model.sequence(start, number), start.page.carry)
            got = jax.tree.map(lambda leaf, b=draw: leaf[:, b], sample.sequence.steps)
            carry = jax.tree.map(lambda leaf, b=draw: leaf[b], sample.sequence.carry)
            if not jax.tree.all(jax.tree.map(_is_same, (got, carry), wanted)):
                return f"draw {draw} from place {place} is {got} with {carry}, not {wanted}"
        return ""


def _is_same(got: np.ndarray, wanted: np.ndarray) -> bool:
    return got.dtype == wanted.dtype and np.array_equal(
        got, wanted, equal_nan=wanted.dtype.kind == "f"
    )


GEOMETRIES = {
    "r2d2": (WindowSpec(2, 4, 1, 2), 2, 9),
    "stride of two pages": (WindowSpec(1, 4, 1, 4), 2, 8),
    "ring of one sequence": (WindowSpec(2, 4, 1, 2), 2, 4),
    "dqn": (WindowSpec(0, 1, 2, 1), 1, 11),
    "stride beyond the window": (WindowSpec(0, 3, 0, 6), 3, 10),
    "four starts in a page": (WindowSpec(0, 1, 2, 1), 4, 5),
    "two starts in a page, behind earlier rows": (WindowSpec(3, 1, 2, 2), 4, 6),
}


@pytest.mark.parametrize(
    "name",
    all_but(["r2d2", "two starts in a page, behind earlier rows"], GEOMETRIES),
)
def test_random_operations_break_no_rule(name: str) -> None:
    window, page_steps, capacity = GEOMETRIES[name]
    num_starts = max(1, page_steps // window.stride)
    rng = np.random.default_rng(len(name))
    replay = paged_replay(
        window=window,
        page_steps=page_steps,
        capacity_pages=capacity,
        priority_exponent=ALPHA,
        initial_priorities=initial_priorities,
    )
    harness = Harness(
        replay=replay,
        index=PageIndex(capacity_pages=capacity, window=window, page_steps=page_steps),
        model=Model(window, page_steps, [None] * capacity),
        state=poison(
            jax.jit(replay.init)(make_page(0, 0, page_steps, rng, has_carry=num_starts == 1))
        ),
    )
    lives = {0: 0, 1: 1, 2: 2}  # which life of a stream number is being played, and
    numbers = dict.fromkeys(range(1000), 0)  # how many pages each life has had
    for operation in range(60):
        kind = rng.choice(["insert", "insert", "insert", "update", "cut"])
        if kind == "insert":
            streams = rng.choice([-1, 0, 0, 0, 1, 2], size=INSERTS)
            batch = []
            for stream in streams:
                life = lives.get(int(stream), 999)
                page = make_page(life, numbers[life], page_steps, rng, has_carry=num_starts == 1)
                batch.append(Stored(life, numbers[life], page, [None] * num_starts))
                numbers[life] += 1
            pages = jax.tree.map(lambda *leaves: np.stack(leaves), *(s.page for s in batch))
            harness.state = harness.insert(harness.state, pages, harness.index.plan(streams))
            kept = [s for s, stream in zip(batch, streams, strict=True) if stream >= 0]
            harness.model.insert(kept)
        elif kind == "update":
            places = capacity * num_starts
            pool = rng.choice(places, size=min(places, BATCH), replace=False)
            index = np.resize(pool, BATCH).astype(np.int32)
            values = rng.exponential(size=pool.size).astype(np.float32)
            values[rng.random(pool.size) < 0.3] = rng.choice([np.nan, np.inf, -1.0, 0.0])
            priorities = np.resize(values, BATCH)
            harness.state = harness.update_priorities(harness.state, index, priorities)
            harness.model.update(index, priorities)
        else:
            stream = int(rng.integers(3))
            harness.index.end_stream(stream)
            lives[stream] = max(lives.values()) + 1
        assert harness.check(operation) == "", f"{kind}, operation {operation}"
    assert harness.model.num_inserted > 2 * capacity
