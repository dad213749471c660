"""What Stable-Baselines3 learns on tasks of ours, on the same environment steps.

    python -m tests.benchmarks.peers.learning lunarlander_ppo pendulum_sac --seed 0 1 2 3 4
    seedrl compare OURS ... --against runs/sb3/lunarlander_ppo

The settings are those that RL Baselines3 Zoo has tuned (`programs/sb3_tasks.toml`). Each seed gets
a folder in which `seedrl compare` finds what it needs of a run: so the same statistics are printed
of both. Seeds that have finished are skipped; others begin again.
"""

import json
import sys
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import tyro

from learner.checkpoints.run_records import FinalScore, write_final_score
from learner.extras.bench.measuring import machine_in_words
from seedrl import run_files
from tests.benchmarks.peers import sb3_process, virtual_environment

# All returns of the final score, steps, seconds and CPU seconds; beside the files of a run.
RESULT = "result.json"
_STEPS = ("total_steps", "most_steps")
_MODULE = "tests.benchmarks.peers.learning"


@dataclass(frozen=True, kw_only=True)
class LearningOptions:
    """Trains Stable-Baselines3 and plays its final scores.

    Attributes:
      tasks: tables of `programs/sb3_tasks.toml`.
      seed: of the runs, each with each task.
      steps: of each run, in environment steps; by default those of the task.
      workers: how many runs at a time, each of which computes in one thread.
      workdir: folder of all runs: that of one is WORKDIR/TASK/seed=N.
      venvs: folder of the virtual environment.
    """

    tasks: Annotated[tuple[str, ...], tyro.conf.Positional]
    seed: tuple[int, ...] = (0, 1, 2, 3, 4)
    steps: int | None = None
    workers: int = 1
    workdir: Path = Path("runs/sb3")
    venvs: Path = field(default_factory=virtual_environment.default_folder)


def main() -> int:
    """1 if a run failed; the others go on."""
    options = tyro.cli(LearningOptions, prog=f"python -m {_MODULE}", description=__doc__)
    known = sb3_process.tasks()
    unknown = sorted(set(options.tasks) - set(known))
    if unknown or not options.tasks:
        raise SystemExit(f"expected tasks out of {', '.join(known)}, got {', '.join(unknown)}")
    interpreter = virtual_environment.python("sb3", options.venvs.expanduser().resolve())

    def train(name: str, seed: int) -> bool:
        steps = {} if options.steps is None else dict.fromkeys(_STEPS, options.steps)
        task, folder = known[name] | steps, options.workdir / name / f"seed={seed}"
        try:
            if is_finished(folder, run_config(task, seed)):
                return True
            command = f"python -m {_MODULE} {name}"
            command += "" if options.steps is None else f" --steps {options.steps}"
            begin(folder, command, task, seed)
            log = folder / run_files.LOGS / "program.txt"
            keep(folder, task, sb3_process.train(interpreter, task, seed=seed, log=log))
        except (RuntimeError, ValueError) as error:
            print(f"{folder}: {error}", file=sys.stderr, flush=True)
            return False
        print(f"{folder}: {(folder / run_files.FINAL_SCORE).read_text()}", end="", flush=True)
        return True

    with ThreadPoolExecutor(options.workers) as pool:
        names = [(name, seed) for name in options.tasks for seed in options.seed]
        return 0 if all(list(pool.map(train, *zip(*names, strict=True)))) else 1


def run_config(task: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """What tells its runs from others, with the fields that `seedrl compare` reads."""
    return {
        "seed": seed,
        "environment": {"id": task["environment"]},
        "agent": {"type": f"stable_baselines3:{task['algorithm']}", **task["settings"]},
        "num_environments": task["num_environments"],
        "learning": {"total_steps": task.get("most_steps", task["total_steps"])},
        "evaluation": {
            "target_return": task.get("target_return"),
            "confirm_episodes": 100,
            "episodes": task["episodes"],
            "round_steps": task["round_steps"],
        },
    }


def is_finished(folder: Path, config: Mapping[str, Any]) -> bool:
    """Whether the folder holds that run, with its final score.

    Raises ValueError if it holds one of another configuration.
    """
    if not (folder / RESULT).exists():
        return False
    before = json.loads((folder / run_files.CONFIG).read_text())["config"]
    if before != config:
        raise ValueError("expected a run of the same settings and steps; choose another --workdir")
    return True


def keep(folder: Path, task: Mapping[str, Any], lines: Iterable[dict[str, Any]]) -> None:
    """Writes what `sb3_learning.py` says, as it comes, into the files of a run."""
    label = f"Stable-Baselines3 {task['algorithm']}"
    last: dict[str, Any] = {}
    metrics = folder / run_files.METRICS
    metrics.write_text("")
    for line in lines:
        if line["kind"] == "started":
            versions = [f"{name} {version}" for name, version in line["versions"].items()]
            devices = ", ".join([f"{line['threads']} thread of a CPU", *versions])
            event = {**line, "fields": {"devices": devices}}
            (folder / run_files.EVENTS).write_text(json.dumps(event) + "\n")
        elif line["kind"] == "final":
            _end(folder, label, line, last)
        else:
            last = line
            with metrics.open("a") as file:
                print(json.dumps(line), file=file)
            _write_status(folder, label, last, "training", "")


def begin(folder: Path, command: str, task: Mapping[str, Any], seed: int) -> None:
    """Writes what is known of a run before it trains; `command` is what started it."""
    (folder / run_files.LOGS).mkdir(parents=True, exist_ok=True)
    for left in (run_files.STATUS, run_files.FINAL_SCORE, RESULT):
        (folder / left).unlink(missing_ok=True)
    config = {"config": run_config(task, seed)}
    (folder / run_files.CONFIG).write_text(json.dumps(config, indent=2) + "\n")
    (folder / run_files.COMMANDS).write_text(f"{command} --seed {seed}\n")


def _end(folder: Path, label: str, final: Mapping[str, Any], training: dict[str, Any]) -> None:
    returns = final["returns"]
    score = FinalScore(fmean(returns), len(returns), final["updates"], greedy=True)
    write_final_score(folder, score)
    reason = f"{training['env_steps']:,} steps are taken"
    _write_status(folder, label, training, "finished", reason)
    # Last: it says that the others are whole.
    result = {
        **training,
        **score._asdict(),
        "returns": returns,
        "machine": machine_in_words(),
    }
    (folder / RESULT).write_text(json.dumps(result) + "\n")


def _write_status(folder: Path, label: str, line: dict[str, Any], state: str, reason: str) -> None:
    status = {
        "config": label,
        "state": state,
        "reason": reason,
        "env_steps": line["env_steps"],
        "time_seconds": time.time(),
    }
    (folder / run_files.STATUS).write_text(json.dumps(status) + "\n")


if __name__ == "__main__":
    sys.exit(main())
