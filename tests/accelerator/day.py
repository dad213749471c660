"""Runs stages within the time of a call, and keeps what has become of each."""

import contextlib
import dataclasses
import json
import os
import re
import signal
import subprocess
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.accelerator.lab_record import write
from tests.accelerator.stages import Stage

# Training saves at SIGTERM; what has not ended by then is killed.
_GRACE_SECONDS = 60.0
# Left at the end of a call, for the record.
_RESERVE_SECONDS = 5.0
_POLL_SECONDS = 0.05
# From SIGKILL until the kernel has taken a process's memory back.
_END_SECONDS = 30.0
_TRIES = 2
_LONGEST = 200  # characters of what a stage has said last; all of it is in its log
_COUNTS = re.compile(r"^=*\s*((?:\d+ [a-z]+(?:, )?)+) in [\d.]+s")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a stage, or a piece of one, has ended.

    Attributes:
      stage, piece: which; pieces are counted from 1.
      status: `done`; `stopped` at its limit, as training is meant to; `failed`.
      seconds: that it took.
      detail: in words.
    """

    stage: str
    piece: int
    status: str
    seconds: float
    detail: str


class Day:
    """Owns the folder of a day: its outcomes, logs and runs. Used by one thread."""

    def __init__(
        self,
        root: Path,
        folder: Path,
        out: Path,
        *,
        commit: str = "",
        grace_seconds: float = _GRACE_SECONDS,
        say: Callable[[str], object] = lambda text: print(text, flush=True),
        clock: Callable[[], float] = time.monotonic,
    ):
        """Goes on with what an earlier call has left in `folder`.

        Args:
          root: of the checkout.
          out: where the record is written.
          commit: of the checkout, if it cannot tell.
          grace_seconds: from SIGTERM to SIGKILL.
          say: gets a line for each outcome.
          clock: monotonic seconds.
        """
        self._root, self._folder, self._out = root, folder, out
        self._commit, self._grace_seconds = commit, grace_seconds
        self._say, self._clock = say, clock
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        self._state = folder / "outcomes.json"
        saved = json.loads(self._state.read_text()) if self._state.exists() else []
        self.outcomes = [Outcome(**each) for each in saved]

    def run(
        self,
        stages: Sequence[Stage],
        seconds_left: Callable[[], float],
        *,
        also_done: bool = False,
    ) -> list[Outcome]:
        """Runs what is left of `stages`, as far as the time goes; returns what has ended.

        What has pieces comes by turns: a call has time for one or two of them. `also_done`: and
        what is not left, because it is done or has failed too often; in the order of `stages`.
        """
        ended = []
        for stage in stages if also_done else sorted(stages, key=self._num_pieces):
            if not (also_done or self._is_left(stage)):
                continue
            if not Path(stage.command[0]).exists():
                self._say(f"{stage.name:22} left: {stage.command[0]} is not there (stage install)")
                continue
            spare = seconds_left() - _RESERVE_SECONDS - self._grace_seconds
            if spare < stage.least_seconds:
                self._say(
                    f"{stage.name:22} left for another call: it needs {stage.least_seconds:.0f} s"
                )
                continue
            outcome = self._run(stage, min(stage.limit_seconds, spare))
            ended.append(outcome)
            self.outcomes.append(outcome)
            self._keep()
            piece = f" {outcome.piece}" if stage.pieces > 1 else ""
            name = f"{stage.name}{piece}"
            self._say(f"{name:22} {outcome.status:8} {outcome.seconds:5.0f} s  {outcome.detail}")
        return ended

    def _num_pieces(self, stage: Stage) -> int:
        """Of what has pieces, those that there have been."""
        return (stage.pieces > 1) * sum(each.stage == stage.name for each in self.outcomes)

    def _is_left(self, stage: Stage) -> bool:
        own = [each for each in self.outcomes if each.stage == stage.name]
        failures = [each for each in own if each.status == "failed"]
        num_ended = len(own) - len(failures)
        is_over = any(each.status == "done" for each in own) or num_ended >= stage.pieces
        return not is_over and len(failures) < _TRIES

    def _run(self, stage: Stage, limit_seconds: float) -> Outcome:
        piece = 1 + sum(each.stage == stage.name for each in self.outcomes)
        log = self._folder / "logs" / f"{stage.name}_{piece}.log"
        variables = {
            **os.environ,
            "PYTHONPATH": str(self._root),
            "PYTHONUNBUFFERED": "1",
            # Later pieces, and other benchmarks, compile the same.
            "JAX_COMPILATION_CACHE_DIR": str(self._folder / "compile_cache"),
            **stage.variables,
        }
        start = self._clock()
        code = self._ended(stage, log, variables, start + limit_seconds)
        text = log.read_text(errors="replace")
        is_stopped = self._clock() - start >= limit_seconds
        if code != 0:
            reason = f"after its limit of {limit_seconds:.0f} s; " * is_stopped
            detail = f"exit code {code}, {reason}{_of_tests(text) or _last_line(text)}"
            return self._outcome(stage, piece, "failed", start, detail)
        status = "stopped" if is_stopped else "done"
        return self._outcome(stage, piece, status, start, detail_of(stage, text))

    def _ended(self, stage: Stage, log: Path, variables: dict[str, str], limit: float) -> int:
        """Its exit code, once it has ended by itself, of a signal at its limit, or by force.

        `limit` is a time of the clock.
        """
        with log.open("wb") as output:
            process = subprocess.Popen(
                stage.command,
                cwd=self._root,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            if not self._ends_by(limit, process):
                # pytest tells its counts when it is interrupted, and nothing when it is ended.
                process.send_signal(signal.SIGINT if stage.kind == "tests" else signal.SIGTERM)
                self._ends_by(self._clock() + self._grace_seconds, process)
        finally:
            # Nobody outlives its stage: the next one is measured, and needs the memory.
            _end_session(process.pid)
        return process.wait()

    def _ends_by(self, end: float, process: subprocess.Popen[bytes]) -> bool:
        while process.poll() is None and self._clock() < end:
            time.sleep(_POLL_SECONDS)
        return process.poll() is not None

    def _outcome(self, stage: Stage, piece: int, status: str, start: float, detail: str) -> Outcome:
        seconds = round(self._clock() - start, 1)
        return Outcome(stage=stage.name, piece=piece, status=status, seconds=seconds, detail=detail)

    def _keep(self) -> None:
        outcomes = [dataclasses.asdict(each) for each in self.outcomes]
        new = self._state.with_suffix(".new")
        new.write_text(json.dumps(outcomes, indent=2) + "\n")
        os.replace(new, self._state)
        write(self._folder, self._out, outcomes, self._commit)


def _end_session(number: int) -> None:
    """Kills all processes of a session: `seedrl train` gives each child a group of its own."""
    deadline = time.monotonic() + _END_SECONDS
    while (left := _of_session(number)) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)


def _of_session(number: int) -> list[int]:
    """Those of its processes that have not ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended
            # What follows the name, which may hold anything: state, parent, group, session.
            words = (path / "stat").read_text(errors="replace").rpartition(")")[2].split()
            if words[0] != "Z" and int(words[3]) == number:
                found.append(int(path.name))
    return found


