"""Prioritized replay of R2D2's sequences: ours and Flashbax's, on the same data.

Both hold as many sequences of the R2D2 paper's settings, of the same leaves and filled with noise;
insert as many at a time; and draw batches of the same size, with and without new priorities. Each
does in one program whatever it can. Both processes keep what they free, see
`learner.processes.tuning`, which a user of Flashbax would have to know.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from learner.extras.bench.measuring import Pace, Result, interleave, rate
from learner.extras.bench.workloads import Workload
from tests.benchmarks import replay
from tests.benchmarks.conditions import conditions
from tests.benchmarks.peers import virtual_environment
from tests.benchmarks.peers.peer_process import PeerProcess

_PATIENCE_SECONDS = 300.0
# What `processes.tuning.keep_freed_memory` does, for a process that cannot import it.
_KEEP_FREED_MEMORY = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(2**31 - 1),
    "MALLOC_TRIM_THRESHOLD_": str(2**31 - 1),
}
_FIGURES = {"insert": "insert", "sample": "sample", "update": "sample and update priorities"}
# Items with the recurrent state; trajectories without it, but with shared rows.
_LAYOUTS = ("items", "trajectory", "trajectory, time-major")
# Of sampling with new priorities: what a learner does.
_TARGET = 1.1


def run(pace: Pace, venvs: Path) -> Iterator[Result]:
    """Insertion and sampling, with and without new priorities, for each layout."""
    interpreter = virtual_environment.python("flashbax", venvs)
    program = virtual_environment.PROGRAMS / "flashbax_replay.py"
    for layout in _LAYOUTS:
        # Both anew, so that no layout meets the memory of the one before.
        workload, full = replay.full_size()
        with PeerProcess(
            (interpreter, program),
            patience_seconds=_PATIENCE_SECONDS,
            environment=_KEEP_FREED_MEMORY,
        ) as process:
            process.prepare(layout=layout, **_description(workload, full))
            yield from _measured(f"flashbax ({layout})", workload, full, process, pace)
        del full


def _description(workload: Workload, full: replay.FullReplay) -> dict[str, Any]:
    """What Flashbax is to hold, see `programs/flashbax_replay.py`: plain values."""
    window = workload.config.agent.window
    pages = full.pages
    return {
        "capacity": full.replay.capacity_pages * full.page_steps // window.stride,
        "length": window.length,
        "stride": window.stride,
        "batch": workload.config.learning.batch_sequences,
        "inserted": jax.tree.leaves(pages)[0].shape[0] * full.page_steps // window.stride,
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
    name: str, workload: Workload, full: replay.FullReplay, process: PeerProcess, pace: Pace
) -> Iterator[Result]:
    batch = workload.config.learning.batch_sequences
    inserted = _description(workload, full)["inserted"]
    draws = replay.sampling(full, batch)
    ours = {
        "insert": replay.counted(full.insert, inserted),
        "sample": replay.counted(draws.sample, batch),
        "update": replay.counted(draws.update, batch),
    }
    for key, figure in _FIGURES.items():

        def mine(work: Callable[[], float] = ours[key]) -> float:
            return rate(work, pace.seconds)

        def theirs(key: str = key) -> float:
            return process.rate(measure=key, seconds=pace.seconds)

        # Once for warming up: whoever comes first meets memory that nobody has touched.
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
            target=_TARGET if key == "update" else None,
            conditions=conditions(
                workload.config,
                replay_ratio=None,
                network="",
                batch=f"{batch} sequences, {inserted} at an insertion",
                environments=workload.name,
            ),
            details={"bytes per batch": draws.num_bytes},
        )
