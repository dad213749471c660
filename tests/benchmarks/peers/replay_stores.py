"""Prioritized replay of R2D2's sequences: ours and a peer's, on the same data.

Both hold as many sequences of the R2D2 paper's settings, of the same leaves and filled with noise;
insert as many at a time; and draw batches of the same size, with and without new priorities. Each
does in one program whatever it can. Both processes keep what they free, see
`learner.processes.tuning`,
which a user of the peer would have to know;
but for Reverb, whose threads would wait for each other.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from learner.extras.bench.measuring import Pace, Result, conditions, interleave, rate
from learner.extras.bench.workloads import Workload
from tests.benchmarks import replay
from tests.benchmarks.bare_learner import BareLearner
from tests.benchmarks.peers import virtual_environment
from tests.benchmarks.peers.peer_process import PeerProcess

_PATIENCE_SECONDS = 300.0
# What `processes.tuning.keep_freed_memory` does, for a process that cannot import it.
KEEP_FREED_MEMORY = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(2**31 - 1),
    "MALLOC_TRIM_THRESHOLD_": str(2**31 - 1),
}
FIGURES = {"insert": "insert", "sample": "sample", "update": "sample and update priorities"}


class Store(NamedTuple):
    """A peer, the layouts in which it can hold sequences, and the ratio to reach.

    The target is of sampling with new priorities: what a learner does.
    """

    layouts: tuple[str, ...]
    target: float | None = None
    environment: Mapping[str, str] = KEEP_FREED_MEMORY


STORES = {
    "cpprb": Store(("items",)),  # a sequence is an item: rows are not shared, nor on a device
    # Items with the recurrent state; trajectories without it, but with shared rows.
    "flashbax": Store(("items", "trajectory", "trajectory, time-major"), 1.1),
    "reverb": Store(("trajectory",), 1.3, {}),  # rows of a stream are shared in chunks
}


def run(peer: str, pace: Pace, venvs: Path) -> Iterator[Result]:
    """Insertion and sampling, with and without new priorities, for each layout of the peer."""
    layouts, target, environment = STORES[peer]
    interpreter = virtual_environment.python(peer, venvs)
    program = virtual_environment.PROGRAMS / f"{peer}_replay.py"
    for layout in layouts:
        # Both anew, so that no layout meets the memory of the one before.
        workload, learner = replay.full_size()
        learner.fill()
        with PeerProcess(
            (interpreter, program),
            patience_seconds=_PATIENCE_SECONDS,
            environment=environment,
        ) as process:
            described = description(workload, learner)
            process.ask(layout=layout, **described)
            # Reverb works ahead, which would take time from ours.
            process.freeze()
            yield from _measured(
                f"{peer} ({layout})", workload, learner, process, pace, target=target
            )
        del learner


def description(workload: Workload, learner: BareLearner) -> dict[str, Any]:
    """What the peer is to hold, see `programs/sequences.py`: plain values."""
    window = workload.config.agent.window
    pages = learner.pages
    return {
        "capacity": learner.replay.capacity_pages * learner.page_steps // window.stride,
        "length": window.length,
        "stride": window.stride,
        "batch": workload.config.learning.batch_sequences,
        "inserted": jax.tree.leaves(pages)[0].shape[0] * learner.page_steps // window.stride,
        "steps": _leaves(pages.steps, leading=2),
        "carry": _leaves(pages.carry, leading=1),
    }


def _leaves(tree: Any, *, leading: int) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and dtype of every leaf by its path, without the `leading` axes."""
    return {
        jax.tree_util.keystr(path): (leaf.shape[leading:], np.dtype(leaf.dtype).name)
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }


def _measured(
    name: str,
    workload: Workload,
    learner: BareLearner,
    process: PeerProcess,
    pace: Pace,
    *,
    target: float | None,
) -> Iterator[Result]:
    batch = workload.config.learning.batch_sequences
    inserted = description(workload, learner)["inserted"]
    draws = replay.sampling(learner, batch)

    ours = {
        "insert": _counted(learner.insert, inserted),
        "sample": _counted(draws.sample, batch),
        "update": _counted(draws.update, batch),
    }
    for key, figure in FIGURES.items():

        def mine(key: str = key) -> float:
            return rate(ours[key], pace.seconds)

        def theirs(key: str = key) -> float:
            with process.running():
                return float(process.ask(measure=key, seconds=pace.seconds)["rate"])

        # Once in vain: whoever comes first meets memory that nobody has touched.
        mine()
        theirs()
        measured: Mapping[str, tuple[float, ...]] = interleave(
            {"ours": mine, "theirs": theirs}, pace.rounds
        )
        yield Result(
            name=f"{name}: {figure}",
            unit="sequences/s",
            limit_name=name,
            ours=measured["ours"],
            limits=measured["theirs"],
            target=target if key == "update" else None,
            conditions=conditions(
                workload.config,
                replay_ratio=None,
                network="",
                batch=f"{batch} sequences, {inserted} at an insertion",
                environments=workload.name,
            ),
            details={"bytes per batch": draws.num_bytes},
        )


def _counted(work: Callable[[], object], amount: float) -> Callable[[], float]:
    def counted() -> float:
        work()
        return amount

    return counted
