"""How replay grows: with the priorities that it keeps, and with the frames that it stores."""

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence

from learner.bench.measure.cpu import tree_bytes
from learner.bench.measure.interleave import Pace, interleave, rate, ratios, spread
from learner.bench.measure.result import Conditions, Result, conditions
from learner.bench.replay import sampling
from learner.bench.rigs import workloads
from learner.bench.rigs.bare_learner import BareLearner
from seedrl.agents.r2d2 import R2D2Config
from seedrl.networks.config import QNetworkConfig
from tests.benchmarks import prioritized_draw
from tests.benchmarks.growth_axis import TOLERANCE, Axis, interleaved, results

_PAGES = tuple(2**exponent for exponent in range(10, 21, 2))
# About 350 MB, 1.4 GB and 4.2 GB.
_FRAMES = (50_000, 200_000, 600_000)
_BATCH = 16
_PAGES_PER_INSERT = 16


def run(pace: Pace) -> Iterator[Result]:
    """Up to 2^20 priorities, and up to 600,000 frames in half of the memory."""
    yield from of_priorities(_PAGES, pace)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    held = [sum(_FRAMES[: index + 1]) * 84 * 84 for index in range(len(_FRAMES))]
    fitting = [size for size, total in zip(_FRAMES, held, strict=True) if total <= memory / 2]
    yield from of_frames(fitting, pace)


def of_priorities(sizes: Sequence[int], pace: Pace) -> Iterator[Result]:
    """The growth of drawing, and of inserting, beside that of reading all priorities once.

    Each relative to the smallest size, in the same round.
    """
    functions = {
        "drawing": prioritized_draw.draw,
        "inserting": _inserting_small_pages,
        "reading": prioritized_draw.scan,
        "flat": prioritized_draw.flat_draw,
    }
    # So many short programs that a part of the time is enough for each.
    short = Pace(pace.rounds, pace.seconds / len(functions))
    measures = {
        f"{name} {size}": _seconds(function(size), short)
        for name, function in functions.items()
        for size in sorted(sizes)
    }
    seconds = interleave(measures, pace.rounds)
    smallest = min(sizes)
    for name in ("drawing", "inserting"):
        for size in sorted(set(sizes) - {smallest}):
            yield _beside_reading(name, size, smallest, seconds)


def _beside_reading(
    name: str, size: int, smallest: int, seconds: Mapping[str, Sequence[float]]
) -> Result:
    def growth(of: str) -> tuple[float, ...]:
        return ratios(seconds[f"{of} {size}"], seconds[f"{of} {smallest}"])

    details = {
        f"{of} µs": 1e6 * spread(seconds[f"{of} {size}"]).median for of in (name, "reading", "flat")
    }
    return Result(
        name=f"growth: {name}, priorities, {size:,}",
        unit=f"times {smallest:,}",
        limit_name="reading all once",
        ours=growth(name),
        limits=growth("reading"),
        target=TOLERANCE,
        is_cost=True,
        conditions=Conditions(
            batch=f"{prioritized_draw.NUM_DRAWS} draws",
            messages=f"{_PAGES_PER_INSERT} pages at once",
        ),
        details={"size": size, "size before": smallest, **details},
    )


def of_frames(sizes: Sequence[int], pace: Pace) -> Iterator[Result]:
    """A frame inserted, a frame sampled, and the memory of a stored frame."""
    learners: dict[int, BareLearner] = {}
    memory: dict[int, float] = {}
    for size in sizes:
        workload = workloads.frames(capacity_steps=size, batch_sequences=_BATCH)
        if not learners:  # What the first one compiles is no part of its memory.
            BareLearner(workload, pages_per_insert=_PAGES_PER_INSERT).insert()
        before = tree_bytes(os.getpid())
        learners[size] = BareLearner(workload, pages_per_insert=_PAGES_PER_INSERT)
        learners[size].fill()
        memory[size] = (tree_bytes(os.getpid()) - before) / size
    described = conditions(
        workload.config,
        messages=f"{_PAGES_PER_INSERT} pages at once",
        batch=f"{_BATCH} sequences",
        environments=workload.name,
    )
    for name, prepare in {"inserting": _inserting, "sampling": _sampling}.items():
        measures = {size: _seconds(prepare(learner), pace) for size, learner in learners.items()}
        axis = Axis(f"{name}, stored frames", "µs/frame", described)
        yield from results(axis, interleaved(measures, pace))
    axis = Axis("replay memory, stored frames", "bytes/frame", described)
    yield from results(axis, {size: (each,) for size, each in memory.items()})


def _inserting_small_pages(capacity_pages: int) -> Callable[[], int]:
    """Inserts pages of one small step each into a replay of `capacity_pages`; returns 1."""
    workload = workloads.scaled(workloads.cartpole(), capacity_steps=capacity_pages)
    # Priorities that depend on what was acted: with constants the compiler would leave out what
    # insertion does for those that are refused.
    network = QNetworkConfig(
        torso="mlp", torso_sizes=(4,), core="none", head_sizes=(4,), frame_stack=1
    )
    agent = R2D2Config(network=network, burn_in=0, unroll=1, n_steps=1, stride=1)
    replay = dataclasses.replace(workload.config.replay, page_steps=1)
    config = dataclasses.replace(workload.config, agent=agent, replay=replay)
    learner = BareLearner(
        dataclasses.replace(workload, config=config), pages_per_insert=_PAGES_PER_INSERT
    )
    learner.insert()
    return lambda: bool(learner.insert())


def _inserting(learner: BareLearner) -> Callable[[], int]:
    learner.insert()
    return lambda: learner.insert() * learner.page_steps


def _sampling(learner: BareLearner) -> Callable[[], int]:
    program = sampling(learner, _BATCH).sample

    def sample() -> int:
        program()
        return _BATCH * learner.agent.window.length

    return sample


def _seconds(work: Callable[[], float], pace: Pace) -> Callable[[], float]:
    return lambda: 1 / rate(work, pace.seconds)
