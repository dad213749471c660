"""A run on several hosts, all of them processes of this machine, each with an env server."""

import json
import secrets
import socket
from pathlib import Path
from typing import Any

from seedrl import run_files
from tests.system.processes import Program, Programs, events, wait_for
from tests.system.recorded_episodes import VARIABLE

RECORDED = ("--environment.wrappers", "tests.system.recorded_episodes:RecordedEpisodes")


class SeveralHosts:
    """H learners that share a run's directory, and an env server for each.

    Attributes:
      learners, env_servers: of this session, by the index of the host.
    """

    def __init__(
        self, programs: Programs, workdir: Path, config: str, *words: object, environments: int = 8
    ):
        """`environments`: of each env server, at most."""
        self._programs, self.workdir, self._environments = programs, workdir, environments
        self._words = (config, *words)
        self.learners: list[Program] = []
        self.env_servers: list[Program] = []
        self.episodes = workdir.with_suffix(".episodes")
        self._token = workdir.with_suffix(".token")
        self._token.write_text(secrets.token_hex(32))

    def start(self, count: int, *, devices: int = 1) -> None:
        """Starts a session of `count` hosts; each has `devices` fake devices."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            coordinator = f"127.0.0.1:{free.getsockname()[1]}"
        self.learners = [
            self._programs(
                "learner",
                *self._words,
                *("--workdir", self.workdir),
                *(("--process-count", count, "--coordinator", coordinator) if count > 1 else ()),
                *(("--process-index", index) if count > 1 else ()),
                *("--bind", "127.0.0.1:0", "--token-file", self._token),
                **_variables(devices),
            )
            for index in range(count)
        ]
        self.env_servers = [
            self._programs(
                "envs_server",
                *("--learner", self._address(index)),
                *("--num-envs", self._environments, "--allow-env", "tests.*"),
                *("--token-file", self._token),
                **{VARIABLE: str(self.episodes)},
            )
            for index in range(count)
        ]

    def folder(self, index: int) -> Path:
        """Where a host writes of itself."""
        return self.workdir if index == 0 else self.workdir / "hosts" / str(index)

    def status(self, index: int = 0) -> dict[str, Any]:
        """What a host of this session does; empty if it has not said so yet."""
        path = self.folder(index) / run_files.STATUS
        try:
            found: dict[str, Any] = json.loads(path.read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return found if found["pid"] == self.learners[index].pid else {}

    def _address(self, index: int) -> str:
        learner = self.learners[index]
        return str(wait_for(lambda: self.status(index).get("address"), learner))

    def events(self, kind: str, index: int = 0) -> list[dict[str, Any]]:
        """Those of a kind that a host has written, of all sessions."""
        return events(self.folder(index), kind)

    def wait_for_updates(self, more: int) -> None:
        """Waits until the run has learned so many updates more."""
        first = max((e["fields"]["updates"] for e in self.events("saved")), default=0)
        wait_for(lambda: self.status().get("updates", 0) >= first + more, self.learners[0])

    def wait_for_save(self) -> None:
        """Waits until one more checkpoint is there."""
        number = len(self.events("saved"))
        wait_for(lambda: len(self.events("saved")) > number, self.learners[0])

    def episodes_played_twice(self) -> int:
        """How many episodes begin as another one did, over all hosts and sessions."""
        lines = self.episodes.read_text().splitlines()
        seeds = [line.split(" ")[0] for line in lines if not line.startswith(" ")]
        begins = [line.split(" ")[1] for line in lines]
        assert seeds, "no environment was seeded"
        return len(seeds) - len(set(seeds)) + len(begins) - len(set(begins))


def _variables(devices: int) -> dict[str, str]:
    """Of a learner with so many fake devices: one thread each would not do, collectives block."""
    if devices == 1:
        return {}
    flags = f"--xla_force_host_platform_device_count={devices}"
    return {"XLA_FLAGS": flags, "PJRT_NPROC": str(8 * devices)}
