"""Random small runs of the real programs: env servers die, environments fail, learners are resumed.

    python -m tests.tools.random_runs 17 18           the runs of these seeds
    python -m tests.tools.random_runs --seconds 600   of new seeds, for that long

A seed decides on a configuration, and on what happens: env servers are killed and replaced, and
sessions of the learner end by SIGKILL or SIGTERM, but the last one. That must end by itself in
time, with an exact ledger and a score of its last parameters; what replay holds of the counting
environment must be what the oracle says.

Prints a line for each run and, if it broke a rule, the rule and the configuration; if a learner did
not end, also its stacks. Ends with 1 if a rule was broken. Linux only.
"""

import argparse
import itertools
import json
import math
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tests.conftest  # noqa: F401 - the compilation cache, and the path of the plug-in package
from learner.checkpoints.run_records import played_rounds
from learner.serving.ledger import AT_REST, QUEUED, TOKENS, residues
from seedrl import run_files
from seedrl.agents.agent import Agent
from seedrl.agents.window import WindowSpec
from seedrl.checkpoints import best_directory, latest
from seedrl.config import Config, ReplayConfig
from seedrl.config_io import load
from seedrl.exit_codes import ExitCode
from seedrl.fields import fields_of, with_fields
from seedrl.replay.queue import QueueConfig
from seedrl.specs import EnvSpec
from seedrl.stored_arrays import read_all
from seedrl.types import StepType
from tests.system.oracle import HashingAgent, counting
from tests.system.processes import Program, Programs, events, records
from tests.system.streams import Streams

_SECONDS = 120.0  # in which a session ends; one more for each 50 steps
_COLUMNS = ("reward", "step_type", "discount", "action", "hash")
_ENDS = (ExitCode.OK, ExitCode.TARGET_MISSED, -signal.SIGKILL)


@dataclass(frozen=True, kw_only=True)
class Hashing:
    """`HashingAgent`, with a window that a run's folder can record."""

    spans: tuple[int, ...]
    window = property(lambda self: WindowSpec(*self.spans))

    def build(self, spec: EnvSpec) -> Agent:
        """The agent."""
        return HashingAgent(window=self.window).build(spec)


def config_of(seed: int) -> Config:
    """The configuration that a seed decides on."""
    draw = random.Random(seed)
    schedule = draw.choice(("asynchronous", "asynchronous", "synchronous", "deterministic"))
    is_on_tokens = schedule != "synchronous" and draw.random() < 0.4
    config = (_on_tokens if is_on_tokens else _on_steps)(draw, schedule)
    slots = 0 if schedule == "deterministic" else draw.choice((0, 1, 2, 4))
    fields = {
        "environment.wrappers": draw.choice(((), ("tests.system.flaky:Flaky",))),
        "environment.failures_per_hour": draw.choice((1, 3, 10**6)),
        "serving.evaluation_slots": slots,
        "learning.schedule": schedule,
        "learning.max_seconds": draw.choice((None, None, None, None, 15.0)),
        "evaluation.interval_steps": draw.choice((1, 50, 500)),
        "evaluation.episodes": draw.randint(1, 7),
        "evaluation.confirm_episodes": draw.randint(1, 9),
        "evaluation.final_seconds": draw.choice((0.0, 20.0, 20.0)),
        "evaluation.target_return": draw.choice((None, None, 1e9, 0.0)) if slots else None,
        "evaluation.patience_rounds": draw.choice((0, 0, 0, 3)) if slots else 0,
        "checkpoint.interval_seconds": draw.choice((0.3, 300.0)),
        "checkpoint.replay": draw.random() < 0.7,
        "logging.interval_seconds": 0.5,
        "logging.learning_curve": False,
        "seed": seed,
    }
    return with_fields(config, fields)


def _on_steps(draw: random.Random, schedule: str) -> Config:
    devices, unroll, bootstrap = draw.randint(1, 3), draw.choice((1, 4, 8)), draw.randint(1, 2)
    slots, batch = devices + draw.randint(0, 6), devices * draw.randint(1, 4)
    spans: tuple[int, ...] = (0, unroll, bootstrap, unroll + bootstrap)
    replay: Any = QueueConfig(ahead_updates=draw.randint(1, 3))
    if schedule != "synchronous" and draw.random() < 0.6:
        spans = (draw.choice((0, 2)), unroll, bootstrap, draw.choice((1, unroll)))
        replay = ReplayConfig(
            capacity_steps=draw.choice((512, 2048)),
            min_steps=draw.choice((200, 300)),
            page_steps=draw.randint(0, 1),
            ratio=draw.choice((0.1, 1.0, 4.0)),
            tolerance_updates=draw.choice((1.0, 5.0)),
        )
    lengths = draw.choice(((1,), (1, 2, 3, 4, 11, 3), (7,), (50,), (2, 1)))
    environment = counting(lengths, draw.choice((0, 5)))
    fields = {
        "serving.training_slots": batch if schedule == "synchronous" else slots,
        "serving.inference_devices": draw.choice((0, 0, 1)),
        "learning.num_devices": devices,
        "learning.batch_sequences": batch,
        "learning.total_steps": draw.choice((400, 3000, 8000)),
        "learning.publish_every_updates": 1 if schedule == "synchronous" else draw.choice((1, 3)),
        "learning.lag_updates": 0 if schedule == "synchronous" else draw.choice((0, 0, 2)),
    }
    config = Config(environment=environment, agent=Hashing(spans=spans), replay=replay)
    return with_fields(config, fields)


