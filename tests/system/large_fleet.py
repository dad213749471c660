"""Many real env servers and a real learner, over TCP as between hosts: do all stay, and return?

    python -m tests.system.large_fleet --json docs/results/large_fleet.json
    python -m tests.system.large_fleet --env-servers 128 --step-ms 50 --minutes 1 --kill 0 \
        --of-linear 0.9 --niceness 0

starts them all at once, counts for `--minutes` how many streams end, then kills `--kill` of them,
starts as many again, and says how long it takes until each of those has its first actions. Each has
one environment, whose step sleeps, and stands back for the learner (`--niceness`). What it promises
is in `verdict`; it ends with 1 if something of that was missed. With SEEDRL_GATE_SCALE=0.05 it does
a twentieth of all that.
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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from learner.bench.measure.machine import describe, num_cores
from learner.launch.env_servers import env_server_environment
from tests.faults.scale import scaled
from tests.system.chaos import ledger
from tests.system.processes import ROOT
from tests.system.timed_env_server import Stream, streams

_CONFIG = "tests/system/large_fleet_config.py"
# How often as many env servers as there are cores are started at once, to see what a start takes: a
# core whose neighbour works as well may be much slower than one alone.
_ROUNDS = 3
# Of an env server that starts, and of one that is served: they have a ninth of a learner's weight,
# and a seventh of that.
_START_NICENESS, _NICENESS = 10, 19
# To look at the files of all takes time that the fleet needs to start.
_LOOK_SECONDS = 0.5
_START_SECONDS = 600.0
# The promises: those that were killed are back in that many times the CPU time of their starts, and
# so many seconds; Assign follows Hello within so many.
_SLACK, _SLACK_SECONDS, _HELLO_SECONDS = 1.3, 2.0, 2.0


@dataclass
class EnvServer:
    """One of them: its process, and where it writes."""

    folder: Path
    number: int
    address: str
    niceness: int
    starts: int = 0
    process: "subprocess.Popen[bytes]" = field(init=False)

    def start(self) -> None:
        """Starts it, again after it was killed, with the same log of what it has sent."""
        self.starts += 1
        command = ["nice", "-n", str(min(self.niceness, _START_NICENESS))]
        command += [sys.executable, "-m", "tests.system.timed_env_server", str(self._file)]
        command += ["--learner", self.address, "--num-envs", "1", "--no-local-link"]
        command += ["--niceness", str(self.niceness)]
        command += ["--sent-log", str(self.folder / "logs" / f"{self.number}.sent")]
        with (self.folder / f"{self.number}.log").open("ab") as log:
            # So that they keep compiled modules, which each would otherwise compile again.
            environment = {**env_server_environment(), "PYTHONDONTWRITEBYTECODE": ""}
            self.process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=log)

    @property
    def _file(self) -> Path:
        return self.folder / f"{self.number}_{self.starts}.json"

    @property
    def streams(self) -> list[Stream]:
        """Of its present process."""
        return streams(self._file)

    @property
    def is_attached(self) -> bool:
        """Whether the stream that it has now was answered."""
        found = self.streams
        return bool(found) and found[-1].answered is not None and found[-1].ended is None


class Fleet(NamedTuple):
    """All env servers, and the learner that they have."""

    learner: "subprocess.Popen[bytes]"
    workdir: Path
    env_servers: Sequence[EnvServer]

    def wait_for(self, env_servers: Sequence[EnvServer]) -> None:
        """Waits until these are attached. Raises RuntimeError if they do not get so far."""
        deadline = time.monotonic() + _START_SECONDS
        left = list(env_servers)
        while left := [each for each in left if not each.is_attached]:
            if time.monotonic() > deadline or self.learner.poll() is not None:
                raise RuntimeError(f"{len(left)} of {len(env_servers)} env servers never attached")
            time.sleep(_LOOK_SECONDS)


class Held(NamedTuple):
    """What happened while all were to stay.

    Attributes:
      seconds: how long that was.
      lost: streams that ended.
      messages: that arrived.
      learner_seconds: CPU time of the learner.
      all_seconds: of it and its env servers.
    """

    seconds: float
    lost: int
    messages: int
    learner_seconds: float
    all_seconds: float


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
        folder = Path(name)
        (folder / "run" / "logs").mkdir(parents=True)
        with _learner(folder / "run", number, step_seconds) as (learner, address):
            env_servers = [
                EnvServer(folder / "run", index, address, niceness) for index in range(number)
            ]
            fleet = Fleet(learner, folder / "run", env_servers)
            try:
                found = _life(fleet, hold_seconds, kill)
                learner.send_signal(signal.SIGTERM)
                found["exit_code"] = learner.wait(_START_SECONDS)
            finally:
                for each in env_servers:
                    if each.starts:
                        each.process.kill()
                        each.process.wait()
        linear = number / step_seconds
        rates = {"of_linear": round(found["messages_per_second"] / linear, 3)}
        accounts = ledger(folder / "run")
    return {
        "env_servers": number,
        "step_ms": 1e3 * step_seconds,
        **found,
        **rates,
        "residue": accounts["residue"],
        "rows_sent": accounts["rows_sent"],
    }


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


def _life(fleet: Fleet, hold_seconds: float, kill: int) -> dict[str, Any]:
    alone, *others = fleet.env_servers
    start_alone = _start_cpu(fleet, [alone])
    first, rest = others[: _ROUNDS * num_cores()], others[_ROUNDS * num_cores() :]
    rounds = (first[start::_ROUNDS] for start in range(_ROUNDS))
    of_rounds = [_start_cpu(fleet, together) for together in rounds if together]
    start_cpu = statistics.median(of_rounds or [start_alone])
    begun = time.monotonic()
    for each in rest:
        each.start()
    fleet.wait_for(fleet.env_servers)
    attached = time.monotonic() - begun
    held = _hold(fleet, hold_seconds)
    returned, phases = _return_of(fleet, kill) if kill else (0.0, {})
    after = _hold(fleet, min(hold_seconds, 30.0))
    of_first = [each for each in fleet.env_servers if each.starts == 1]
    again = [each for each in fleet.env_servers if each.starts > 1]
    bound = _SLACK * kill * start_cpu / num_cores() + _SLACK_SECONDS
    return {
        "attached_seconds": round(attached, 1),
        "held_seconds": round(held.seconds, 1),
        "lost_sessions": held.lost + after.lost,
        "messages": held.messages,
        "messages_per_second": round(held.messages / held.seconds, 1),
        "learner_cpu_us_per_message": round(1e6 * held.learner_seconds / held.messages, 1),
        "all_cpu_us_per_message": round(1e6 * held.all_seconds / held.messages, 1),
        "killed": kill,
        "start_alone_cpu_seconds": round(start_alone, 3),
        "start_cpu_seconds": round(start_cpu, 3),
        "return_seconds": round(returned, 2),
        **phases,
        "return_bound_seconds": round(bound, 2),
        # While those came the learner compiled.
        "slowest_first_assign_seconds": _slowest_assign(of_first),
        "slowest_assign_seconds": _slowest_assign(again),
    }


def _slowest_assign(env_servers: Sequence[EnvServer]) -> float:
    """Seconds from Hello to Assign, at most; 0 of none."""
    found = [each for env_server in env_servers for each in env_server.streams]
    return round(max((s.assigned - s.hello for s in found if s.assigned), default=0.0), 3)


def _start_cpu(fleet: Fleet, env_servers: Sequence[EnvServer]) -> float:
    """CPU seconds of the start of each, until its first actions, if all start at once."""
    for each in env_servers:
        each.start()
    fleet.wait_for(env_servers)
    return statistics.mean(_cpu_seconds(each.process.pid) for each in env_servers)


def _hold(fleet: Fleet, seconds: float) -> Held:
    pids = [each.process.pid for each in fleet.env_servers]
    first = [len(each.streams) for each in fleet.env_servers]
    before = _new_status(fleet)
    learner, others = _cpu_seconds(fleet.learner.pid), sum(map(_cpu_seconds, pids))
    time.sleep(seconds)
    if fleet.learner.poll() is not None:
        raise RuntimeError("the learner has ended")
    after = _new_status(fleet)
    learner = _cpu_seconds(fleet.learner.pid) - learner
    others = sum(map(_cpu_seconds, pids)) - others
    lost = sum(
        len(each.streams) - number + (not each.is_attached)
        for each, number in zip(fleet.env_servers, first, strict=True)
    )
    # Each env server has one environment, whose episode never ends: a message is a step.
    messages = after["env_steps"] - before["env_steps"]
    took = after["time_seconds"] - before["time_seconds"]
    return Held(took, lost, messages, learner, learner + others)


def _return_of(fleet: Fleet, number: int) -> tuple[float, dict[str, float]]:
    """Kills `number` of them at once, and starts them again.

    Returns seconds until the last has its first actions; and those to Hello, from there to Assign,
    and from there to the first actions, by the median.
    """
    killed = random.Random(0).sample(list(fleet.env_servers), number)
    begun = time.monotonic()
    for each in killed:
        each.process.send_signal(signal.SIGKILL)
    for each in killed:
        each.process.wait()
        each.start()
    fleet.wait_for(killed)
    streams = [each.streams[-1] for each in killed]
    phases = {
        "return_to_hello_seconds": [stream.hello - begun for stream in streams],
        "hello_to_assign_seconds": [(s.assigned or math.inf) - s.hello for s in streams],
        "assign_to_actions_seconds": [
            (s.answered or math.inf) - (s.assigned or math.inf) for s in streams
        ],
    }
    returned = max(stream.answered or math.inf for stream in streams) - begun
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


if __name__ == "__main__":
    sys.exit(main())
