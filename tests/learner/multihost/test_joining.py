"""How hosts find that they share a run, and what they have each their own way."""

import contextlib
import dataclasses
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from learner.multihost import joining
from learner.multihost.agreement import Agenda, Hosts
from learner.multihost.joining import CommonSpec, StoppedError, joined, require_shared
from learner.multihost.peers import Peers
from learner.multihost.topology import Topology
from learner.processes.stop import StopRequest
from seedrl import config_io, run_files
from seedrl.errors import ConfigError
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec
from tests.learner.multihost.linked import at_once, linked
from tests.patience import wait_until

CARTPOLE = EnvSpec(ArraySpec((4,), "float32"), DiscreteSpec(2))
OTHER = EnvSpec(ArraySpec((5,), "float32"), DiscreteSpec(2))


def hosts_of(peers: Peers) -> Hosts:
    return Hosts(peers, Agenda())


def test_hosts_with_the_same_folder_share_it(tmp_path: Path) -> None:
    with linked(2) as peers:
        at_once(
            [
                lambda each=each: require_shared(tmp_path, hosts_of(each), StopRequest())
                for each in peers
            ]
        )


def refusals(peers: list[Peers], folders: list[Path], seconds: float) -> list[str]:
    def one(each: Peers, folder: Path) -> str:
        try:
            require_shared(folder, hosts_of(each), StopRequest(), seconds)
        except ConfigError as error:
            return str(error)
        return ""

    pairs = zip(peers, folders, strict=True)
    return at_once([lambda each=each, folder=folder: one(each, folder) for each, folder in pairs])


@pytest.mark.parametrize("has_begun", [False, True])
def test_hosts_with_folders_of_their_own_are_refused(tmp_path: Path, has_begun: bool) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    if has_begun:
        (folders[1] / run_files.HOSTS_NOTE).write_text("the word of an earlier start")
    with linked(2) as peers:
        texts = refusals(peers, folders, 0.0)
    assert ["of host 1 is another one than that of host 0" in text for text in texts] == [True] * 2


class LateHub:
    """Knows no environment when it is first asked, and another one when it is given one."""

    def __init__(self, then: EnvSpec | None):
        self._then = then

    def wait_for_spec(self, timeout: float, given: EnvSpec | None = None) -> EnvSpec | None:
        return None if given is None else self._then or given


@pytest.mark.parametrize("then", [None, OTHER])
def test_an_environment_that_comes_while_hosts_agree_is_the_same(then: EnvSpec | None) -> None:
    class FirstHub(LateHub):
        def wait_for_spec(self, timeout: float, given: EnvSpec | None = None) -> EnvSpec | None:
            return CARTPOLE

    def spec(peers: Peers, hub: Any) -> object:
        try:
            return CommonSpec(hub.wait_for_spec, hosts_of(peers), StopRequest()).wait(0.0)
        except ConfigError as error:
            return str(error).partition(",")[0]

    with linked(2) as peers:
        hubs = [FirstHub(None), LateHub(then)]
        pairs = zip(peers, hubs, strict=True)
        found = at_once([lambda each=each, hub=hub: spec(each, hub) for each, hub in pairs])
    refused = "environment: expected the same on all hosts"
    assert found == [CARTPOLE, CARTPOLE if then is None else refused]


def waiting_spec(peers: Peers, stop: StopRequest, **more: Any) -> CommonSpec:
    return CommonSpec(LateHub(None).wait_for_spec, hosts_of(peers), stop, **more)


def test_a_signal_ends_the_wait_for_a_host_that_does_not_answer() -> None:
    stop = StopRequest()
    with linked(2) as peers:
        stop.set()
        assert waiting_spec(peers[0], stop).wait(0.0) is None
        with pytest.raises(StoppedError):
            joining.broadcast_flag("confirmed", True, hosts_of(peers[1]), stop)


def test_who_waits_for_a_host_hears_of_a_thread_that_has_died() -> None:
    def look() -> None:
        raise RuntimeError("a thread of the service died")

    with linked(2) as peers, pytest.raises(RuntimeError, match="thread of the service died"):
        waiting_spec(peers[0], StopRequest(), check_threads=look).wait(0.0)


@pytest.mark.parametrize("waits", [True, False])
def test_a_host_that_is_stopped_before_the_run_begins_ends_the_others(
    monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    losses: list[str] = []
    stop, config = StopRequest(), config_io.load("cartpole_r2d2")
    config = dataclasses.replace(config, serving=dataclasses.replace(config.serving, insecure=True))
    with linked(2, losses) as peers:
        monkeypatch.setattr(joining, "_meet", lambda *_: {})
        monkeypatch.setattr(joining, "Peers", lambda *_: peers[1])
        monkeypatch.setattr(joining.jax_processes, "join", lambda *_: None)
        threading.Thread(target=peers[0].gather, args=("jax", "a:1")).start()
        with contextlib.suppress(StoppedError), joined(peers[1].topology, config, stop) as hosts:
            stop.set("SIGTERM")
            if waits:
                joining.broadcast_flag("confirmed", True, hosts, stop)
        wait_until(lambda: losses, "that the other host hears of it")
    assert losses == ["host 1 of 2 is lost: stopped by SIGTERM"]


def test_hosts_that_begin_with_other_parameters_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Once they have met, an error of one ends the process of the other: here they are threads.
    monkeypatch.setattr(joining, "Peers", lambda *_: pytest.fail("they have met"))
    with socket.create_server(("127.0.0.1", 0)) as free:
        coordinator = f"127.0.0.1:{free.getsockname()[1]}"
    config = config_io.load("cartpole_r2d2")
    serving = dataclasses.replace(config.serving, insecure=True)
    config = dataclasses.replace(config, serving=serving)

    def refused(index: int, init_from: Path | None) -> str:
        topology = Topology(coordinator, 2, index)
        with (
            pytest.raises(ConfigError) as found,
            joined(topology, config, StopRequest(), init_from),
        ):
            pass
        return str(found.value)

    texts = at_once([lambda: refused(0, tmp_path), lambda: refused(1, None)])
    wanted = f"--init-from: expected the same on all hosts, got nothing where host 0 has {tmp_path}"
    assert [wanted in text for text in texts] == [True, True]


def test_hosts_need_a_token_or_a_network_that_is_trusted(tmp_path: Path) -> None:
    config = config_io.load("cartpole_r2d2")
    token = tmp_path / "token"
    token.write_text("one that is much too short")

    def refused(**serving: Any) -> str:
        own = dataclasses.replace(
            config, serving=dataclasses.replace(config.serving, bind="unix:/a", **serving)
        )
        with pytest.raises(ConfigError) as found, joined(Topology("a:1", 2, 0), own, StopRequest()):
            pass
        return str(found.value)

    assert refused().startswith("--coordinator: whoever reaches a:1 could take a host's place; set")
    assert refused(token_file=str(token)).startswith("expected a token of 16 to 1024 visible")
