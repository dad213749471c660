"""A training run whose env servers are killed all the time, and what its ledger says in the end.

`python -m tests.system.chaos --steps 1000000 --seconds-between-kills 2` prints a JSON line.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from envs_server.sent_log import SentLog
from tests.system.processes import ROOT, env_servers, records

_ENV_SERVERS = 4


def main() -> int:
    """0 if the run has ended well and not one row is unaccounted for."""
    parser = argparse.ArgumentParser(prog="python -m tests.system.chaos", description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--seconds-between-kills", type=float, default=2.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        workdir = Path(folder) / "run"
        start = time.monotonic()
        kills, code = _run(workdir, options.steps, options.seconds_between_kills)
        result = {"kills": kills, "exit_code": code, **ledger(workdir)}
    result["seconds"] = round(time.monotonic() - start, 1)
    print(json.dumps(result))
    return int(code != 0 or result["residue"] != 0)


def _run(workdir: Path, steps: int, seconds_between_kills: float) -> tuple[int, int]:
    """Trains for so many steps; the number of env servers killed, and the run's exit code."""
    command = [sys.executable, "-m", "learner.cli.main", "train", "cartpole_r2d2"]
    command += ["--workdir", str(workdir), "--env-servers", str(_ENV_SERVERS)]
    command.append(f"--learning.total-steps={steps}")
    # All the time for acting: one update in 32 of the usual ones.
    command += ["--evaluation.target-return=None", "--replay.ratio=0.125"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    chooser = random.Random(0)
    kills = 0
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as run:
        next_kill = time.monotonic() + seconds_between_kills
        while run.poll() is None:
            time.sleep(max(0.0, next_kill - time.monotonic()))
            next_kill += seconds_between_kills
            running = sorted(env_servers(run.pid))
            if running and records(workdir):
                os.kill(chooser.choice(running), signal.SIGKILL)
                kills += 1
        return kills, run.returncode


def ledger(workdir: Path) -> dict[str, Any]:
    """The run's last accounts, and what was sent under leases that nobody came to settle."""
    (last,) = records(workdir, kind="ledger")
    accounts = {name: rows for name, rows in last.items() if isinstance(rows, int)}
    logs = sorted((workdir / "logs").glob("*.sent"))
    reports = [sent for path in logs for sent in SentLog(path).report()]
    unsettled = sum(sent.steps * sent.num_envs for sent in reports)
    lost_at_the_end = sum((sent.steps - sent.answered) * sent.num_envs for sent in reports)
    sent = accounts["sent"] + unsettled
    arrived = accounts["received"] - accounts.get("duplicate", 0)
    # Of the steps that were on their way when training ended, each came or did not.
    missing = sent - arrived - accounts.get("lost", 0)
    return {
        "env_steps": records(workdir)[-1]["env_steps"],
        "rows_sent": sent,
        "residue": 0 if 0 <= missing <= lost_at_the_end else missing,
        "on_their_way_at_the_end": missing,
        "accounts": accounts,
    }


if __name__ == "__main__":
    sys.exit(main())
