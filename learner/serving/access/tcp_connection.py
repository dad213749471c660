"""The TCP connection that gRPC's name of a peer stands for: whose it is, and its end."""

import contextlib
import ipaddress
import os
import socket
import urllib.parse

_Endpoint = tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]


def host_of(peer: str) -> str:
    """A peer as gRPC writes it without its port, which is another one whenever it returns."""
    peer = urllib.parse.unquote(peer)
    return peer.rpartition(":")[0] if peer.startswith(("ipv4:", "ipv6:")) else peer


def neighbourhood_of(peer: str) -> str:
    """Who can be told from others: a host by its address, but of IPv6 all of its network of /64.

    A machine has such a network to itself. Whoever comes over a Unix socket is one: what gRPC says
    of them does not tell them apart.
    """
    if (endpoint := _endpoint_of(peer)) is None:
        return peer.partition(":")[0]
    address, _ = endpoint
    if address.version == 4:
        return str(address)
    return str(ipaddress.ip_network((int(address), 64), strict=False))


def cut(peer: str) -> None:
    """Shuts down the connection of `peer`, as gRPC writes it; of a Unix socket nothing is known.

    A server of gRPC has no call for that. It finds its descriptor closed by the other side, and
    ends all of the connection's streams.
    """
    wanted = _endpoint_of(peer)
    if wanted is None:
        return
    names = []
    with contextlib.suppress(OSError):  # no descriptor is left
        names = os.listdir("/dev/fd")
    for name in names:
        # One of our own: that of gRPC may be closed meanwhile, and its number be another file's.
        with contextlib.suppress(OSError), contextlib.closing(_duplicate(int(name))) as connection:
            host, port = connection.getpeername()[:2]
            if port == wanted[1] and _address(host) == wanted[0]:
                connection.shutdown(socket.SHUT_RDWR)


def _duplicate(descriptor: int) -> socket.socket:
    """Raises OSError if it is no TCP connection."""
    own = os.dup(descriptor)
    try:
        connection = socket.socket(fileno=own)
    except OSError:
        os.close(own)
        raise
    if connection.family in (socket.AF_INET, socket.AF_INET6):
        return connection
    connection.close()
    raise OSError("expected a TCP connection")


def _endpoint_of(peer: str) -> _Endpoint | None:
    kind, _, rest = urllib.parse.unquote(peer).partition(":")
    host, _, port = rest.rpartition(":")
    return (_address(host.strip("[]")), int(port)) if kind in ("ipv4", "ipv6") else None


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """That of an IPv4 client is the same, whatever kind of socket it has reached."""
    address = ipaddress.ip_address(host)
    return getattr(address, "ipv4_mapped", None) or address
