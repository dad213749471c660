"""How this host joins the others of its run, also for jax, and what they begin with."""

import contextlib
import functools
import hashlib
import json
import os
import secrets
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from learner.multihost.agreement import Hosts
from learner.multihost.meeting import dial, receive_all
from learner.multihost.peers import MessageSocket, Peers
from learner.multihost.topology import Topology
from learner.processes.stop import StopRequest
from seedrl import checkpoints, run_files
from seedrl.checkpoints import Checkpoint, encode_spec, saved_spec
from seedrl.config import OWN_SERVING, Config
from seedrl.config_io import to_json
from seedrl.errors import ConfigError, UserError
from seedrl.exit_codes import ExitCode
from seedrl.observations import spec_difference
from seedrl.programs.help import describe
from seedrl.specs import EnvSpec
from seedrl.timing import POLL_SECONDS
from seedrl.wire.credentials import read_token

# What hosts may have each its own, beside OWN_SERVING.
_OWN = ("launch", "logging")  # each starts its own env servers and writes files of its own


class StoppedError(UserError):
    """The wait for other hosts was ended by a signal."""

    # Not 0: the engine that has started this host would take its part of the run for done.
    exit_code = ExitCode.KILLED


@contextlib.contextmanager
def joined(
    topology: Topology,
    config: Config,
    stop: StopRequest,
    init_from: Path | None = None,
    init_from_partial: bool = False,
) -> Iterator[Hosts]:
    """The hosts of a run, once all are there. What it starts from has to be the same on all.

    What is raised inside ends the others, too, and so does a signal before all have agreed on the
    end. Raises UserError if they do not come together, StoppedError if `stop` is set before.
    """
    if topology.process_count == 1:
        yield Hosts()
        return
    if config.learning.schedule != "asynchronous":
        raise ConfigError(
            f"--process-count: learning.schedule {config.learning.schedule} is for one host, where "
            "one thread acts and learns; expected asynchronous"
        )
    if config.checkpoint.replay:
        raise ConfigError(
            "checkpoint.replay: expected false with --process-count, got true: each of several "
            "hosts fills its replay again after a restart"
        )
    start = {
        "--init-from": str(init_from or "nothing"),
        "--init-from-partial": str(init_from_partial),
    }
    # Before jax joins: it would wait for a missing host in silence, and compare nothing.
    hosts = Hosts(peers := Peers(topology, _meet(topology, config, stop, start)))
    try:
        address = _free_address(topology) if topology.is_first else ""
        join_jax(
            topology, config, peers.gather("jax", address)[0]
        )  # the first host's word is all's
        yield hosts
    # The others end at once, with this reason, and not when this host has been silent too long.
    except BaseException as error:
        peers.fail(error)
        raise
    if stop.is_set() and not hosts.end:
        peers.fail(f"stopped by {stop.by}")
    peers.leave()


def _meet(
    topology: Topology, config: Config, stop: StopRequest, start: Mapping[str, str]
) -> dict[int, MessageSocket]:
    # Once all are there and have found that they share one run.
    run = _common(config) | {"--process-count": str(topology.process_count), **start}
    token = _token(config, topology)
    line = f"learner: {topology.name} waits for the others, at {topology.coordinator}"
    print(line, file=sys.stderr, flush=True)

    poll = functools.partial(_require_wanted, stop)
    if topology.is_first:
        return receive_all(topology, run, token, poll=poll)
    return {0: dial(topology, run, token, poll=poll)}


def own_folder(workdir: Path, topology: Topology) -> Path:
    """Where this host writes of itself: the first one in the run's directory, others below it."""
    return workdir if topology.is_first else workdir / run_files.HOSTS / str(topology.process_index)


def require_shared(workdir: Path, hosts: Hosts, stop: StopRequest, seconds: float = 20.0) -> None:
    """Raises ConfigError if hosts do not see one directory of the run within some seconds."""
    if hosts.is_alone:
        return
    note, word = workdir / run_files.HOSTS_NOTE, secrets.token_hex(8)
    if hosts.peers.topology.is_first:
        note.write_text(word)  # a word of this start: an earlier one's may still be there
    word = _gathered("folder", word, hosts, stop)[0]
    deadline = time.monotonic() + seconds
    while not (sees := _holds(note, word)) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    all_see = _gathered("sees", sees, hosts, stop)
    if not all(all_see):
        raise ConfigError(
            f"--workdir: expected one directory that all hosts share, but {workdir} of host "
            f"{all_see.index(False)} is another one than that of host 0"
        )


def _holds(note: Path, word: str) -> bool:
    with contextlib.suppress(OSError):
        # NFS keeps for up to a minute what it has last read of a folder; listing asks again.
        os.listdir(note.parent)
        return note.read_text() == word
    return False


def common_checkpoint(
    found: Checkpoint | None, workdir: Path, hosts: Hosts, stop: StopRequest
) -> Checkpoint | None:
    """What all hosts resume from: what the first one has found."""
    if hosts.is_alone:
        return found
    # Its step only: each host reads the checkpoint from the folder.
    step = of_first("resume", None if found is None else found.step, hosts, stop)
    if hosts.peers.topology.is_first or step is None:
        return found
    # Verified on each host: what it reads came over its own way to the disk.
    return checkpoints.choose(workdir, step=step)


