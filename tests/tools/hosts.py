"""Runs on several hosts, for real and at length: `python -m tests.tools.hosts [WHAT ...]`.

All hosts are processes of this machine, joined by jax.distributed (gloo), each with an env server
of its own. Each result is a line of JSON. WHAT is of

  learn   2 and 4 hosts learn CartPole to 475, confirmed over 100 fresh episodes, on 3 seeds each
  kill    a host of 2 is killed 10 times, frozen twice, and the run resumes on 2
  resume  2 to 1, 1 to 2 and 4 to 2 hosts, 3 times each

by default all. Ends with 1 if anything is not as it should be.
"""

import json
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from seedrl import checkpoints
from seedrl.exit_codes import ExitCode
from tests.system.processes import TINY, Programs, wait_for
from tests.system.several_hosts import RECORDED, SeveralHosts

SEEDS = (0, 1, 2)
KILLS, FREEZES, RESUMES = 10, 2, 3
# What is promised of the time until all others have ended.
LOST_SECONDS = 60.0
UNHURRIED = ("--environment.wrappers", "tests.system.unhurried:Unhurried", RECORDED[1])
SHORT = (*TINY, *UNHURRIED, "--checkpoint.interval-seconds", 1)


def learn() -> Iterator[dict[str, Any]]:
    """Learns CartPole on 2 and on 4 hosts."""
    for count in (2, 4):
        for seed in SEEDS:
            yield _learned(count, seed)


def _learned(count: int, seed: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name, Programs(Path(name)) as programs:
        words = ("cartpole_r2d2", "--seed", seed, *RECORDED, "--checkpoint.interval-seconds", 10)
        run = SeveralHosts(programs, Path(name) / "run", *words, environments=66)
        start = time.monotonic()
        run.start(count)
        codes = [learner.process.wait(1800.0) for learner in run.learners]
        reason = run.events("ended")[-1]["fields"]["reason"]
        saves = len(run.events("saved"))  # by the first host, for all
        twice = run.episodes_played_twice()
        return {
            "what": "learn",
            "hosts": count,
            "seed": seed,
            "seconds": round(time.monotonic() - start, 1),
            "codes": codes,
            "reason": reason,
            # Each of them ends the run if parameters differ in a bit.
            "saves_with_equal_parameters": saves,
            "episodes_played_twice": twice,
            "ok": codes == [0] * count and "475 confirmed" in reason and saves > 0 and twice == 0,
        }


def kill() -> Iterator[dict[str, Any]]:
    """Kills or freezes one of two hosts, each of them in turn, again and again in one run."""
    with tempfile.TemporaryDirectory() as name, Programs(Path(name)) as programs:
        run = SeveralHosts(programs, Path(name) / "run", "cartpole_r2d2", *SHORT, environments=4)
        for number in range(KILLS + FREEZES):
            yield _killed(run, number, signal.SIGKILL if number < KILLS else signal.SIGSTOP)


def _killed(run: SeveralHosts, number: int, how: signal.Signals) -> dict[str, Any]:
    expected = checkpoints.latest(run.workdir / "checkpoints") if run.workdir.exists() else None
    run.start(2)
    run.wait_for_updates(5)
    run.wait_for_save()
    resumed_at = _resumed_at(run) if expected else 0
    lost = number % 2
    run.learners[lost].signal(how)
    start = time.monotonic()
    code = run.learners[1 - lost].process.wait(LOST_SECONDS * 2)
    seconds = time.monotonic() - start
    said = [
        line for line in run.learners[1 - lost].stderr.splitlines() if f"host {lost} of 2" in line
    ]
    run.learners[lost].signal(signal.SIGKILL)
    for program in (run.learners[lost], *run.env_servers):
        program.signal(signal.SIGKILL)
        program.process.wait()
    return {
        "what": "kill",
        "number": number,
        "how": how.name,
        "lost_host": lost,
        "code": code,
        "seconds": round(seconds, 2),
        "said": said,
        "resumed_at": resumed_at,
        "ok": code == ExitCode.TEMPORARY
        and seconds <= LOST_SECONDS
        and len(said) == 1
        and checkpoints.latest(run.workdir / "checkpoints") is not None
        and resumed_at == (expected.step if expected else 0),
    }


def resume() -> Iterator[dict[str, Any]]:
    """Resumes on another number of hosts."""
    for before, after in ((2, 1), (1, 2), (4, 2)):
        for number in range(RESUMES):
            # One device each, or as many in all as before.
            yield _resumed(before, after, number, keeps_devices=number == RESUMES - 1)


def _resumed(before: int, after: int, number: int, *, keeps_devices: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name, Programs(Path(name)) as programs:
        devices = max(before, after) if keeps_devices else 0
        words = (*SHORT, "--learning.num-devices", devices)
        run = SeveralHosts(programs, Path(name) / "run", "cartpole_r2d2", *words, environments=4)
        codes, saved = [], []
        for count in (before, after):
            run.start(count, devices=max(1, devices // count))
            run.wait_for_updates(5)
            run.learners[0].signal(signal.SIGTERM)
            codes += [learner.process.wait(120.0) for learner in run.learners]
            for program in run.env_servers:
                program.signal(signal.SIGTERM)
                program.process.wait()
            saved.append(checkpoints.latest(run.workdir / "checkpoints"))
        text = run.events("resumed")[-1]["text"]
        step = saved[0].step if saved[0] else -2
        return {
            "what": "resume",
            "hosts": [before, after],
            "number": number,
            "codes": codes,
            "saved_at": step,
            "resumed_at": _resumed_at(run),
            "said": text.partition("; ")[2],
            "ok": not any(codes) and _resumed_at(run) == step and "starts empty" in text,
        }


def _resumed_at(run: SeveralHosts) -> int:
    text = wait_for(lambda: run.events("resumed"), run.env_servers[0])[-1]["text"]
    found = re.search(r"from update ([\d,]+) ", text)
    return int(found[1].replace(",", "")) if found else -1


PARTS: dict[str, Callable[[], Iterator[dict[str, Any]]]] = {
    "learn": learn,
    "kill": kill,
    "resume": resume,
}


def main(words: list[str]) -> int:
    """Returns the exit code."""
    if unknown := set(words) - PARTS.keys():
        print(f"expected of {', '.join(PARTS)}, got {', '.join(sorted(unknown))}")
        return ExitCode.USAGE
    is_good = True
    for name in words or PARTS:
        for result in PARTS[name]():
            print(json.dumps(result), flush=True)
            is_good = is_good and result["ok"]
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
