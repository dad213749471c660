"""Processes that measure: raw environments, and benchmarks that are tuned as a learner is."""

import contextlib
import functools
import json
import multiprocessing
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any, ParamSpec, Self

from learner.extras.bench.measuring import Result
from learner.processes import env_servers
from learner.processes.tuning import tune_process
from seedrl.config import Config

P = ParamSpec("P")


class RawStepping:
    """Owns processes that step environments as fast as they can; used by one thread.

    As many processes, with as many environments in as many groups, as `config.launch` has. Each
    (`python -m envs_server.stepping`) prints a line of JSON when it is ready, answers a line
    with a number of seconds by another line of JSON, and ends when its input ends.
    """

    def __init__(self, config: Config):
        environment, launch = config.environment, config.launch
        asked = {
            "id": environment.id,
            "arguments": environment.arguments,
            "wrappers": environment.wrappers,
            "vectorization": environment.vectorization,
            "num_envs": launch.envs_per_server // launch.groups,
            "groups": launch.groups,
        }
        self._command = [sys.executable, "-m", "envs_server.stepping", json.dumps(asked)]
        self._copies = launch.env_servers
        self._processes: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.callback(self._close)
            for _ in range(self._copies):
                process = subprocess.Popen(
                    self._command,
                    env=env_servers.env_server_environment(),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
                self._processes.append(process)
            for process in self._processes:
                self._read(process)
            stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._close()

    def rate(self, seconds: float) -> float:
        """Lets all processes step for `seconds`; environment steps per second of all together.

        Raises RuntimeError if one has ended.
        """
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{seconds}\n")
            process.stdin.flush()
        answers = [self._read(process) for process in self._processes]
        return float(sum(answer["steps"] / answer["seconds"] for answer in answers))

    def _close(self) -> None:
        for process in self._processes:
            with contextlib.suppress(BrokenPipeError):
                process.communicate()

    def _read(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"stepping environments ended with {process.wait()}; see above")
        answer: dict[str, Any] = json.loads(line)
        return answer


def results(
    config: Config, measure: Callable[P, Iterator[Result]], *args: P.args, **kwargs: P.kwargs
) -> list[Result]:
    """Results of `measure(*args, **kwargs)`, a module's function, in a process of its own.

    The process is tuned as a learner of `config` is: what memory a process keeps cannot change
    once it has threads.
    """
    tune = functools.partial(tune_process, keeps_freed_memory=config.learning.keep_freed_memory)
    # Not forked: jax has threads here.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, initializer=tune) as pool:
        return pool.submit(_collect, functools.partial(measure, *args, **kwargs)).result()


def _collect(measure: Callable[[], Iterator[Result]]) -> list[Result]:
    return list(measure())
