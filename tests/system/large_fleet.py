"""Many real env servers and a real learner, over TCP as between hosts: do all stay, and return?

    python -m tests.system.large_fleet --json docs/results/large_fleet.json
    python -m tests.system.large_fleet --env-servers 128 --step-ms 50 --minutes 1 --kill 0 \
        --of-linear 0.9 --niceness 0

starts them all at once, as processes of one parent (`--processes` of the env server), counts for
`--minutes` how many streams end, then kills `--kill` of them, which their parent starts again, and
says how long it takes until each of those has its first actions. Each has one environment, whose
step sleeps, and has a higher niceness than the learner. What it promises is in `verdict`; it
ends with 1 if something of that was missed. With SEEDRL_GATE_SCALE=0.05 it does a twentieth of all
that. Of less than a minute of life the parent lets who dies pause: `--minutes` below 1 measure that
too.
"""

import argparse
import contextlib
import json
import math
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from learner.bench.machine import describe, num_cores
from learner.processes.env_servers import env_server_environment
from tests.faults.scale import scaled
from tests.system.chaos import ledger
from tests.system.processes import ROOT
from tests.system.timed_env_server import Stream, streams

_CONFIG = "tests/system/large_fleet_config.py"
# How often as many env servers as there are cores are killed at once, to see what a start takes: a
# core whose neighbour works as well may be much slower than one alone.
_ROUNDS = 3
# Of an env server that starts, and of one that is served: they have a ninth of a learner's weight,
# and a seventh of that.
_NICENESS = 10
# To look at the files of all takes time that the fleet needs to start.
_LOOK_SECONDS = 0.5
_START_SECONDS = 600.0
# The promises: those that were killed are back in that many times the CPU time of their starts, and
# so many seconds; Assign follows Hello within so many.
_SLACK, _SLACK_SECONDS, _HELLO_SECONDS = 1.3, 2.0, 2.0


class Fleet(NamedTuple):
    """A learner, and its env servers: processes of one parent.

    Attributes:
      workdir: of the learner.
      parent: of the env servers, which starts again whom it loses.
      folder: where they write what became of their streams.
    """

    learner: "subprocess.Popen[bytes]"
    workdir: Path
    parent: "subprocess.Popen[bytes]"
    folder: Path

    def attached(self) -> dict[int, list[Stream]]:
        """Streams of those that are served now, by process."""
        found = streams(self.folder)
        return {pid: each for pid, each in found.items() if _is_served(each) and _lives(pid)}

    def wait_for(self, number: int) -> list[int]:
        """Waits until `number` are served; returns which. Raises RuntimeError if they never are."""
        deadline = time.monotonic() + _START_SECONDS
        while len(found := self.attached()) < number:
            if time.monotonic() > deadline or self.learner.poll() is not None:
                raise RuntimeError(f"{len(found)} of {number} env servers are served")
            time.sleep(_LOOK_SECONDS)
        return sorted(found)

    def kill(self, pids: Sequence[int]) -> None:
        """All at once; returns when they are gone."""
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        while any(map(_lives, pids)):
            time.sleep(0.01)


def _is_served(found: Sequence[Stream]) -> bool:
    """Whether the newest stream of a process was answered, and goes on."""
    return bool(found) and found[-1].answered is not None and found[-1].ended is None


def _lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


class Held(NamedTuple):
    """What happened while all were to stay.

    Attributes:
      seconds: how long that was.
      lost: streams that ended.
      messages: that arrived.
      learner_seconds: CPU time of the learner.
      all_seconds: of it and its env servers.
      env_server_mib: memory that an env server has to itself, and its part of what it shares.
    """

    seconds: float
    lost: int
    messages: int
    learner_seconds: float
    all_seconds: float
    env_server_mib: float


def main() -> int:
    """0 if every promise was kept."""
    parser = argparse.ArgumentParser(prog="python -m tests.system.large_fleet", description=__doc__)
    parser.add_argument("--env-servers", type=int, default=200)
    parser.add_argument("--step-ms", type=float, default=500.0)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--kill", type=int, default=100)
    parser.add_argument("--of-linear", type=float, default=0.0)
    parser.add_argument("--niceness", type=int, default=_NICENESS)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    number = scaled(options.env_servers)
    kill = min(number, scaled(options.kill)) if options.kill else 0
    hold_seconds = scaled(round(60 * options.minutes))
    found = _measured(number, options.step_ms / 1e3, hold_seconds, kill, options.niceness)
    found["niceness"], found["least_of_linear"] = options.niceness, options.of_linear
    found["broken"] = verdict(found)
    text = json.dumps({**found, "machine": describe()}, indent=1)
    print(text)
    if options.json is not None:
        options.json.write_text(text + "\n")
    return int(bool(found["broken"]))


