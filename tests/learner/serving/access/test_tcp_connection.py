"""Whose connection it is; which one is cut, and that no other is."""

import socket

import grpc
import pytest

from learner.serving.access.tcp_connection import cut, host_of, neighbourhood_of
from tests.learner.serving.scripted_env_server import Client, ready, served
from tests.patience import SECONDS


@pytest.mark.parametrize(
    ("listens", "connects", "written"),
    [
        ("127.0.0.1", "127.0.0.1", "ipv4:127.0.0.1:{}"),
        ("::", "127.0.0.1", "ipv4:127.0.0.1:{}"),
        ("::1", "::1", "ipv6:%5B::1%5D:{}"),
        ("::1", "::1", "ipv6:[::1]:{}"),
    ],
)
def test_the_connection_of_that_peer_is_cut_and_no_other(
    listens: str, connects: str, written: str
) -> None:
    family = socket.AF_INET6 if ":" in listens else socket.AF_INET
    with socket.create_server((listens, 0), family=family, dualstack_ipv6=listens == "::") as here:
        address = (connects, here.getsockname()[1])
        with socket.create_connection(address) as one, socket.create_connection(address) as other:
            own, _ = here.accept()
            own_other, _ = here.accept()
            with own, own_other:
                cut(written.format(one.getsockname()[1]))
                one.settimeout(SECONDS)
                assert one.recv(1) == b""
                own_other.send(b"x")
                assert other.recv(1) == b"x"


def test_of_a_unix_socket_nothing_is_cut() -> None:
    here, there = socket.socketpair()
    with here, there:
        for peer in ("unix:", "unix:/tmp/socket", ""):
            cut(peer)
        here.send(b"x")
        assert there.recv(1) == b"x"


def test_who_returns_on_another_port_has_the_same_name() -> None:
    assert host_of("ipv4:10.0.0.1:123") == host_of("ipv4:10.0.0.1:45678") == "ipv4:10.0.0.1"
    assert host_of("ipv6:%5B::1%5D:123") == host_of("ipv6:[::1]:45678") == "ipv6:[::1]"
    assert host_of("unix:") == "unix:"


def test_a_neighbourhood_is_a_host_or_its_network_of_ipv6_or_all_unix_sockets() -> None:
    for peer, neighbourhood in {
        "ipv4:10.0.0.1:123": "10.0.0.1",
        "ipv6:%5B::ffff:10.0.0.1%5D:123": "10.0.0.1",
        "ipv6:[2001:db8:1:2:3:4:5:6]:123": "2001:db8:1:2::/64",
        "ipv6:%5B2001:db8:1:2:ffff::1%5D:45678": "2001:db8:1:2::/64",
        "ipv6:[fe80::1%25eth0]:1": "fe80::/64",
        "ipv6:[2001:db8:1:3::1]:123": "2001:db8:1:3::/64",
        "unix:": "unix",
        "unix:/tmp/socket": "unix",
        "": "",
    }.items():
        assert neighbourhood_of(peer) == neighbourhood


def test_a_peer_that_returns_without_the_token_or_hello_is_refused_under_one_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names: list[str] = []
    with served("127.0.0.1:0") as service:
        monkeypatch.setattr(service.hub, "turn_away", lambda name, _: names.append(name))
        for code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNAUTHENTICATED):
            for _ in range(2):
                with Client(service.address) as client:
                    client.send(ready())
                    assert client.end()[0] is code
            monkeypatch.setattr(service._entry._token, "admits", lambda metadata: False)
    assert names == ["ipv4:127.0.0.1"] * 4
