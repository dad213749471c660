"""A hub behind its gRPC service, and the env servers that it waits for."""

import contextlib
import dataclasses
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from learner.launch import env_servers
from learner.launch.child import Command
from learner.launch.env_servers import Fleet, socket_address
from learner.launch.supervisor import Supervisor
from learner.serving.batch_rules import free_running
from learner.serving.core import Serving
from learner.serving.hub import Hub
from learner.serving.leases import SlotTable
from learner.serving.server import Service
from seedrl.config import Config, EnvironmentConfig
from seedrl.config_checks import check, page_steps

ANY_PORT = "127.0.0.1:0"

_START_SECONDS = 300.0


class Commands(Protocol):
    """See `learner.launch.env_servers.commands`."""

    def __call__(
        self, planned: Fleet, environment: EnvironmentConfig, /, *, address: str, logs: Path
    ) -> list[Command]:
        """The env servers' command lines."""
        ...


class ServedFleet:
    """Owns the service and its env servers, which entering starts and leaving ends.

    Attributes:
      config: with the address that is served, and slots for all environments and nobody else.
      folder: for whatever a run writes; removed at the end.
      hub: where the env servers' steps arrive. Nobody answers them but the caller.
    """

    def __init__(
        self, config: Config, commands: Commands = env_servers.commands, *, over_tcp: bool = False
    ):
        """Args not named here are attributes.

        Args:
          commands: gives the command lines, as `learner.launch.env_servers.commands` does.
          over_tcp: whether to serve on a port of this host, as between hosts, and not on a socket.
        """
        self._over_tcp = over_tcp
        launch = config.launch
        self._commands = commands
        num_envs = launch.env_servers * launch.envs_per_server
        self._stack = contextlib.ExitStack()
        self._fleet = Fleet(
            launch.env_servers,
            launch.envs_per_server,
            launch.groups,
            launch.local_link,
            group_threads=launch.group_threads,
        )
        serving = dataclasses.replace(config.serving, training_slots=num_envs, evaluation_slots=0)
        evaluation = dataclasses.replace(config.evaluation, target_return=None)
        self.config = dataclasses.replace(config, serving=serving, evaluation=evaluation)

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self.folder = Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="seedrl-bench-"))
            )
            address = ANY_PORT if self._over_tcp else stack.enter_context(socket_address())
            serving = env_servers.on_private_socket(self.config.serving, address)
            serving = dataclasses.replace(serving, insecure=self._over_tcp)
            self.config = dataclasses.replace(self.config, serving=serving)
            check(self.config)
            self.hub = _hub(self.config)
            service = Service(self.hub, self.config.serving)
            address = service.start()
            stack.callback(service.stop, grace_seconds=0.0)
            commands = self._commands(
                self._fleet,
                self.config.environment,
                address=address,
                logs=self.folder / "logs",
            )
            stack.enter_context(Supervisor(commands, restarts=0))
            # A first step of every environment: then all of them are built.
            self.await_rows(self.config.serving.training_slots)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def await_rows(self, num_rows: int) -> None:
        """Waits until N rows have arrived in all. Raises RuntimeError if they do not."""

        def accepted() -> int:
            return self.hub.ledger().get("accepted", 0)

        if not self.hub.wait_until(lambda: accepted() >= num_rows, _START_SECONDS):
            raise RuntimeError(
                f"expected {num_rows} steps of environments within {_START_SECONDS:.0f} seconds, "
                f"got {accepted()}: {self._logs()}"
            )

    def _logs(self) -> str:
        lines = (path.read_text()[-500:] for path in sorted(self.folder.glob("logs/*.log")))
        return " | ".join(" ".join(text.split()) for text in lines)


def _hub(config: Config) -> Hub:
    slots = SlotTable(training=config.serving.training_slots, evaluation=0, seed=config.seed)
    serving = Serving(
        slots,
        page_steps=page_steps(config),
        rule=free_running(config.serving.batch_deadline_seconds),
    )
    return Hub(serving, config.environment)