def verdict(found: Mapping[str, Any]) -> list[str]:
    """The promises that were not kept."""
    broken = []
    if found["lost_sessions"] or found["residue"] or found["exit_code"]:
        broken.append("every session stays, and every row is accounted for")
    if found["slowest_assign_seconds"] > _HELLO_SECONDS:
        broken.append(f"each is answered within {_HELLO_SECONDS:g} s of its Hello")
    if found["killed"] and found["return_seconds"] > found["return_bound_seconds"]:
        broken.append("those that were killed are back in time")
    if found["of_linear"] < found["least_of_linear"]:
        broken.append("that share of linear is carried")
    return broken


def _measured(
    number: int, step_seconds: float, hold_seconds: float, kill: int, niceness: int
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="seedrl-fleet-") as name:
        workdir, folder = Path(name, "run"), Path(name, "env_servers")
        (workdir / "logs").mkdir(parents=True)
        folder.mkdir()
        with (
            _learner(workdir, number, step_seconds) as (learner, address),
            _env_servers(Path(name), number, address, niceness) as parent,
        ):
            found = _life(Fleet(learner, workdir, parent, folder), number, hold_seconds, kill)
            learner.send_signal(signal.SIGTERM)
            found["exit_code"] = learner.wait(_START_SECONDS)
        linear = number / step_seconds
        rates = {"of_linear": round(found["messages_per_second"] / linear, 3)}
        accounts = ledger(workdir)
    return {
        "env_servers": number,
        "step_ms": 1e3 * step_seconds,
        **found,
        **rates,
        "residue": accounts["residue"],
        "rows_sent": accounts["rows_sent"],
    }


@contextlib.contextmanager
def _env_servers(
    folder: Path, number: int, address: str, niceness: int
) -> Iterator["subprocess.Popen[bytes]"]:
    command = ["nice", "-n", str(niceness)]
    command += [sys.executable, "-m", "tests.system.timed_env_server", str(folder / "env_servers")]
    command += ["--learner", address, "--num-envs", "1", "--no-local-link"]
    command += ["--processes", str(number)]
    command += ["--sent-log", str(folder / "run" / "logs" / "env_server.sent")]
    environment = env_server_environment()
    with (
        (folder / "log").open("ab") as log,
        subprocess.Popen(command, cwd=ROOT, env=environment, stderr=log) as process,
    ):
        try:
            yield process
        finally:
            process.terminate()


