"""A run that trains while every fault of this machine happens to it, and what is left of it.

    python -m tests.tools.soak --minutes 60 --seed 1
    python -m tests.tools.soak --minutes 3 --only kill_env_server cut_network
    python -m tests.tools.soak --list

Prints one JSON line. The learner itself is killed in the
first third only: what its memory does after that is one process's. Linux only.
"""

import argparse
import contextlib
import json
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from learner.serving.ledger import AT_REST, residues
from tests.tools.soak.chaos import ALL, END_LEARNER, schedule
from tests.tools.soak.figures import Sample, range_of, records, sample, slope
from tests.tools.soak.world import World

# For SIGTERM, and for the first update; a machine may be busy with more than this.
_END_SECONDS = 60.0
_START_SECONDS = 900.0


class Soak:
    """Faults in a thread of its own, beside what is sampled every second."""

    def __init__(self, world: World, seed: int, names: list[str], minutes: float) -> None:
        self._world = world
        self._chooser = random.Random(seed)
        self._names = names
        self._seconds = 60 * minutes
        self._warm_up = min(120.0, self._seconds / 3)
        self._done: Counter[str] = Counter()
        self._unbrought: Counter[str] = Counter()
        self._samples: list[Sample] = []
        self._updates_lost: list[float] = []
        self._is_over = threading.Event()

    def run(self) -> dict[str, Any]:
        """From the first update on until its time is over; the figures."""
        deadline = time.monotonic() + _START_SECONDS
        while not self._updates() and time.monotonic() < deadline:
            self._world.tick()
            time.sleep(1.0)
        start = time.monotonic()
        faults = threading.Thread(target=self._bring, args=(start,), daemon=True)
        faults.start()
        with (self._world.workdir.parent / "samples.jsonl").open("w", buffering=1) as log:
            while (now := time.monotonic()) < start + self._seconds:
                self._world.tick()
                age = now - self._world.learner_starts[-1]
                if taken := sample(self._world.learner.pid, now - start, age):
                    self._samples.append(taken)
                    print(json.dumps(taken._asdict()), file=log)
                time.sleep(1.0)
        self._is_over.set()
        faults.join(_END_SECONDS)
        code = self._world.finish(_END_SECONDS)
        return {"exit_code": code, **self._figures()}

    def _bring(self, start: float) -> None:
        for name in schedule(self._chooser, self._names):
            if self._is_over.wait(self._chooser.uniform(2, 8)):
                return
            is_late = time.monotonic() - start > self._seconds / 3
            if name in END_LEARNER and (is_late or not self._has_saved()):
                continue
            updates = self._updates() if name in END_LEARNER else 0.0
            try:
                ALL[name](self._world, self._chooser)
                self._done[name] += 1
            except OSError:
                self._unbrought[name] += 1  # a process that was just being started again
            if name in END_LEARNER:
                self._updates_lost.append(updates - self._newest_checkpoint())

    def _updates(self) -> float:
        lines = records(self._world.workdir)
        return float(lines[-1].get("updates", 0)) if lines else 0.0

    def _has_saved(self) -> bool:
        return self._newest_checkpoint() > 0

    def _newest_checkpoint(self) -> int:
        folders = (self._world.workdir / "checkpoints").glob("[0-9]" * 12)
        return max((int(folder.name) for folder in folders), default=0)

    def _figures(self) -> dict[str, Any]:
        workdir = self._world.workdir
        warm = [each for each in self._samples if each.age >= self._warm_up]
        last = [each for each in warm if each.pid == warm[-1].pid]
        ledgers = [
            {name: rows for name, rows in line.items() if isinstance(rows, int)}
            for line in records(workdir, kind="ledger")
        ]
        lines = records(workdir)
        returns = [line["mean_return"] for line in records(workdir, kind="evaluation")]
        growth = slope(warm)
        return {
            "faults": dict(sorted(self._done.items())),
            "not_brought": dict(self._unbrought),
            "restarts": dict(sorted(self._world.restarts.items())),
            "residues": residues(ledgers[-1], AT_REST) if ledgers else ["no ledger at the end"],
            "rss_mib": round(last[-1].rss_mib, 1) if last else None,
            "rss_mib_per_hour": growth and growth.per_hour,
            "rss_error": growth and growth.error,
            "samples": len(warm),
            "descriptors": range_of([each.descriptors for each in last]),
            "threads": range_of([each.threads for each in last]),
            "updates_lost_per_kill": [round(lost) for lost in self._updates_lost],
            "updates": self._updates(),
            "env_steps": lines[-1].get("env_steps") if lines else None,
            "quarantined": max((line.get("slots_quarantined", 0) for line in lines), default=0),
            "best_return": round(max(returns), 1) if returns else None,
        }


def main() -> int:
    """0 if the run has ended well and its ledger is balanced."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.tools.soak",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=None, help="by default a new one")
    parser.add_argument("--only", nargs="*", metavar="FAULT", default=list(ALL))
    parser.add_argument("--folder", type=Path, help="where the run is kept; by default it is not")
    parser.add_argument("--list", action="store_true", help="print the faults and end")
    flags = parser.parse_args()
    if unknown := sorted(set(flags.only) - set(ALL)):
        parser.error(f"unknown faults: {', '.join(unknown)}; expected {', '.join(ALL)}")
    if flags.list:
        print("\n".join(ALL))
        return 0
    seed = random.randrange(2**32) if flags.seed is None else flags.seed
    print(f"seed {seed}", file=sys.stderr)
    with contextlib.ExitStack() as stack:
        temporary = tempfile.TemporaryDirectory(prefix="seedrl-soak-", ignore_cleanup_errors=True)
        folder = flags.folder or Path(stack.enter_context(temporary))
        world = stack.enter_context(contextlib.closing(World(folder)))
        figures = Soak(world, seed, flags.only, flags.minutes).run()
        if figures["exit_code"] != 0:
            print((folder / "learner.log").read_text()[-8000:], file=sys.stderr)
    print(json.dumps({"minutes": flags.minutes, "seed": seed, **figures}))
    return int(figures["exit_code"] != 0 or bool(figures["residues"]))


if __name__ == "__main__":
    sys.exit(main())