def _on_tokens(draw: random.Random, schedule: str) -> Config:
    group, lag = draw.randint(2, 4), draw.randint(0, 3) if schedule == "asynchronous" else 0
    fields = {
        **{f"agent.network.{name}": 8 for name in ("width", "ffn")},
        **{f"agent.network.{name}": 2 for name in ("heads", "kv_heads")},
        "agent.group": group,
        "replay.max_lag_updates": lag,
        "serving.training_slots": draw.randint(1, 9),
        "learning.num_devices": 1,
        "learning.batch_sequences": group * draw.randint(1, 4),
        "learning.total_steps": draw.choice((100, 600, 2000)),
        "learning.publish_every_updates": draw.randint(1, lag + 1),
        "evaluation.actions": "stochastic",
        "evaluation.rollouts_per_question": draw.randint(1, 3),
        "launch.env_servers": 1,
    }
    return with_fields(load(draw.choice(("guess_grpo", "reverse_grpo"))), fields)


def run(seed: int, programs: Programs, folder: Path) -> Iterator[str]:
    """Runs the run of a seed; gives the rules that it breaks."""
    draw, config = random.Random(f"events of {seed}"), config_of(seed)
    text = f"from tests.tools import random_runs\nconfig = lambda: random_runs.config_of({seed})\n"
    (folder / "config.py").write_text(text)
    # Env servers with an environment for each slot, or two more; each that ends is replaced.
    left = config.serving.training_slots + config.serving.evaluation_slots + draw.choice((0, 0, 2))
    fleet: list[tuple[int, Program | None]] = []
    while left:
        fleet.append((draw.randint(1, min(left, 4)), None))
        left -= fleet[-1][0]
    every = draw.choice((math.inf, math.inf, 5.0, 2.0))  # seconds between two that are killed
    next_kill = time.monotonic() + every
    num_sessions, more = draw.choice((1, 1, 2, 3)), draw.choice((0, config.learning.total_steps))
    for number in range(1, num_sessions + 1):
        steps = config.learning.total_steps + (number - 1) * more
        words = [folder / "config.py", "--workdir", folder / "run", f"--bind=unix:{folder}/bind"]
        learner = programs("learner", *words, f"--learning.total-steps={steps}", PJRT_NPROC="8")
        now, end = time.monotonic(), draw.choice((signal.SIGKILL, signal.SIGTERM))
        deadline = now + _SECONDS + steps / 50
        due = now + draw.uniform(2, 10) if number < num_sessions else math.inf
        while not learner.has_ended:
            for place, (size, env_server) in enumerate(fleet):
                if env_server is None or env_server.has_ended:
                    fleet[place] = size, _env_server(programs, folder, size, draw)
            time.sleep(0.1)
            if (now := time.monotonic()) >= next_kill:
                next_kill += draw.uniform(0, 2 * every)
                victim: Any = draw.choice(fleet)[1]
                victim.signal(draw.choice((signal.SIGKILL, signal.SIGTERM)))
            if now >= due:
                learner.signal(end)
                due = math.inf
            if now >= deadline:
                learner.signal(signal.SIGABRT)  # it prints its stacks
                deadline = math.inf
        if learner.process.returncode not in _ENDS:
            yield f"exit code {learner.process.returncode}: {learner.stderr[-20000:]}"
            return
    is_calm = every == math.inf and not config.environment.wrappers
    yield from _broken(config, folder / "run", steps, is_calm=is_calm)


def _env_server(programs: Programs, folder: Path, size: int, draw: random.Random) -> Program:
    words = ["--learner", f"unix:{folder}/bind", "--num-envs", size, "--groups", draw.randint(1, 3)]
    words += ["--allow-env", "seedrl_plugin.*", "--allow-env", "tests.*"]
    return programs("envs_server", *words, *["--no-local-link"] * draw.randint(0, 1))


