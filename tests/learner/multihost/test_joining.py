"""How hosts find that they share a run, and what they have each their own way."""

import contextlib
import dataclasses
import functools
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from learner.multihost import joining
from learner.multihost.agreement import Hosts
from learner.multihost.joining import StoppedError, common_spec, joined, require_shared
from learner.multihost.peers import Peers
from learner.multihost.topology import Topology
from learner.processes.stop import StopRequest
from seedrl import config_io, run_files
from seedrl.config import Config
from seedrl.errors import ConfigError
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec
from tests.learner.multihost.linked import at_once, linked
from tests.patience import wait_until

CELL = EnvSpec(ArraySpec((), "int64", (0,), (15,), is_categorical=True), DiscreteSpec(2))
BOUNDLESS = EnvSpec(ArraySpec((), "int64"), DiscreteSpec(2))
OTHER = EnvSpec(ArraySpec((5,), "float32"), DiscreteSpec(2))


def insecure() -> Config:
    config = config_io.load("cartpole_r2d2")
    return dataclasses.replace(config, serving=dataclasses.replace(config.serving, insecure=True))


@pytest.mark.parametrize("other", ["a", "b", "c"])
def test_hosts_with_folders_of_their_own_are_refused(tmp_path: Path, other: str) -> None:
    for name in "abc":
        (tmp_path / name).mkdir()
    (tmp_path / "c" / run_files.HOSTS_NOTE).write_text("the word of an earlier start")

    def refusal(peers: Peers, folder: Path) -> str:
        try:
            require_shared(folder, Hosts(peers), StopRequest(), 0.0)
        except ConfigError as error:
            return str(error)
        return ""

    with linked(2) as peers:
        pairs = zip(peers, (tmp_path / "a", tmp_path / other), strict=True)
        texts = at_once([functools.partial(refusal, *pair) for pair in pairs])
    assert ["--workdir" in text and "host 1" in text for text in texts] == [other != "a"] * 2


def wait_for(
    wait_for_spec: Callable[..., EnvSpec | None],
    peers: Peers,
    stop: StopRequest,
    check_threads: Callable[[], object] = lambda: None,
) -> EnvSpec | None:
    return common_spec(wait_for_spec, Hosts(peers), stop, check_threads, 0.0)


def no_spec(timeout: float, given: EnvSpec | None = None) -> EnvSpec | None:
    """Of a hub that knows no environment until it is given one."""
    return given


# An env server in another language need not declare bounds, of which a network has its shape.
@pytest.mark.parametrize("then", [None, BOUNDLESS, OTHER])
def test_an_environment_that_comes_while_hosts_agree_is_the_same(then: EnvSpec | None) -> None:
    def spec(peers: Peers) -> object:
        def wait_for_spec(timeout: float, given: EnvSpec | None = None) -> EnvSpec | None:
            if peers.topology.is_first:
                return CELL
            return given and (then or given)

        try:
            return wait_for(wait_for_spec, peers, StopRequest())
        except ConfigError as error:
            return str(error).partition(":")[0]

    with linked(2) as peers:
        found = at_once([functools.partial(spec, each) for each in peers])
    assert found == [CELL, "environment" if then is OTHER else CELL]


def test_the_wait_for_a_host_ends_at_a_signal_or_if_a_thread_has_died() -> None:
    stop = StopRequest()

    def check_threads() -> None:
        raise InterruptedError

    with linked(2) as peers:
        with pytest.raises(InterruptedError):
            wait_for(no_spec, peers[0], stop, check_threads)
        stop.set()
        assert wait_for(no_spec, peers[0], stop) is None
        with pytest.raises(StoppedError):
            joining.common_checkpoint(None, Path("there"), Hosts(peers[1]), stop)


@pytest.mark.parametrize("waits", [True, False])
def test_a_host_that_is_stopped_before_the_run_begins_ends_the_others(
    monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    losses: list[str] = []
    stop, config = StopRequest(), insecure()
    with linked(2, losses) as peers:
        monkeypatch.setattr(joining, "_meet", lambda *_: {})
        monkeypatch.setattr(joining, "Peers", lambda *_: peers[1])
        monkeypatch.setattr(joining, "join_jax", lambda *_: None)
        threading.Thread(target=peers[0].gather, args=("jax", "a:1")).start()
        with contextlib.suppress(StoppedError), joined(peers[1].topology, config, stop) as hosts:
            stop.set("SIGTERM")
            if waits:
                joining.common_checkpoint(None, Path("there"), hosts, stop)
        wait_until(lambda: losses, "that the other host hears of it")
    assert losses == ["host 1 of 2 is lost: stopped by SIGTERM"]


def test_hosts_that_begin_with_other_parameters_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Once they have met, an error of one ends the process of the other: here they are threads.
    monkeypatch.setattr(joining, "Peers", lambda *_: pytest.fail("they have met"))
    with socket.create_server(("127.0.0.1", 0)) as free:
        coordinator = f"127.0.0.1:{free.getsockname()[1]}"

    def refused(index: int, init_from: Path | None) -> str:
        own = joined(Topology(coordinator, 2, index), insecure(), StopRequest(), init_from)
        with pytest.raises(ConfigError) as found, own:
            pass
        return str(found.value)

    texts = at_once([lambda: refused(0, tmp_path), lambda: refused(1, None)])
    assert ["--init-from" in text and str(tmp_path) in text for text in texts] == [True, True]
