"""Where a learner serves: `host:port`, or `unix:/path` for this machine alone."""

_SOCKET_PATH_BYTES = 107  # sun_path of Linux, without its final zero


LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


def is_local(address: str) -> bool:
    """Whether only processes of this machine reach the address, or are reached by it."""
    return address.startswith("unix:") or address.rpartition(":")[0] in LOOPBACK


def address_fault(address: str, *, lowest_port: int = 0) -> str | None:
    """What is wrong with the form of an address, in one line; None if nothing is."""
    if address.startswith("unix:"):
        path = address.removeprefix("unix:")
        if not path or path.endswith("/"):
            return f"expected unix:/path, got {address!r}"
        if (size := len(path.encode())) > _SOCKET_PATH_BYTES:
            return (
                f"expected a socket path of at most {_SOCKET_PATH_BYTES} bytes, got {size}: "
                f"{address!r}"
            )
        return None
    host, separator, port = address.rpartition(":")
    is_host = separator and host and (":" not in host or (host[0] == "[" and host[-1] == "]"))
    if is_host and port.isascii() and port.isdigit() and lowest_port <= int(port) <= 65535:
        return None
    return (
        f"expected host:port with a port of {lowest_port} to 65535 (an IPv6 host in brackets) or "
        f"unix:/path, got {address!r}"
    )