@contextlib.contextmanager
def _learner(
    workdir: Path, slots: int, step_seconds: float
) -> Iterator[tuple["subprocess.Popen[bytes]", str]]:
    arguments = {"shape": (4,), "dtype": "float32", "step_seconds": step_seconds}
    command = [sys.executable, "-m", "learner", _CONFIG, "--workdir", str(workdir)]
    command += ["--bind", "127.0.0.1:0", "--serving.training-slots", str(slots)]
    command += ["--environment.arguments", json.dumps(arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=sys.stderr) as process:
        try:
            status = workdir / "status.json"
            while not (address := _address(status)):
                if process.poll() is not None:
                    raise RuntimeError("the learner has ended")
                time.sleep(_LOOK_SECONDS)
            yield process, address
        finally:
            process.kill()


def _address(status: Path) -> str:
    return str(json.loads(status.read_text())["address"]) if status.exists() else ""


def _life(fleet: Fleet, number: int, hold_seconds: float, kill: int) -> dict[str, Any]:
    begun = time.monotonic()
    first = fleet.wait_for(number)
    attached = time.monotonic() - begun
    starts = [_start_cpu(fleet, number) for _ in range(_ROUNDS if kill else 0)]
    start_cpu = statistics.median(starts or [0.0])
    held = _hold(fleet, hold_seconds)
    returned, phases = _return_of(fleet, number, kill) if kill else (0.0, {})
    after = _hold(fleet, min(hold_seconds, 30.0))
    of_all = streams(fleet.folder)
    bound = _SLACK * kill * start_cpu / num_cores() + _SLACK_SECONDS
    return {
        "attached_seconds": round(attached, 1),
        "held_seconds": round(held.seconds, 1),
        "lost_sessions": held.lost + after.lost,
        "messages": held.messages,
        "messages_per_second": round(held.messages / held.seconds, 1),
        "learner_cpu_us_per_message": round(1e6 * held.learner_seconds / held.messages, 1),
        "all_cpu_us_per_message": round(1e6 * held.all_seconds / held.messages, 1),
        "env_server_mib": round(held.env_server_mib, 1),
        "killed": kill,
        "start_cpu_seconds": round(start_cpu, 3),
        "return_seconds": round(returned, 2),
        **phases,
        "return_bound_seconds": round(bound, 2),
        # While those came the learner compiled.
        "slowest_first_assign_seconds": _slowest_assign(of_all[pid] for pid in first),
        "slowest_assign_seconds": _slowest_assign(
            of_all[pid] for pid in of_all.keys() - set(first)
        ),
    }


def _slowest_assign(of_env_servers: Iterable[list[Stream]]) -> float:
    """Seconds from Hello to Assign, at most; 0 of none."""
    found = [stream for each in of_env_servers for stream in each]
    return round(max((s.assigned - s.hello for s in found if s.assigned), default=0.0), 3)


def _start_cpu(fleet: Fleet, number: int) -> float:
    """CPU seconds of a start, its parent's part included, where one starts for each core."""
    cores = num_cores()
    before = sorted(fleet.attached())
    parent = _cpu_seconds(fleet.parent.pid)
    fleet.kill(random.Random(0).sample(before, cores))
    started = [pid for pid in fleet.wait_for(number) if pid not in before]
    parent = _cpu_seconds(fleet.parent.pid) - parent
    return (sum(map(_cpu_seconds, started)) + parent) / len(started)


def _hold(fleet: Fleet, seconds: float) -> Held:
    first = fleet.attached()
    before = _new_status(fleet)
    learner, others = _cpu_seconds(fleet.learner.pid), sum(map(_cpu_seconds, first))
    time.sleep(seconds)
    if fleet.learner.poll() is not None:
        raise RuntimeError("the learner has ended")
    after = _new_status(fleet)
    learner = _cpu_seconds(fleet.learner.pid) - learner
    others = sum(map(_cpu_seconds, first)) - others
    last = fleet.attached()
    lost = sum(len(last[pid]) - len(of_pid) if pid in last else 1 for pid, of_pid in first.items())
    # Each env server has one environment, whose episode never ends: a message is a step.
    messages = after["env_steps"] - before["env_steps"]
    took = after["time_seconds"] - before["time_seconds"]
    mib = statistics.mean(map(_own_mib, first))
    return Held(took, lost, messages, learner, learner + others, mib)


def _return_of(fleet: Fleet, number: int, kill: int) -> tuple[float, dict[str, float]]:
    """Kills `kill` of them at once, which their parent starts again.

    Returns seconds until the last has its first actions; and those to Hello, from there to Assign,
    and from there to the first actions, by the median.
    """
    before = sorted(fleet.attached())
    begun = time.monotonic()
    fleet.kill(random.Random(0).sample(before, kill))
    again = [pid for pid in fleet.wait_for(number) if pid not in before]
    found = fleet.attached()
    of_again = [found[pid][-1] for pid in again]
    phases = {
        "return_to_hello_seconds": [stream.hello - begun for stream in of_again],
        "hello_to_assign_seconds": [(s.assigned or math.inf) - s.hello for s in of_again],
        "assign_to_actions_seconds": [
            (s.answered or math.inf) - (s.assigned or math.inf) for s in of_again
        ],
    }
    returned = max(stream.answered or math.inf for stream in of_again) - begun
    return returned, {name: round(statistics.median(each), 2) for name, each in phases.items()}


def _new_status(fleet: Fleet) -> dict[str, Any]:
    """What the learner says next of itself, as soon as it does."""
    path = fleet.workdir / "status.json"
    before = path.read_bytes()
    while (now := path.read_bytes()) == before:
        if fleet.learner.poll() is not None:
            raise RuntimeError("the learner has ended")
        time.sleep(0.01)
    found: dict[str, Any] = json.loads(now)
    return found


def _cpu_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _own_mib(pid: int) -> float:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0.0
    return int(text.partition("\nPss:")[2].split()[0]) / 1024


if __name__ == "__main__":
    sys.exit(main())
