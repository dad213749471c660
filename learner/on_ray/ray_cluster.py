"""A Ray cluster: the one module that imports ray (extra `ray`)."""

import contextlib
import logging
import time
from collections.abc import Iterator, Sequence
from importlib import metadata
from typing import Any, Self

import ray
from ray.exceptions import ActorUnavailableError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from learner.on_ray.cluster import LostError, Place, UnansweredError
from learner.on_ray.hosted import HostedProcess
from learner.on_ray.nodes import GPU, TPU, Demand, Node
from seedrl.errors import ConfigError, HostLostError

# `follow` waits in one, while the others are called.
_THREADS = 4
_LONGEST_REASON = 200
# Lines of Ray's errors that say who, and not why.
_NOISE = ("The actor died unexpectedly", "class_name:", "actor_id:", "ip:", "pid:", "name")


class _Actor(HostedProcess):
    def place(self) -> Place:
        node = ray.get_runtime_context().get_node_id()
        return Place(node, ray.util.get_node_ip_address(), metadata.version("seedrl"))


class RayCluster:
    """Owns this process's connection to a cluster; see `learner.on_ray.cluster.Cluster`."""

    def __init__(self, address: str) -> None:
        """Connects. Raises ConfigError if there is no cluster at that address."""
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
            raise ConfigError(
                f"--address: no Ray cluster answers at {address!r} (`ray start --head` starts one "
                f"on a machine): {_line(error)}"
            ) from error
        self._address = address
        self._actor = ray.remote(_Actor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        ray.shutdown()

    def nodes(self) -> list[Node]:
        """Those that are alive."""
        with self._reaching():
            found = ray.nodes()
        alive = [(node, node["Resources"]) for node in found if node["Alive"]]
        return [
            Node(
                node["NodeID"],
                node["NodeManagerAddress"],
                resources.get("CPU", 0.0),
                {name: resources[name] for name in (GPU, TPU) if name in resources},
            )
            for node, resources in alive
        ]

    def place(self, demand: Demand, node: Node | None) -> Any:
        """An actor on that node, or another one."""
        strategy: Any = "DEFAULT"
        if node is not None:
            strategy = NodeAffinitySchedulingStrategy(node.id, True, _spill_on_unavailable=True)
        accelerators = dict(demand.accelerators)
        options: dict[str, Any] = {"accelerator_type": demand.kind} if demand.kind else {}
        # It ends with this process; whether it is made again is not Ray's to say.
        chosen = self._actor.options(
            num_cpus=demand.cpus,
            num_gpus=accelerators.pop(GPU, 0),
            resources=accelerators,
            scheduling_strategy=strategy,
            max_concurrency=_THREADS,
            max_restarts=0,
            **options,
        )
        with self._reaching():
            return chosen.remote()

    def call(self, actor: Any, method: str, *arguments: object) -> Any:
        """Calls a method, and does not wait for it."""
        with self._reaching():
            made = getattr(actor, method).remote(*arguments)
            hash(made)  # over ray:// that waits for its id: here, where a loss is understood
            return made

    def ready(self, calls: Sequence[Any], seconds: float) -> Sequence[Any]:
        """Calls that have an answer; waits for one."""
        if not calls:
            time.sleep(seconds)
            return []
        with self._reaching():
            ready: list[Any] = ray.wait(list(calls), timeout=seconds)[0]
            if ready:
                ready = ray.wait(list(calls), num_returns=len(calls), timeout=0)[0]
        return ready

    def answer(self, call: Any) -> Any:
        """What a call has returned."""
        try:
            with self._reaching():
                return ray.get(call)
        except ActorUnavailableError as error:
            raise UnansweredError(_line(error)) from error
        except RayError as error:
            cause = getattr(error, "cause", None)
            if isinstance(cause, ConfigError):
                raise cause from None  # one line: where a node has raised it helps nobody
            raise LostError(_line(error)) from error

    def remove(self, actor: Any) -> None:
        """Ends an actor by force."""
        with self._reaching(), contextlib.suppress(RayError):
            ray.kill(actor)

    @contextlib.contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except ConnectionError as error:
            if isinstance(error, RayError):
                raise  # of what an actor has called
            raise HostLostError(
                f"the connection to the cluster at {self._address} is lost ({_line(error)}), and "
                "with it a run that it had; the same command with --workdir resumes that"
            ) from error


def _line(error: Exception) -> str:
    """What a person needs of an error: its last line, if it is the traceback of a node's code."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(_NOISE)]
    is_traceback = isinstance(error, RayTaskError) or "creation task" in str(error)
    found = (lines[-1] if is_traceback else lines[0]) if lines else type(error).__name__
    return found[:_LONGEST_REASON]
