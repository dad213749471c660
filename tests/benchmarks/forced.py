"""Is the verdict of a run right? `python -m tests.benchmarks.forced [CASE...]`.

Each case is a run of `seedrl train` that is slow for one reason: of ten cases the run's own
`status.json` has to name nine right, and what it predicts of the named change has to be within 15
points of what the change brings. The change is made in the live run if that is possible, else in a
second run.
"""

import contextlib
import json
import os
import queue
import secrets
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from learner.cli.arguments import table
from seedrl.programs.command_line import POSITIONAL, read
from tests.benchmarks import paced
from tests.system.proxy import Proxy

PROG = "python -m tests.benchmarks.forced"
ROOT = Path(__file__).parents[2]
_START_SECONDS = 180.0
_INTERVAL_SECONDS = 2.0
# From the first update on, or from a change in a live run: until an interval has only what follows.
_SETTLE_SECONDS = 2.5 * _INTERVAL_SECONDS
_MOST_ERROR = 0.15


@dataclass(frozen=True, kw_only=True)
class Case:
    """A run that is slow for one reason.

    Attributes:
      cause: that the run should name.
      config: file beside this one.
      words: options of `seedrl train`.
      pace: see `paced.set_pace`.
      change: options on top that make the named change; None if `live` does.
      live: the pace that makes the change in the live run.
      network_ms: delay of each message, each way.
      neighbours: processes that compute on the run's only core until the change is made.
    """

    cause: str
    config: str = "paced.py"
    words: str = ""
    pace: Mapping[str, float]
    change: str | None = None
    live: Mapping[str, float] | None = None
    network_ms: float = 0.0
    neighbours: int = 0


# Batches whose weights alone are 30 MB; hardly any update.
_LARGE = "--agent.network.torso-sizes 2048 2048 --learning.batch-sequences 8 --replay.ratio 0.02"
CASES = {
    "slow environment": Case(
        cause="slow environments",
        words="--env-servers 2 --envs 8",
        pace={"others": 20},
        change="--env-servers 3 --envs 12",
    ),
    "slow network": Case(
        cause="slow network",
        words="--envs 8",
        pace={"others": 0.2},
        network_ms=20,
        change="--envs 16",
    ),
    "slow update": Case(
        cause="slow updates",
        words="--env-servers 2 --envs 16 --replay.ratio 1 --learning.batch-sequences 64 "
        "--agent.network.torso-sizes 2048 2048",
        pace={"others": 1},
        change="--replay.ratio 0.5",
    ),
    "one straggler": Case(
        cause="one straggler",
        words="--env-servers 3 --envs 12",
        pace={"others": 20, "process_1": 100},
        live={"others": 20},
    ),
    "busy neighbour": Case(
        cause="busy neighbour",
        words="--env-servers 1 --envs 8 --replay.ratio 4",
        pace={"others": 0},
        live={"others": 0},
        neighbours=1,
    ),
    "small batch": Case(
        cause="small batches",
        words=f"--env-servers 1 --envs 2 {_LARGE}",
        pace={"others": 0},
        change="--envs 4",
    ),
    "long deadline": Case(
        cause="long deadline",
        words="--env-servers 3 --envs 6 --groups 1 --serving.batch-deadline-seconds 0.04",
        pace={"others": 400, "process_1": 20},
        change="--serving.batch-deadline-seconds 0.02",
    ),
    "too few groups": Case(
        cause="too few groups",
        words=f"--env-servers 1 --envs 8 --groups 1 {_LARGE}",
        pace={"others": 2},
        change="--groups 2",
    ),
    "high ratio": Case(
        cause="high replay ratio",
        words="--env-servers 2 --envs 16 --replay.ratio 16 --agent.network.torso-sizes 512",
        pace={"others": 1},
        change="--replay.ratio 8",
    ),
    "full queue": Case(
        config="paced_queue.py",
        cause="full queue",
        words="--env-servers 2 --envs 16",
        pace={"others": 1},
        change="--agent.epochs 4",
    ),
}


