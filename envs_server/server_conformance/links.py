"""Dialogues over the local socket, where the env server offers one."""

import contextlib
import select
from collections.abc import Iterator

import grpc

from envs_server.server_conformance import rules
from envs_server.server_conformance.lease import Lease, random_policy, terms
from envs_server.server_conformance.rules import BrokenError
from envs_server.server_conformance.session import Session
from seedrl.wire.local_link import Link, connect_link

_LONGEST = 2**27
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
    """A lease over a link, after a stranger has tried; None if the env server offers none."""
    stream, hello = session.hello()
    if not hello.link:
        session.end(stream, grpc.StatusCode.UNAVAILABLE)
        yield None
        return
    name, _, secret = hello.link.partition("/")
    with contextlib.ExitStack() as stack:
        stranger = stack.enter_context(contextlib.closing(_connect(f"{name}/{'x' * len(secret)}")))
        link = stack.enter_context(contextlib.closing(_connect(hello.link)))
        try:
            lease = Lease(session, stream, terms(session, hello), link)
            _expect_closed(stranger, session)
            yield lease
        except BrokenError as error:
            raise session.broken(error, rules.LINK, f"over the link: {error}") from error


def _expect_closed(stranger: Link, session: Session) -> None:
    is_over = select.select([stranger], [], [], session.plan.patience_seconds)[0]
    if not is_over or stranger.receive_at_once() is not None:
        text = "expected that a connection with another secret is closed, got it open"
        session.findings.add(rules.LINK, text, subject="stranger")


def _connect(name: str) -> Link:
    reached = connect_link(name, _LONGEST)
    if isinstance(reached, str):
        raise BrokenError(rules.LINK, f"Hello names a link, but {reached}")
    return reached
