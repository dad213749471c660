"""Dialogues over the local socket, where the env server offers one."""

import contextlib
import select
import socket
from collections.abc import Iterator
from typing import Literal

import grpc

from envs_server.server_conformance import rules
from envs_server.server_conformance.dialogues import accepted
from envs_server.server_conformance.lease import Lease, random_policy, terms
from envs_server.server_conformance.rules import BrokenError
from envs_server.server_conformance.session import Session
from seedrl.wire.local_link import Link, connect_link

_LONGEST = 2**27
_LONGEST_NAME_BYTES = 107
_ROUNDS = 20
_PIECED_ROUNDS = 3


def links(session: Session) -> None:
    """Messages over the link. It ends just before the stream, whose status counts."""
    with _linked(session) as lease:
        if lease is None:
            return
        policy = random_policy(lease.spec, session.plan.seed)
        lease.play(_ROUNDS, policy)
        lease.play(_ROUNDS, policy, together=True)
        lease.play(_PIECED_ROUNDS, policy, in_pieces=True)
    session.end(lease.stream, grpc.StatusCode.UNAVAILABLE)


@contextlib.contextmanager
def _linked(session: Session) -> Iterator[Lease | None]:
    """A lease over a link, after three strangers have tried: one with another secret, two silent.

    None if the env server offers no link.
    """
    stream, hello = session.hello()
    if not hello.link:
        session.skipped.append("the local socket: Hello offers none (link)")
        session.end(stream, grpc.StatusCode.UNAVAILABLE)
        yield None
        return
    name, _, secret = hello.link.partition("/")
    with contextlib.ExitStack() as stack:
        stranger = stack.enter_context(contextlib.closing(_connect(f"{name}/{'x' * len(secret)}")))
        # Says nothing at all.
        stack.enter_context(_connect_silently(name))
        # Says nothing after the first byte, which may be that of the secret.
        silent = f"{name}/{secret[0] if len(secret) > 1 else 'x'}"
        stack.enter_context(contextlib.closing(_connect(silent)))
        link = stack.enter_context(contextlib.closing(_connect(hello.link)))
        try:
            lease = accepted(session, stream, terms(session, hello), link)
            if _hears(stranger, session.plan.patience_seconds) != "end":
                text = "expected that a connection with another secret is closed, got it open"
                session.findings.add(rules.LINK, text, subject="stranger")
            yield lease
        except BrokenError as error:
            if error.rule == rules.REFUSED:
                raise
            text = f"over the link: {error}"
            # Who takes the first that comes may end the listener, and with it the learner's link.
            wait = 0.0 if error.rule == rules.SILENCE else session.plan.patience_seconds
            if _hears(stranger, wait) == "message":
                text = "a wrong secret was accepted: the learner's own connection came second"
            raise session.broken(error, rules.LINK, text) from error


def _hears(stranger: Link, seconds: float) -> Literal["nothing", "message", "end"]:
    """What a connection that does not know the secret gets within `seconds`."""
    if not select.select([stranger], [], [], seconds)[0]:
        return "nothing"
    return "end" if stranger.receive_at_once() is None else "message"


def _connect_silently(socket_name: str) -> socket.socket:
    """A connection without a secret. Raises BrokenError if there is no such socket."""
    for name in (socket_name, socket_name.ljust(_LONGEST_NAME_BYTES, "\0")):
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(f"\0{name}")
        except OSError:
            connection.close()
        else:
            return connection
    raise BrokenError(rules.LINK, "Hello names a link, but there is no such socket")


def _connect(name: str) -> Link:
    reached = connect_link(name, _LONGEST)
    if isinstance(reached, str):
        raise BrokenError(rules.LINK, f"Hello names a link, but {reached}")
    return reached
