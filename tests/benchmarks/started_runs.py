"""Runs of `seedrl train` in processes of their own, watched through their `status.json`."""

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
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.paced_environment import set_pace
from tests.system.proxy import Proxy

_ROOT = Path(__file__).parents[2]
_START_SECONDS = 180.0
_INTERVAL_SECONDS = 2.0
# From the first update on, or from a change in a live run: until an interval has only what follows.
_SETTLE_SECONDS = 2.5 * _INTERVAL_SECONDS
_END_SECONDS = 60.0


class Observed:
    """Looks at a run's `status.json`."""

    def __init__(self, workdir: Path, process: "subprocess.Popen[bytes]") -> None:
        self._path, self._process = workdir / "status.json", process

    def now(self) -> dict[str, Any]:
        """The newest status. Raises RuntimeError if the run has ended."""
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
        """Steps/s after a pause, and what most verdicts of that time name, with the median gain."""
        time.sleep(_SETTLE_SECONDS)
        first, end = self.now(), time.monotonic() + seconds
        last, verdicts = first, []
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
def running(
    words: Sequence[str],
    pace: Mapping[str, float],
    folder: Path,
    *,
    config: str = "paced.py",
    network_ms: float = 0.0,
    on_one_core: bool = False,
) -> Iterator[Observed]:
    """A run of a configuration beside this file, with these options, and its env servers.

    Args:
      words: options of `seedrl train`.
      pace: see `paced_environment.set_pace`.
      folder: to be made, for the run and its logs.
      network_ms: delay of each message between env servers and learner, each way.
      on_one_core: the run may use the first core only.
    """
    folder.mkdir(parents=True)
    set_pace(folder, **pace)
    options = [
        *(str(Path(__file__).with_name(config)), "--workdir", str(folder / "run")),
        *("--environment.arguments", json.dumps({"folder": str(folder)})),
        *("--logging.interval-seconds", str(_INTERVAL_SECONDS)),
        *words,
    ]
    with contextlib.ExitStack() as stack:
        if network_ms:
            options = _over_network(stack, network_ms, options, folder)
        else:
            options = ["learner.cli.main", "train", *options]
        process = stack.enter_context(program(options, folder, on_one_core=on_one_core))
        yield Observed(folder / "run", process)


def _over_network(
    stack: contextlib.ExitStack, network_ms: float, options: Sequence[str], folder: Path
) -> list[str]:
    # Two env servers, which reach the learner through a relay; the words of the learner.
    token = folder / "token"
    token.write_text(secrets.token_hex(32))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    relay = stack.enter_context(contextlib.closing(Delay(port, network_ms / 1e3)))
    # Of a flag given twice the last one counts; a learner alone has another one.
    places = [place for place, word in enumerate(options) if word == "--envs"]
    envs = int(options[places[-1] + 1])
    kept = [word for place, word in enumerate(options) if {place, place - 1}.isdisjoint(places)]
    command = ["envs_server", "--learner", relay.address, "--token-file", str(token)]
    command += ["--no-local-link", "--allow-env", "tests.benchmarks.paced_environment:Paced"]
    command += ["--processes", "2", "--num-envs", str(envs // 2), "--logs", str(folder / "logs")]
    stack.enter_context(program(command, folder))
    own = ["--bind", f"127.0.0.1:{port}", "--token-file", str(token)]
    return ["learner", *kept, *own, "--serving.training-slots", str(envs)]


@contextlib.contextmanager
def program(
    words: Sequence[str], folder: Path, *, on_one_core: bool = False
) -> "Iterator[subprocess.Popen[bytes]]":
    """Runs `python -m` with these words until the end of the block; its log is in the folder."""
    with (folder / f"{words[0]}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", *words],
            cwd=_ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=use_one_core if on_one_core else None,
        )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def use_one_core() -> None:
    """Leaves this process only the first of its cores."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


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
