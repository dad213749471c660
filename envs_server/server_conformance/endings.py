"""Dialogues about ends: when an env server returns, how soon, and when it must not or is to end."""

import time

import grpc

from envs_server.server_conformance import rules
from envs_server.server_conformance.dialogues import leased, open_lease
from envs_server.server_conformance.lease import random_policy
from envs_server.server_conformance.session import Session
from seedrl.wire.framing import encode_from_learner
from seedrl.wire.seedrl_pb2 import Finish, FromLearner

_RETURN = (
    grpc.StatusCode.OK,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.UNKNOWN,
)
_NEVER = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNIMPLEMENTED,
)
_REFUSALS = 8
# The sum of pauses below 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5 and 5 s, 8 s on average, is shorter once
# in 10^5 times. Without any pause it is 0.2 s in Node.js.
_SHORTEST_SUM_SECONDS = 0.9
_CLOSED_SECONDS = 1.0
# gRPC by itself tries at about 0, 1, 2.6 and 5.2 seconds, each pause up to a fifth longer or
# shorter: within these there is one of more than 2 seconds. Who follows the contract pauses less
# than 1 second.
_SILENT_SECONDS = 6.0
_LONGEST_SILENCE_SECONDS = 2.0


def returns(session: Session) -> None:
    """After each end that is not for ever a new stream follows, with a true report."""
    for code in _RETURN:
        lease = open_lease(session)
        lease.play(2, random_policy(lease.spec, session.plan.seed))
        # Once with actions on their way, as it happens.
        lease.act({0: random_policy(lease.spec, 1)(0, lease.rows[0][-1])})
        session.end(lease.stream, code)
    with leased(session):
        pass


def returns_after_restart(session: Session) -> None:
    """A learner that vanishes without a word is looked for at the documented pace, and found."""
    lease = open_lease(session)
    lease.play(2, random_policy(lease.spec, session.plan.seed))
    silence = session.cut(_CLOSED_SECONDS, _SILENT_SECONDS, _LONGEST_SILENCE_SECONDS)
    if silence >= _LONGEST_SILENCE_SECONDS:
        session.findings.add(
            rules.RETURN_LATE,
            "expected attempts to connect less than a second after each other while no learner "
            f"serves, got none for {silence:.1f} seconds",
        )
    with leased(session):
        pass


def back_off(session: Session) -> None:
    """An env server that finds all slots leased does not ask again at once, every time."""
    with leased(session):
        pass
    starts = []
    for _ in range(_REFUSALS + 1):
        stream, _ = session.hello()
        starts.append(time.monotonic())
        session.end(stream, grpc.StatusCode.RESOURCE_EXHAUSTED, "all slots are leased")
    seconds = starts[-1] - starts[0]
    if seconds < _SHORTEST_SUM_SECONDS:
        session.findings.add(
            rules.BACK_OFF,
            f"expected random pauses below bounds of 0.1, 0.2, 0.4... seconds, got {_REFUSALS} new "
            f"streams within {seconds:.3f} seconds",
        )
    with leased(session):
        pass


def stays_away(session: Session) -> None:
    """After each status that is for ever no stream follows."""
    for code in _NEVER:
        stream, _ = session.hello()
        session.end(stream, code)
        if session.expect_gone(rules.NEVER_RETURN, code.name) == 0:
            session.findings.add(rules.ERROR_CODE, f"after {code.name} the exit code was 0")


def finish(session: Session) -> None:
    """After Finish, in the middle of a step, no stream follows, and all is well."""
    lease = open_lease(session)
    lease.play(2, random_policy(lease.spec, session.plan.seed))
    lease.act({0: random_policy(lease.spec, 1)(0, lease.rows[0][-1])})
    reason = FromLearner(finish=Finish(reason="seedrl check-env-server is done"))
    lease.stream.send_over_grpc(encode_from_learner(reason))
    session.end(lease.stream, grpc.StatusCode.OK)
    if code := session.expect_gone(rules.FINISH, "Finish"):
        session.findings.add(rules.FINISH, f"expected exit code 0 after Finish, got {code}")


def asked_to_end(session: Session) -> None:
    """A process that is stopped from outside ends soon, and all is well."""
    with leased(session) as lease:
        lease.play(2, random_policy(lease.spec, session.plan.seed))
        session.ask_to_end()
        code = session.expect_gone(rules.ASKED_TO_END, "SIGTERM")
    if code is None:
        text = f"expected its end within {session.plan.quiet_seconds:g} seconds of SIGTERM"
        session.findings.add(rules.ASKED_TO_END, text, subject="SIGTERM")
    elif code:
        why = ", the signal's own" if code < 0 else ""
        text = f"expected exit code 0 after SIGTERM, got {code}{why}"
        session.findings.add(rules.ASKED_TO_END, text)