def detail_of(stage: Stage, text: str) -> str:
    """What a stage has reached, in words; `text`: what it has said."""
    if stage.kind == "tests":
        return _of_tests(text) or _last_line(text)
    if stage.kind == "bench" and stage.result is not None and stage.result.exists():
        rows = json.loads(stage.result.read_text())["rows"]
        reached = [f"{row['name'].partition(': ')[2]} {row['ratio']['median']:.2f}" for row in rows]
        return "of the limit: " + ", ".join(reached)
    if stage.kind == "training" and stage.result is not None:
        status = stage.result / "status.json"
        return of_status(json.loads(status.read_text())) if status.exists() else "no status"
    return _last_line(text)


def of_status(status: Mapping[str, Any]) -> str:
    """How far a run is, by its status.json."""
    best = status["best_evaluation"]
    score = "nothing measured" if best is None else f"best round {best['mean_return']:.4g}"
    steps, seconds = status["env_steps"], status["elapsed_seconds"]
    return (
        f"{steps:,} environment steps, {status['updates']:,} updates in {seconds:.0f} s of "
        f"training, {score}; {status['reason']}"
    )


def _of_tests(text: str) -> str:
    matches = [_COUNTS.match(line) for line in text.splitlines()]
    return next((match.group(1) for match in reversed(matches) if match), "")


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return textwrap.shorten(lines[-1], _LONGEST) if lines else "it said nothing"