def _broken(config: Config, workdir: Path, steps: int, *, is_calm: bool) -> Iterator[str]:
    # By a run that has ended by itself.
    is_on_steps = isinstance(config.agent, Hashing)
    equations = [*(AT_REST if is_on_steps else TOKENS)]
    equations += [QUEUED] * (not isinstance(config.replay, ReplayConfig))
    for line in records(workdir, "ledger")[-1:]:
        yield from residues({name: n for name, n in line.items() if isinstance(n, int)}, equations)
    status = run_files.read_object(workdir / run_files.STATUS)
    checkpoint = latest(workdir / "checkpoints")
    assert checkpoint is not None
    if status["reason"].startswith("all "):
        if checkpoint.meta["env_steps"] < steps:
            yield f"it ended after {checkpoint.meta['env_steps']} steps"
        played = [each.score.updates for each in played_rounds(workdir / run_files.METRICS)]
        text = str([event["text"] for event in events(workdir, "evaluation")][-1:])
        is_excused = not is_calm and "parameters are not evaluated" in text
        is_scored = config.serving.evaluation_slots and config.evaluation.final_seconds
        if is_scored and checkpoint.step not in (0, *played) and not is_excused:
            yield f"update {checkpoint.step} has no score; {played[-3:]}, {text}"
    # Parameters of the hashing agent count the updates behind them.
    for saved in (checkpoint, latest(best_directory(workdir))):
        if saved is None or not is_on_steps:
            continue
        version = int(read_all(saved.path, ("params",))["params/version"])
        if version != saved.meta.get("params_updates", saved.step):
            yield f"{saved.path} has the parameters of update {version}"
    if is_on_steps and "replay_indices" in checkpoint.meta:
        arrays = read_all(checkpoint.path, ("extra",))
        filled = [index["num_inserted"] for index in checkpoint.meta["replay_indices"]]
        yield from _wrong_rows(config, arrays, filled)


def _wrong_rows(config: Config, arrays: Any, filled: list[int]) -> Iterator[str]:
    # In all pages of a saved replay, by the counting environment: leaves [devices, P, K, ...].
    by_name = {name.rpartition(".")[2]: array for name, array in arrays.items()}
    arguments = json.loads(config.environment.arguments)
    streams = Streams(tuple(arguments["lengths"]), arguments.get("num_actions", 0))
    known: dict[int, float] = {}  # how the slot of a stream explores, by the stream's seed
    for shard, num_pages in enumerate(filled):
        for place in range(min(num_pages, by_name["version"].shape[1])):
            page = {name: array[shard, place] for name, array in by_name.items() if array.ndim > 2}
            seeds = page["observation"][:, 1] << 16 | page["observation"][:, 0]
            # An environment that fails between two episodes is built again within the stream.
            cuts = (np.flatnonzero(np.diff(seeds)) + 1).tolist()
            for start, end in itertools.pairwise([0, *cuts, len(seeds)]):
                rows = {name: array[start:end] for name, array in page.items()}
                if (seed := int(seeds[start])) not in known:
                    known[seed] = rows["exploration"][0]
                    streams.started(seed, 0, is_evaluation=False)
                streams.check_rows(
                    f"page {place}",
                    observation=rows["observation"],
                    columns={name: rows[name] for name in _COLUMNS},
                    carry=None if start else int(by_name["carry"][shard, place]),
                )
                if start and rows["step_type"][0] != StepType.FIRST:
                    yield f"page {place}: another stream starts in row {start}"
                # Evaluation slots explore with 0.
                if (rows["exploration"] != known[seed]).any() or not known[seed]:
                    yield f"page {place}: acted for several slots, or for one that evaluates"
            if (np.diff(page["version"]) < 0).any():
                yield f"page {place}: parameters went back in time"
    yield from streams.broken[:10]


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.tools.random_runs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("seeds", metavar="SEED", nargs="*", type=int)
    parser.add_argument("--seconds", type=float, default=600.0, help="without a SEED: how long")
    flags = parser.parse_args()
    # Of all processes: so one that is aborted prints its stacks, and a learner has four devices.
    os.environ.update(PYTHONFAULTHANDLER="1", JAX_NUM_CPU_DEVICES="4")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # and leaves no process behind
    start, is_broken = time.monotonic(), False
    for seed in flags.seeds or itertools.count(random.randrange(10**6)):
        if not flags.seeds and time.monotonic() - start > flags.seconds:
            break
        began, config = time.monotonic(), config_of(seed)
        with (
            tempfile.TemporaryDirectory(prefix="seedrl-") as name,
            Programs(Path(name)) as programs,
        ):
            found = list(run(seed, programs, Path(name)))
        what = f"{config.learning.schedule}, {type(config.replay).__name__}"
        print(f"{seed}: {what}, {time.monotonic() - began:.0f} s, {len(found)} broken", flush=True)
        if found:
            is_broken = True
            print(*found, fields_of(config), sep="\n", flush=True)
    return int(is_broken)


if __name__ == "__main__":
    sys.exit(main())
