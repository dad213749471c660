"""What both sides agree on before a message is read: version, limits, addresses, printed text.

Imports nothing: command lines and configurations need it long before gRPC is loaded.
"""

# Differs between two sides that cannot talk to each other: payload layout, meaning of a message.
MAJOR = 3
# Grows with additions that the other side may ignore.
MINOR = 5

# The first minor whose env servers take an answer that also asks the next question.
NEXT_MINOR = 4
# The first minor whose env servers reset the environments of a group when they are told to.
RESET_MINOR = 5

# The least that a learner may set as the longest message: every message of the handshake fits.
LEAST_MESSAGE_BYTES = 2**16
# The most: gRPC keeps twice as much, and counts it in 32 bits.
MOST_MESSAGE_BYTES = 2**30 - 1

# Numbers that the last step of an episode may carry, and how long their names may be.
MOST_METRICS = 64
LONGEST_METRIC_BYTES = 128

# Groups that an env server may ask for. A learner may add one for each inference device, and one
# for evaluation; the steps of 1,023 are counted.
MOST_GROUPS = 1000

# Characters of a peer's text that are printed. A learner's texts end with advice.
LONGEST_FROM_ENV_SERVER = 200
LONGEST_FROM_LEARNER = 500

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_SOCKET_PATH_BYTES = 107  # sun_path of Linux, without its final zero


def is_local(address: str) -> bool:
    """True if only processes of this machine reach the address."""
    return address.startswith("unix:") or address.rpartition(":")[0] in _LOOPBACK


def address_fault(address: str, *, lowest_port: int = 0) -> str | None:
    """What is expected in place of an address, `host:port` or `unix:/path`; None if it is right."""
    if address.startswith("unix:"):
        path = address.removeprefix("unix:")
        if path and not path.endswith("/") and len(path.encode()) <= _SOCKET_PATH_BYTES:
            return None
        return f"unix:/path of at most {_SOCKET_PATH_BYTES} bytes"
    host, separator, port = address.rpartition(":")
    is_host = separator and host and (":" not in host or (host[0] == "[" and host[-1] == "]"))
    if is_host and port.isascii() and port.isdigit() and lowest_port <= int(port) <= 65535:
        return None
    return (
        f"host:port with a port of {lowest_port} to 65535 (an IPv6 host in brackets) or unix:/path"
    )


def printable(text: str, longest: int = LONGEST_FROM_ENV_SERVER) -> str:
    """A peer's `text` as one line of at most `longest` characters.

    Raw, it could move the cursor, forge lines of a log, or fill the disk.
    """
    shown = text[: longest + 1]
    shown = " ".join("".join(c if c.isprintable() else " " for c in shown).split())
    return shown if len(text) <= longest else f"{shown[: longest - 1]}…"
