"""A run that trains while faults happen to it, and what is left of it. Linux only.

    python -m tests.tools.chaos --steps 1000000 --only kill_env_server --every 2
    python -m tests.tools.chaos --steps 150000 --only kill_env_server --every 2 --tokens
    python -m tests.tools.chaos --minutes 60 --seed 1      all faults, in an order by the seed
    python -m tests.tools.chaos --list                     names them

Prints one JSON line. Ends with 0 if the run has ended well and not one row is unaccounted for.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from learner.serving.ledger import AT_REST, TOKENS, Equation, residues
from seedrl import run_files
from tests.faults.memory import Sample, sample
from tests.system.processes import ROOT, env_servers, records

_FOREVER = 10**9
_TRAIN = (
    *("--resume=auto", "--env-servers=4", "--serving.step-deadline-seconds=10"),
    *("--evaluation.target-return=None", "--checkpoint.interval-seconds=10"),
    *("--logging.interval-seconds=1", "--logging.no-learning-curve"),
)
# All the time for acting: one update in 32 of the usual ones.
_CARTPOLE = ("cartpole_r2d2", "--replay.ratio=0.125")
# A completion is an environment step. A small network, for many tokens.
_TOKENS = (
    *("reverse_grpo", "--agent.network.width=16", "--agent.network.heads=2"),
    *("--agent.network.kv-heads=1", "--agent.network.ffn=16"),
)


class Run:
    """The run, started again whenever it has not ended well; faults come in a thread of their own.

    Attributes:
      workdir: of the run.
      process: `seedrl train`, the learner.
    """

    def __init__(self, folder: Path, steps: int, *, is_of_tokens: bool) -> None:
        self.workdir = folder / "run"
        self._steps = steps
        self._task = _TOKENS if is_of_tokens else _CARTPOLE
        self._equations: tuple[Equation, ...] = TOKENS if is_of_tokens else AT_REST
        self._log = (folder / "log").open("ab")
        self.sessions: list[int] = []  # exit codes
        self.process = self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        words = [*self._task, *_TRAIN, f"--workdir={self.workdir}"]
        words += [f"--learning.total-steps={self._steps}"]
        command = [sys.executable, "-m", "learner.cli.main", "train", *words]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.Popen(
            command, env=environment, stdout=self._log, stderr=subprocess.STDOUT
        )

    def has_ended(self) -> bool:
        """True if it ended well; another end is followed by the next start."""
        code = self.process.poll()
        if code is None:
            return False
        self.sessions.append(code)
        if code != 0:
            self.process = self._start()
        return code == 0

    def is_training(self) -> bool:
        """True if the present learner trains: a signal then ends it well, with a ledger."""
        with contextlib.suppress(OSError, ValueError):
            status = run_files.read_object(self.workdir / run_files.STATUS)
            return (status["pid"], status["state"]) == (self.process.pid, "training")
        return False

    def last(self, kind: str = "metrics") -> dict[str, Any]:
        """The newest record of a kind."""
        return next(reversed(records(self.workdir, kind)), {})

    def accounts(self) -> dict[str, Any]:
        """The ledger of the last session, and its broken equations."""
        accounts = {n: rows for n, rows in self.last("ledger").items() if isinstance(rows, int)}
        if not accounts:
            return {"residues": ["no ledger at the end"]}
        return {"residues": residues(accounts, self._equations), "accounts": accounts}


Fault = Callable[[Run, random.Random], None]


def _env_server(run: Run, chooser: random.Random) -> int:
    """Its process ID. Raises IndexError if there is none."""
    found = sorted(env_servers(run.process.pid))
    # The learner's own child starts the env servers: killed each time, none would ever start.
    return chooser.choice([pid for pid in found if _parent(pid) != run.process.pid])


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def kill_env_server(run: Run, chooser: random.Random) -> None:
    """SIGKILL."""
    os.kill(_env_server(run, chooser), signal.SIGKILL)


def freeze_env_server(run: Run, chooser: random.Random) -> None:
    """SIGSTOP for a while."""
    pid = _env_server(run, chooser)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(chooser.uniform(1, 6))
    os.kill(pid, signal.SIGCONT)


def kill_learner(run: Run, chooser: random.Random) -> None:
    """SIGKILL; its env servers end with it."""
    run.process.kill()


def damage_checkpoint(run: Run, chooser: random.Random) -> None:
    """One bit of the newest of several checkpoints; then the learner has to choose another."""
    folders = sorted((run.workdir / "checkpoints").glob("[0-9]" * 12))
    files = [path for folder in folders[1:][-1:] for path in folder.rglob("*") if path.is_file()]
    if files := [path for path in files if path.stat().st_size > 0]:
        path = chooser.choice(sorted(files))
        content = bytearray(path.read_bytes())
        content[chooser.randrange(len(content))] ^= 1 << chooser.randrange(8)
        path.write_bytes(content)
        run.process.kill()


FAULTS: dict[str, Fault] = {
    fault.__name__: fault
    for fault in (kill_env_server, freeze_env_server, kill_learner, damage_checkpoint)
}


def _bring(
    run: Run,
    names: list[str],
    chooser: random.Random,
    every: float,
    done: Counter[str],
    is_over: threading.Event,
) -> None:
    """Each fault once, in any order, again and again, from the first metrics on; counts them."""
    while True:
        for name in chooser.sample(names, len(names)):
            if is_over.wait(every):
                return
            if run.last():
                # A process may just be started again.
                with contextlib.suppress(OSError, IndexError):
                    FAULTS[name](run, chooser)
                    done[name] += 1


def _watch(run: Run, seconds: float, is_over: threading.Event) -> list[Sample]:
    """Until it ends well; after so many seconds it is asked to. A sample each second."""
    samples, start, asked = list[Sample](), time.monotonic(), 0
    while not run.has_ended():
        passed = time.monotonic() - start
        if passed > seconds:
            is_over.set()
            # Each learner once: a second signal kills it. The last fault may have killed the one
            # that was asked.
            if asked != run.process.pid and run.is_training():
                run.process.send_signal(signal.SIGTERM)
                asked = run.process.pid
        if taken := sample(run.process.pid, passed):
            samples.append(taken)
        time.sleep(1.0)
    return samples


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.tools.chaos",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--steps", type=int, default=_FOREVER, help="environment steps of the run")
    parser.add_argument("--minutes", type=float, default=_FOREVER, help="its longest time")
    parser.add_argument("--every", type=float, default=5.0, help="seconds between two faults")
    parser.add_argument("--seed", type=int, default=None, help="by default a new one")
    parser.add_argument("--only", nargs="*", metavar="FAULT", default=list(FAULTS))
    parser.add_argument(
        "--tokens", action="store_true", help="a token policy; its steps are completions"
    )
    parser.add_argument("--list", action="store_true", help="print the faults and end")
    flags = parser.parse_args()
    if unknown := sorted(set(flags.only) - set(FAULTS)):
        parser.error(f"unknown faults: {', '.join(unknown)}; expected {', '.join(FAULTS)}")
    if flags.list:
        print("\n".join(FAULTS))
        return 0
    seed = random.randrange(2**32) if flags.seed is None else flags.seed
    with tempfile.TemporaryDirectory(prefix="seedrl-chaos-", ignore_cleanup_errors=True) as folder:
        start, is_over, done = time.monotonic(), threading.Event(), Counter[str]()
        run = Run(Path(folder), flags.steps, is_of_tokens=flags.tokens)
        bringing = (run, flags.only, random.Random(seed), flags.every, done, is_over)
        faults = threading.Thread(target=_bring, args=bringing, daemon=True)
        faults.start()
        samples = _watch(run, 60 * flags.minutes, is_over)
        is_over.set()
        faults.join(60)
        # Of the last learner: it must stay flat.
        own = [each for each in samples if each.pid == samples[-1].pid]
        found = run.accounts()
        line = {
            "seed": seed,
            "seconds": round(time.monotonic() - start, 1),
            "faults": done,
            "exit_codes": run.sessions,
            "env_steps": run.last().get("env_steps"),
            "first": own[0]._asdict(),
            "last": own[-1]._asdict(),
        }
        print(json.dumps(line | found))
        if found["residues"]:
            print((Path(folder) / "log").read_text()[-8000:], file=sys.stderr)
    return int(bool(found["residues"]))


if __name__ == "__main__":
    sys.exit(main())
