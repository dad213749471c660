"""A learner's service in a process of its own that answers every step, and what it says of itself.

All of the real serving is there, and no device: it starts in a second. Ten times a second it writes
what it sees into a file. `python -m tests.system.served_process ADDRESS FILE SLOTS`.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from learner.serving.batching import free_running
from learner.serving.core import Serving
from learner.serving.hub import Hub
from learner.serving.leases import SlotTable
from learner.serving.ledger import ALWAYS, residues
from learner.serving.server import Service
from seedrl.config import EnvironmentConfig, ServingConfig
from tests import started
from tests.patience import SECONDS, wait_until
from tests.system.processes import ROOT

# Of one step of all environments: so an env server waits for time, and not for a core.
STEP_SECONDS = 0.01
_ARGUMENTS = {"shape": [4], "dtype": "float32", "step_seconds": STEP_SECONDS}
_ENVIRONMENT = EnvironmentConfig(
    id="envs_server.envs.constant:make", arguments=json.dumps(_ARGUMENTS)
)
_REPORT_SECONDS = 0.1


class Seen(NamedTuple):
    """What the process says.

    Attributes:
      address: where it serves.
      pid: its own.
      seconds: on the clock of all processes.
      rows: accepted so far.
      live: slots whose env server is ready.
      rss_mib: its memory.
      descriptors: that it has open.
      broken: equations of the ledger that do not hold.
      leases: given so far, to the slot that was leased most often.
    """

    address: str
    pid: int
    seconds: float
    rows: int
    live: int
    rss_mib: float
    descriptors: int
    broken: list[str]
    leases: int


class Served:
    """The process, from outside; its end is that of the `with`."""

    def __init__(self, folder: Path, bind: str = "", num_slots: int = 8) -> None:
        self._file = folder / "seen.json"
        self._bind = bind or f"unix:{folder}/learner"
        self._num_slots = num_slots
        self._silence = _silence(self._file)
        self.start()

    def start(self) -> None:
        """Starts it; again after `kill`."""
        self._file.unlink(missing_ok=True)
        words = [self._bind, str(self._file), str(self._num_slots)]
        self.process = _start(
            ["tests.system.served_process", *words], self._file.with_suffix(".log")
        )
        wait_until(lambda: self._file.exists() or self.process.poll() is not None)
        self._bind = self.seen.address  # the same port again

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait(SECONDS)

    @property
    def seen(self) -> Seen:
        """What it said last."""
        return Seen(**json.loads(self._file.read_text()))

    def suspend_answers(self) -> None:
        """Steps are accepted, and not acted on."""
        self._silence.touch()

    def resume_answers(self) -> None:
        """They are again."""
        self._silence.unlink()

    def wait_for(self, live: int) -> Seen:
        """Waits until so many slots are live."""
        wait_until(lambda: self.seen.live == live, f"{live} slots never were live")
        return self.seen

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


@contextlib.contextmanager
def env_server(
    address: str, num_envs: int, *words: str, log: Path = Path(os.devnull)
) -> Iterator["subprocess.Popen[str]"]:
    """A real one, whose stderr is `log`; killed at the end."""
    process = _start(
        ["envs_server", "--learner", address, "--num-envs", str(num_envs), *words], log
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(SECONDS)


def _start(words: list[str], log: Path) -> "subprocess.Popen[str]":
    with log.open("wb") as output:
        return started.start(
            words, cwd=ROOT, variables=started.variables(), stdout=output, stderr=output
        )


def _serve(bind: str, file: Path, num_slots: int) -> None:
    sys.setswitchinterval(0.0005)  # as a learner does
    config = ServingConfig(
        training_slots=num_slots,
        evaluation_slots=0,
        bind=bind,
        insecure=True,
        ready_deadline_seconds=30.0,
    )
    slots = SlotTable(training=num_slots, evaluation=0, seed=3)
    hub = Hub(Serving(slots, page_steps=4, rule=free_running(0.001)), _ENVIRONMENT)
    address = Service(hub, config).start()
    due = 0.0
    while True:
        is_silent = _silence(file).exists()
        batch = hub.next_batch([] if is_silent else ["training"], timeout=_REPORT_SECONDS)
        if batch is not None:
            hub.answer(batch, np.zeros(len(batch.slots), np.int32))
        if (now := time.monotonic()) < due:
            continue
        ledger = hub.ledger()
        seen = Seen(
            address,
            os.getpid(),
            now,
            ledger.get("accepted", 0),
            len(hub.live_slots("training")),
            _rss_mib(),
            len(list(Path("/proc/self/fd").iterdir())),
            residues(ledger, ALWAYS),
            max(hub._serving.slots.epochs.tolist()),
        )
        file.with_suffix(".new").write_text(json.dumps(seen._asdict()))
        file.with_suffix(".new").replace(file)
        due = now + _REPORT_SECONDS


def _silence(file: Path) -> Path:
    return file.with_suffix(".silent")


def _rss_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)


if __name__ == "__main__":
    _serve(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
