"""jax's part of a run on several hosts: one module knows how processes are joined."""

import socket
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from learner.multihost.topology import Topology
from seedrl.errors import ConfigError


def free_address(topology: Topology) -> str:
    """Where jax's coordinator can serve: beside the coordinator of the run, on a free port."""
    host = topology.coordinator.rpartition(":")[0]
    with socket.create_server(("", 0)) as free:
        return f"{host}:{free.getsockname()[1]}"


def join(topology: Topology, address: str) -> None:
    """Joins the processes of a run, before jax has looked for devices.

    jax's own liveness is not used: it ends a process by `abort` as soon as the first one is
    gone, with an exit code that names nothing, and after minutes if another one is. So all of them
    leave its service again, once they are connected to each other; see `leave`. Nor may jax's
    preemption service be started, which would take SIGTERM away from Python.
    """
    jax.config.update("jax_enable_preemption_service", False)
    jax.distributed.initialize(
        address,
        num_processes=topology.process_count,
        process_id=topology.process_index,
        cluster_detection_method="deactivate",
        initialization_timeout=120,
        shutdown_timeout_seconds=30,  # unless all of them leave together; then nobody waits
    )
    jax.devices()  # tells all processes of all devices, and waits for that
    if jax.default_backend() == "cpu":
        # What the collectives of gloo need of the service, they need for the first one alone.
        connect(jax.devices())
        leave()


def leave() -> None:
    """Leaves jax's service, together with the other processes; again it does nothing.

    After that nothing of jax ends this process when another one is gone. Comes after the first
    program with collectives, which makes use of the service.
    """
    if jax.distributed.is_initialized():
        jax.distributed.shutdown()


def connect(devices: Sequence[jax.Device]) -> None:
    """Runs a first collective over devices of all processes."""
    count = jax.pmap(lambda one: jax.lax.psum(one, "device"), axis_name="device", devices=devices)
    local = sum(device.process_index == jax.process_index() for device in devices)
    found = np.asarray(count(jnp.ones(local, jnp.int32)))
    assert (found == len(devices)).all(), found


def require_as_many(topology: Topology) -> None:
    """Raises ConfigError if hosts have not as many devices each: then some would have no part."""
    counts = [
        len(jax.local_devices(process_index=index)) for index in range(topology.process_count)
    ]
    if len(set(counts)) > 1:
        raise ConfigError(
            f"learning.num_devices: expected as many devices on each host, got {counts}; set it to "
            f"{min(counts) * topology.process_count}, which all have"
        )


def devices_of(topology: Topology, num_local: int) -> list[jax.Device]:
    """The first `num_local` devices of each host, in the order of hosts."""
    return [
        device
        for index in range(topology.process_count)
        for device in jax.local_devices(process_index=index)[:num_local]
    ]