def of_first(tag: str, value: Any, hosts: Hosts, stop: StopRequest) -> Any:
    """The first host's value, on all hosts. Raises StoppedError."""
    return _gathered(tag, value, hosts, stop)[0]


def common_spec(
    wait_for_spec: Callable[..., EnvSpec | None],
    hosts: Hosts,
    stop: StopRequest,
    check_threads: Callable[[], object],
    timeout: float,
) -> EnvSpec | None:
    """What environments look like, for all hosts: also for one that no env server has joined.

    None if no host has an env server after `timeout` seconds, or if the run is stopped meanwhile.
    Raises ConfigError if hosts have different ones, and what `check_threads` raises.
    """
    # Of several hosts one may have no env server; it takes the spec of another.
    own = wait_for_spec(timeout)
    if hosts.is_alone:
        return own
    text = None if own is None else encode_spec(own)
    try:
        texts = _gathered("spec", text, hosts, stop, check_threads)
    except StoppedError:
        return None
    found = next((each for each in texts if each is not None), None)
    if found is None:
        return None
    spec = saved_spec(found)
    # One that has joined since it was asked for may have brought another one, too.
    own = wait_for_spec(0.0, spec)
    if own is not None and (difference := spec_difference(spec, own)):
        raise ConfigError(
            f"environment: expected the same on all hosts, got {'; '.join(difference)}. hint: "
            "check whether another version of it is installed there"
        )
    # The common one, of which one program follows: this host's own may declare other bounds.
    return spec


def _gathered(
    tag: str,
    value: Any,
    hosts: Hosts,
    stop: StopRequest,
    check_threads: Callable[[], object] = lambda: None,
) -> list[Any]:
    # What all hosts give before the run begins. Raises StoppedError if `stop` is set meanwhile.
    def poll() -> None:
        check_threads()
        _require_wanted(stop)

    return hosts.peers.gather(tag, value, poll)


def _require_wanted(stop: StopRequest) -> None:
    if stop.is_set():
        raise StoppedError(f"stopped by {stop.by}")


def _token(config: Config, topology: Topology) -> str:
    # By which hosts know each other.
    serving = config.serving
    if serving.token_file:
        return read_token(Path(serving.token_file))
    if not serving.insecure:
        raise ConfigError(
            f"--coordinator: whoever reaches {topology.coordinator} could take a host's place; set "
            "serving.token_file (--token-file), the same on all hosts, or serving.insecure on a "
            "network that you trust"
        )
    return ""


def _common(config: Config) -> dict[str, str]:
    """What must be the same on all hosts: a digest of each section of the configuration."""
    # Another version may compile another program, and collectives of two never meet.
    common = {"versions": f"{describe()}, jax {jax.__version__}"}
    for section, fields in json.loads(to_json(config))["config"].items():
        if section in _OWN:
            continue
        if section == "serving":
            fields = {name: value for name, value in fields.items() if name not in OWN_SERVING}
        text = json.dumps(fields, sort_keys=True)
        # A digest: a difference is named by its section, and no host shows another its config.
        common[section] = f"SHA-256 {hashlib.sha256(text.encode()).hexdigest()[:16]}"
    return common


def _free_address(topology: Topology) -> str:
    """Where jax's coordinator can serve: beside the coordinator of the run, on a free port."""
    host = topology.coordinator.rpartition(":")[0]
    # Free at this moment; if it is taken before jax serves there, the start fails and is repeated.
    with socket.create_server(("", 0)) as free:
        return f"{host}:{free.getsockname()[1]}"


def join_jax(topology: Topology, config: Config, address: str) -> None:
    """Joins the processes of a run, before jax has looked for devices.

    jax's own liveness is not used: it ends a process by `abort` as soon as the first one is
    gone, with an exit code that names nothing, and after minutes if another one is. So all of them
    leave its service again, once they are connected to each other; see `leave_jax`. Nor may jax's
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
        # What the collectives of gloo need of the service, they need for the first one alone, over
        # just these devices.
        _connect(_learning(topology, config))
        leave_jax()


def leave_jax() -> None:
    """Leaves jax's service, together with the other processes; again it does nothing.

    After that nothing of jax ends this process when another one is gone. Comes after the first
    program with collectives, which makes use of the service.
    """
    if jax.distributed.is_initialized():
        jax.distributed.shutdown()


def _learning(topology: Topology, config: Config) -> list[jax.Device]:
    # Of all hosts. Of numbers that do not fit, which are refused later: anything, alike on all.
    count = topology.process_count
    local = min(len(jax.local_devices(process_index=index)) for index in range(count))
    rest = local - config.serving.inference_devices // count
    return devices_of(topology, max(1, config.learning.num_devices // count or rest))


def _connect(devices: Sequence[jax.Device]) -> None:
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
    # One program over all devices: a host with fewer would not take part in all of it.
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
