"""What one slow, killed or hung environment costs those beside it, in real env servers.

Acting takes no time here, so that env servers are what is measured.
"""

import itertools
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

from learner.report.env_servers import EnvServerRegistry
from learner.serving.batching import free_running
from learner.serving.core import Serving
from learner.serving.hub import Hub
from learner.serving.leases import SlotTable
from learner.serving.server import Service
from seedrl.config import EnvironmentConfig, ServingConfig
from tests.faults.scale import VARIABLE, scaled
from tests.patience import SECONDS
from tests.system.processes import ROOT

pytestmark = pytest.mark.gate

Record = Callable[[str, object], None]
_ID = "tests.faults.bad_environment:make"
_SERVERS, _ENVS, _GROUPS = 2, 16, 2
# Two cores of a busy machine: measured in turn, and long enough.
_SECONDS = scaled(60)
_TURNS = 3
_DEADLINE_SECONDS = 2.0


class Fleet:
    """A service that answers at once, and its env servers; one environment may be bad."""

    def __init__(self, folder: Path, fault: str, *options: str) -> None:
        folder.mkdir()
        self.folder, address = folder, f"unix:{folder}/learner"
        slots = _SERVERS * _ENVS
        environment = EnvironmentConfig(
            id=_ID, arguments=f'{{"claim": "{folder}/claim", "fault": "{fault}"}}'
        )
        serving = Serving(
            SlotTable(training=slots, evaluation=0, seed=3),
            page_steps=8,
            rule=free_running(0.0),
        )
        registry = EnvServerRegistry(training_slots=slots, step_deadline_seconds=_DEADLINE_SECONDS)
        self.hub = Hub(serving, environment, registry=registry)
        config = ServingConfig(
            training_slots=slots,
            evaluation_slots=0,
            bind=address,
            step_deadline_seconds=_DEADLINE_SECONDS,
        )
        self.service = Service(self.hub, config)
        self.service.start()
        command = [sys.executable, "-m", "envs_server", "--learner", address, "--allow-env", _ID]
        command += ["--num-envs", str(_ENVS), "--groups", str(_GROUPS), *options]
        variables = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self.processes: list[subprocess.Popen[bytes]] = []
        for number in range(_SERVERS):
            with (folder / f"{number}.log").open("wb") as log:
                process = subprocess.Popen(command, cwd=ROOT, stderr=log, env=variables)
            self.processes.append(process)
            self.answer_until(lambda most=number + 1: len(hub_sizes(self.hub)) >= most)

    def answer_until(self, condition: Callable[[], object], seconds: float = SECONDS) -> bool:
        """Answers until it holds; whether it did in time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if condition():
                return True
            batch = self.hub.next_batch(["training"], timeout=0.05)
            if batch is not None:
                self.hub.answer(batch, np.zeros(len(batch.slots), np.int32))
        return False

    def steps(self) -> Counter[tuple[int, int]]:
        """Environment steps so far of each group, by its env server's process and its number."""
        found: Counter[tuple[int, int]] = Counter()
        for lease in list(self.hub._serving.slots.leases.values()):
            pid = int(lease.peer.rpartition(":")[2])
            for group in lease.groups:
                found[pid, group.number] += group.sequence * len(group.slots)
        return found

    def rates(self, seconds: float) -> dict[tuple[int, int], float]:
        """Steps a second of each group while it is answered for so long."""
        before, start = self.steps(), time.monotonic()
        self.answer_until(lambda: False, seconds)
        passed = time.monotonic() - start
        return {key: (steps - before[key]) / passed for key, steps in self.steps().items()}

    def bad(self) -> int:
        """The process that holds the claim."""
        text = Path("/proc/locks").read_text()
        inode = str((self.folder / "claim").stat().st_ino)
        return next(int(line.split()[4]) for line in text.splitlines() if f":{inode} " in line)

    def close(self) -> None:
        """Ends all of it."""
        for process in self.processes:
            process.kill()
            process.wait()
        self.service.stop(grace_seconds=0.0)


def hub_sizes(hub: Hub) -> list[str]:
    """The env servers that step."""
    return [server.name for server in hub.env_servers().servers if server.state == "live"]


@contextmanager
def _fleet(folder: Path, fault: str, *options: str) -> Iterator[Fleet]:
    with ExitStack() as stack:
        fleet = Fleet(folder, fault, *options)
        stack.callback(fleet.close)
        fleet.answer_until(lambda: False, 2.0)  # warm
        yield fleet


def test_a_straggler_holds_back_its_own_env_server(tmp_path: Path, record_property: Record) -> None:
    seen: dict[str, Counter[str]] = {"none": Counter(), "slow": Counter()}
    for turn, fault in itertools.product(range(_TURNS), seen):
        with _fleet(tmp_path / f"{fault} {turn}", fault) as fleet:
            rates, bad = fleet.rates(_SECONDS / _TURNS), fleet.bad()
        # The sixth of sixteen is in the first group.
        seen[fault]["own"] += rates[bad, 0]
        seen[fault]["mates"] += rates[bad, 1]
        seen[fault]["other"] += sum(rate for (pid, _), rate in rates.items() if pid != bad)
    for who in ("own", "mates", "other"):
        record_property(f"rate_of_{who}", round(seen["slow"][who] / seen["none"][who], 3))
    assert seen["slow"]["own"] < seen["none"]["own"]


def test_an_env_server_that_is_killed_is_noticed_and_the_other_goes_on(
    tmp_path: Path, record_property: Record
) -> None:
    with _fleet(tmp_path / "killed", "none") as fleet:
        victim, other = (process.pid for process in fleet.processes)
        before = fleet.rates(_SECONDS / 2)
        killed = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        assert fleet.answer_until(lambda: len(fleet.hub.connections()) == _SERVERS - 1)
        noticed = time.monotonic() - killed
        record_property("killed_noticed_seconds", round(noticed, 3))
        after = fleet.rates(_SECONDS / 2)
    share = sum(after[other, group] for group in range(_GROUPS)) / sum(
        before[other, group] for group in range(_GROUPS)
    )
    record_property("rate_of_other", round(share, 3))
    assert VARIABLE in os.environ or (noticed <= 0.5 and share >= 0.95)


def test_a_hang_is_noticed_within_the_deadline_and_a_second_and_others_go_on(
    tmp_path: Path, record_property: Record
) -> None:
    with _fleet(tmp_path / "none", "none") as fleet:
        undisturbed = fleet.rates(_SECONDS / 2)
        pids = {process.pid for process in fleet.processes}
    assert pids == {pid for pid, _ in undisturbed}
    with _fleet(tmp_path / "hangs", "hangs") as fleet:
        bad = fleet.bad()
        other = next(process.pid for process in fleet.processes if process.pid != bad)
        log = fleet.folder / f"{[p.pid for p in fleet.processes].index(bad)}.log"
        rates = fleet.rates(_SECONDS / 2)
        (hung,) = (process for process in fleet.processes if process.pid == bad)
        assert fleet.answer_until(lambda: hung.poll() is not None) and hung.returncode == 1
        assert "most recent call first" in log.read_text()
    share = sum(rates[other, group] for group in range(_GROUPS)) * _SERVERS
    record_property("rate_of_other", round(share / sum(undisturbed.values()), 3))