class Observed:
    """Looks at a run's `status.json`."""

    def __init__(self, workdir: Path, process: "subprocess.Popen[bytes]") -> None:
        self._path, self._process = workdir / "status.json", process

    def now(self) -> dict[str, Any]:
        if self._process.poll() is not None:
            raise RuntimeError(f"the run has ended with {self._process.returncode}")
        with contextlib.suppress(FileNotFoundError):
            status: dict[str, Any] = json.loads(self._path.read_text())
            return status
        return {"state": "", "updates": 0}

    def wait_until_learning(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while (status := self.now())["state"] != "training" or not status["updates"]:
            if time.monotonic() > deadline:
                raise RuntimeError(f"no update within {_START_SECONDS:.0f} s")
            time.sleep(0.2)

    def over(self, seconds: float) -> dict[str, Any]:
        """Steps/s, and what most verdicts of that time name, with its median gain."""
        time.sleep(_SETTLE_SECONDS)
        first, end = self.now(), time.monotonic() + seconds
        verdicts = []
        while time.monotonic() < end:
            time.sleep(1.0)
            last = self.now()
            if last["verdict"]:
                verdicts.append(last["verdict"])
        passed = last["time_seconds"] - first["time_seconds"]
        causes = Counter(each["cause"] for each in verdicts)
        cause = causes.most_common(1)[0][0] if causes else ""
        named = [each for each in verdicts if each["cause"] == cause]
        return {
            "steps_per_second": (last["env_steps"] - first["env_steps"]) / passed,
            "cause": cause,
            "causes": causes,
            "change": named[-1]["change"] if named else "",
            "predicted": statistics.median(each["gain"] for each in named) if named else 0.0,
            "balance": last["balance"],
            "metrics": last["metrics"],
        }


@contextlib.contextmanager
def running(case: Case, words: Sequence[str], folder: Path) -> Iterator[Observed]:
    """A run with these options, and its env servers."""
    folder.mkdir()
    paced.set_pace(folder, **case.pace)
    options = [
        *(str(Path(__file__).with_name(case.config)), "--workdir", str(folder / "run")),
        *("--environment.arguments", json.dumps({"folder": str(folder)})),
        *("--logging.interval-seconds", str(_INTERVAL_SECONDS)),
        *words,
    ]
    with contextlib.ExitStack() as stack:
        if case.network_ms:
            options = _over_network(stack, case, options, folder)
        else:
            options = ["learner.cli.main", "train", *options]
        process = stack.enter_context(_process(options, folder, single_core=case.neighbours > 0))
        yield Observed(folder / "run", process)


def _over_network(
    stack: contextlib.ExitStack, case: Case, options: Sequence[str], folder: Path
) -> list[str]:
    # Env servers that reach the learner through a relay which delays what it passes on.
    token = folder / "token"
    token.write_text(secrets.token_hex(32))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    relay = stack.enter_context(contextlib.closing(Delay(port, case.network_ms / 1e3)))
    envs = int(options[options.index("--envs") + 1])
    kept = [word for word in options if word not in ("--envs", str(envs))]
    command = ["envs_server", "--learner", relay.address, "--token-file", str(token)]
    command += ["--no-local-link", "--allow-env", "tests.benchmarks.paced:Paced"]
    command += ["--processes", "2", "--num-envs", str(envs // 2), "--logs", str(folder / "logs")]
    stack.enter_context(_process(command, folder))
    own = ["--bind", f"127.0.0.1:{port}", "--token-file", str(token)]
    return ["learner", *kept, *own, "--serving.training-slots", str(envs)]


@contextlib.contextmanager
def _process(
    words: Sequence[str], folder: Path, *, single_core: bool = False
) -> "Iterator[subprocess.Popen[bytes]]":
    cores = {min(os.sched_getaffinity(0))}
    with (folder / f"{words[0]}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", *words],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=(lambda: os.sched_setaffinity(0, cores)) if single_core else None,
        )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Delay(Proxy):
    """Passes each byte on some seconds later, both ways."""

    def __init__(self, port: int, seconds: float) -> None:
        self._seconds = seconds
        super().__init__(port)

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        arrived: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()

        def send() -> None:
            with contextlib.suppress(OSError):
                while (item := arrived.get())[1]:
                    time.sleep(max(0.0, item[0] - time.monotonic()))
                    sink.sendall(item[1])
                sink.shutdown(socket.SHUT_RDWR)

        source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=send, daemon=True).start()
        data = b"first"
        while data:
            try:
                data = source.recv(2**16)
            except OSError:
                data = b""
            arrived.put((time.monotonic() + self._seconds, data))


@contextlib.contextmanager
def neighbours(number: int) -> Iterator[Callable[[], None]]:
    """Processes that compute on the first core; what is given ends them."""
    core = min(os.sched_getaffinity(0))
    spin = f"import os\nos.sched_setaffinity(0, {{{core}}})\nwhile True: pass"
    processes = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(number)]

    def end() -> None:
        for process in processes:
            process.kill()
            process.wait()

    try:
        yield end
    finally:
        end()


