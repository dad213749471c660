"""The environments' own stepping rate, in as many processes as there are env servers."""

import contextlib
import json
import subprocess
import sys
from types import TracebackType
from typing import Any, Self

from learner.cli import fleet
from seedrl.config import Config


class RawStepping:
    """Owns processes of `python -m envs_server.stepping`; used by one thread.

    As many, with as many environments in as many groups, as `config.launch` says.
    """

    def __init__(self, config: Config):
        environment, launch = config.environment, config.launch
        self._num_processes = launch.env_servers
        self._command = [
            *(sys.executable, "-m", "envs_server.stepping"),
            *("--environment", environment.id, "--arguments", environment.arguments),
            *("--vectorization", environment.vectorization),
            *("--num-envs", str(launch.envs_per_server // launch.groups)),
            *("--groups", str(launch.groups)),
        ]
        if environment.wrappers:
            self._command += ["--wrappers", *environment.wrappers]
        self._processes: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.callback(self._end)
            for _ in range(self._num_processes):
                self._processes.append(
                    subprocess.Popen(
                        self._command,
                        env=fleet.env_server_environment(),
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        text=True,
                    )
                )
            for process in self._processes:
                _read(process)
            stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end()

    def rate(self, seconds: float) -> float:
        """Lets all processes step for `seconds`; environment steps per second of all together."""
        return sum(answer["steps"] / answer["seconds"] for answer in self._step(seconds))

    def cpu_seconds_per_step(self, seconds: float) -> float:
        """Lets all processes step for `seconds`; what a step took of the CPU."""
        answers = self._step(seconds)
        return float(
            sum(answer["cpu_seconds"] for answer in answers)
            / sum(answer["steps"] for answer in answers)
        )

    def _step(self, seconds: float) -> list[dict[str, Any]]:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{seconds}\n")
            process.stdin.flush()
        return [_read(process) for process in self._processes]

    def _end(self) -> None:
        for process in self._processes:
            with contextlib.suppress(BrokenPipeError):
                process.communicate()


def _read(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"stepping environments ended with {process.wait()}; see above")
    answer: dict[str, Any] = json.loads(line)
    return answer
