"""Which connection is cut, and that no other is."""

import socket

import pytest

from learner.serving.access.tcp_connection import cut
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
