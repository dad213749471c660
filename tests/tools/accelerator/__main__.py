"""Work for a machine with an accelerator, in calls of bounded time.

    python -m tests.tools.accelerator                  all stages that are left
    python -m tests.tools.accelerator install tests    these, whatever was before
    python -m tests.tools.accelerator --list

For a bare machine that has Python, jax with its accelerator, and the other packages that
`wheels.py` names, but no package index. `make wheels`, where there is one, gathers the rest into
`.whl`, which travels with the checkout. `install` makes an environment of both; then come tests,
benchmarks, and `pong_r2d2` and `atari_r2d2`, which resume in the next call.

Each stage has a limit, gets a line, and one that fails stops no other. Logs, runs and a mark for
each finished stage are in --folder. This file imports only the standard library: it runs before
anything is installed.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

ROOT = Path(__file__).parents[3]
# Training saves at SIGTERM; a stage that has not ended by then is killed.
_GRACE_SECONDS = 60.0
# Programs of one device, whose results are compared with others' or with numpy's.
_ON_ACCELERATOR = (
    "tests/seedrl/rl",
    "tests/seedrl/networks",
    "tests/seedrl/replay/test_buffer.py",
    "tests/seedrl/agents/test_r2d2.py",
)


class Stage(NamedTuple):
    """A process: its words, its longest time, and variables beside those of this process.

    A stage that `goes_on` is stopped at its limit and continued by the next call.
    """

    command: tuple[str, ...]
    seconds: float
    variables: Mapping[str, str] = MappingProxyType({})
    goes_on: bool = False


def stages(folder: Path, wheels: Path) -> dict[str, Stage]:
    """All of them, in order."""
    python = str(folder / "venv" / "bin" / "python")
    install = (sys.executable, "-m", "tests.tools.accelerator.install", str(folder), str(wheels))
    pytest = (python, "-m", "pytest", "-q", "-m", "not gate", "-p", "no:cacheprovider")
    # In one process: it has the accelerator's memory to itself.
    exact = {"XLA_FLAGS": "", "JAX_DEFAULT_MATMUL_PRECISION": "highest", "JAX_PLATFORMS": ""}
    found = {
        "install": Stage(install, 240.0),
        "tests": Stage((*pytest, "-n", "0", *_ON_ACCELERATOR), 480.0, exact),
    }
    seedrl = (python, "-m", "learner.cli.main")
    for name in ("wire", "pipeline", "replay", "inference", "learner"):
        bench = (*seedrl, "bench") if name in ("wire", "pipeline") else (python, "-m", _BENCH)
        words = (*bench, name, "--seconds", "0.5", "--rounds", "5")
        found[f"bench_{name}"] = Stage(words, 120.0)
    # A machine that is taken away costs a minute.
    saves = ("--resume", "auto", "--checkpoint.interval-seconds", "60")
    for config in ("pong_r2d2", "atari_r2d2"):
        words = (*seedrl, "train", config, "--workdir", str(folder / config), *saves)
        found[config] = Stage(words, 540.0, goes_on=True)
    return found


_BENCH = "tests.benchmarks"


def run(name: str, stage: Stage, folder: Path, seconds: float) -> str:
    """Runs a stage for at most so long, and prints a line; returns done, stopped or failed."""
    start = time.monotonic()
    with (folder / "logs" / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            stage.command,
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "PYTHONUNBUFFERED": "1",
                "JAX_COMPILATION_CACHE_DIR": str(folder / "compile_cache"),
                **stage.variables,
            },
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        limit = min(stage.seconds, seconds - _GRACE_SECONDS)
        is_stopped = False
        for number, patience in ((signal.SIGTERM, limit), (signal.SIGKILL, _GRACE_SECONDS)):
            try:
                code = process.wait(max(1.0, patience))
                break
            except subprocess.TimeoutExpired:
                is_stopped = True
                process.send_signal(number)
        # No process outlives its stage: the next one is measured, and needs the memory.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
    outcome = "failed" if code else "stopped" if is_stopped else "done"
    if outcome == "done" or (outcome == "stopped" and not stage.goes_on):
        (folder / "done" / name).touch()
    text = (folder / "logs" / f"{name}.log").read_text(errors="replace").split("\n")
    last = next((line for line in reversed(text) if line.strip()), "")[:150]
    print(f"{name:16} {outcome:8} {time.monotonic() - start:5.0f} s  {last}", flush=True)
    return outcome


def main() -> int:
    """Returns the exit code: 1 if a stage of this call has failed, 2 for a wrong call."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.tools.accelerator",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("stages", nargs="*", metavar="STAGE", help="by default all that are left")
    parser.add_argument("--seconds", type=float, default=540.0, help="of this call, at most")
    parser.add_argument("--wheels", type=Path, default=ROOT / ".whl")
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "accelerator")
    parser.add_argument("--list", action="store_true", help="print the stages and end")
    flags = parser.parse_args()
    folder = flags.folder.resolve()
    every = stages(folder, flags.wheels.resolve())
    if unknown := sorted(set(flags.stages) - set(every)):
        parser.error(f"unknown stages: {', '.join(unknown)}; expected {', '.join(every)}")
    if flags.list:
        print("\n".join(every))
        return 0
    for part in ("logs", "done"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + flags.seconds
    outcomes = []
    for name in flags.stages or [name for name in every if not (folder / "done" / name).exists()]:
        left = end - time.monotonic()
        if left < 2 * _GRACE_SECONDS:
            print(f"{name:16} left for another call")
            continue
        outcomes.append(run(name, every[name], folder, left))
    return int("failed" in outcomes)


if __name__ == "__main__":
    sys.exit(main())