def measured(case: Case, seconds: float, folder: Path) -> dict[str, Any]:
    """What the run says, and what its change brings."""
    words = case.words.split()
    with contextlib.ExitStack() as stack:
        run = stack.enter_context(running(case, words, folder / "before"))
        run.wait_until_learning()
        end = stack.enter_context(neighbours(case.neighbours))
        before = run.over(seconds)
        if case.live is not None:
            end()
            paced.set_pace(folder / "before", **case.live)
            after = run.over(seconds)
    if case.change is not None:
        with running(case, _changed(words, case.change.split()), folder / "after") as run:
            run.wait_until_learning()
            after = run.over(seconds)
    gain = after["steps_per_second"] / before["steps_per_second"] - 1
    is_right = before["cause"] == case.cause
    error = before["predicted"] - gain
    return {
        "expected": case.cause,
        "is_right": is_right,
        "measured": gain,
        "is_within": is_right and abs(error) <= _MOST_ERROR,
        **before,
        "after": after,
    }


def _changed(words: Sequence[str], change: Sequence[str]) -> list[str]:
    # A flag of the change takes the place of the same flag.
    flags = {word for word in change if word.startswith("--")}
    kept: list[str] = []
    is_kept = True
    for word in words:
        if word.startswith("--"):
            is_kept = word not in flags
        if is_kept:
            kept.append(word)
    return [*kept, *change]


def lines(found: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """The table, and a verdict of each line of the issue."""
    rows = [("case", "named", "steps/s", "change", "predicted", "measured", "")]
    for name, each in found.items():
        remark = "wrong" if not each["is_right"] else "" if each["is_within"] else "off"
        rows.append(
            (
                name,
                each["cause"],
                f"{each['steps_per_second']:.0f}",
                each["change"],
                f"{each['predicted']:+.0%}",
                f"{each['measured']:+.0%}",
                remark,
            )
        )
    yield from table(rows)
    number = len(found)
    right = sum(each["is_right"] for each in found.values())
    within = sum(each["is_within"] for each in found.values())
    least = -(-9 * number // 10)
    yield f"{_word(right >= least)}: the cause is right in {right} of {number} (at least {least})"
    close = f"the predicted gain is also within {100 * _MOST_ERROR:.0f} points"
    yield f"{_word(within >= least)}: {close} in {within} of {number} (at least {least})"


def _word(is_met: bool) -> str:
    return "met" if is_met else "MISSED"


@dataclass(frozen=True, kw_only=True)
class ForcedOptions:
    """Run cases that are slow for one reason, and compare what the runs say with the truth.

    Attributes:
      names: cases; by default all.
      seconds: duration of each measurement.
      output: JSON file to write.
      logs: keep the folders of the runs here.
    """

    names: Annotated[tuple[str, ...], POSITIONAL] = ()
    seconds: float = 12.0
    output: Path | None = None
    logs: Path | None = None


def main(options: ForcedOptions) -> int:
    names = options.names or tuple(CASES)
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="seedrl-forced-") as own:
        for name in names:
            folder = (options.logs or Path(own)) / name.replace(" ", "_")
            folder.mkdir(parents=True)
            found[name] = measured(CASES[name], options.seconds, folder)
            print(f"{name}: {found[name]['balance']}", flush=True)
            print(f"    {dict(found[name]['causes'])}", flush=True)
            if options.output is not None:
                options.output.write_text(json.dumps(found, indent=1))
    print(*lines(found), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(read(ForcedOptions, None, prog=PROG)))
