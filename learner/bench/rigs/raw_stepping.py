"""The environments' own stepping rate, in as many processes as there are env servers."""

from typing import Self

from learner.bench.measure.measuring_process import MeasuringProcesses
from learner.launch import env_servers
from seedrl.config import Config
from seedrl.spec_json import decode_spec
from seedrl.specs import EnvSpec


class RawStepping:
    """Owns processes of `python -m envs_server.bench.stepping`; used by one thread.

    As many, with as many environments in as many groups, as `config.launch` says.
    """

    def __init__(self, config: Config):
        environment, launch = config.environment, config.launch
        flags = [
            *("--environment", environment.id, "--arguments", environment.arguments),
            *("--vectorization", environment.vectorization),
            *("--num-envs", str(launch.envs_per_server // launch.groups)),
            *("--groups", str(launch.groups)),
        ]
        if environment.wrappers:
            flags += ["--wrappers", *environment.wrappers]
        self._processes = MeasuringProcesses(
            "envs_server.bench.stepping",
            *flags,
            environment=env_servers.env_server_environment(),
            copies=launch.env_servers,
        )

    def __enter__(self) -> Self:
        self._processes.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._processes.close()

    @property
    def spec(self) -> EnvSpec:
        """Of each environment."""
        return decode_spec(self._processes.ready[0]["spec"])

    def rate(self, seconds: float) -> float:
        """Lets all processes step for `seconds`; environment steps per second of all together."""
        answers = self._processes.ask(seconds)
        return sum(answer["steps"] / answer["seconds"] for answer in answers)

    def cpu_seconds_per_step(self, seconds: float) -> float:
        """Lets all processes step for `seconds`; what a step took of the CPU."""
        answers = self._processes.ask(seconds)
        return float(
            sum(answer["cpu_seconds"] for answer in answers)
            / sum(answer["steps"] for answer in answers)
        )
