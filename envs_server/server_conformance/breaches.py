"""Dialogues with a learner that breaks the contract: an env server must notice, and not play on."""

import itertools
import queue
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import grpc
import numpy as np

from envs_server.server_conformance import rules
from envs_server.server_conformance.dialogues import expect_refusal, open_lease
from envs_server.server_conformance.lease import Lease, random_policy, terms
from envs_server.server_conformance.played_learner import PlayedStream
from envs_server.server_conformance.session import Session, kind
from seedrl.specs import DiscreteSpec
from seedrl.types import StepType
from seedrl.wire.framing import (
    ActionsPayload,
    WireError,
    decode_from_env_server,
    encode_from_learner,
)
from seedrl.wire.payload import HEADER
from seedrl.wire.seedrl_pb2 import Assign
from seedrl.wire.version import LEAST_MESSAGE_BYTES

# Field 1000 of FromLearner, one byte long.
_UNKNOWN_MESSAGE = b"\xc2\x3e\x01x"
_ALIGNMENT = 8


class Breach(NamedTuple):
    """What a learner must not send.

    Attributes:
      name: what it is, in words.
      message: an encoded FromLearner.
      may_step: whether a step may follow: a part of the message is right.
    """

    name: str
    message: bytes
    may_step: bool = False


def contradictions(session: Session) -> None:
    """An Assign that contradicts itself, or Hello, is refused."""
    for name, change in _CONTRADICTIONS.items():
        stream, hello = session.hello()
        wanted = terms(session, hello)._replace(change=partial(change, most=hello.num_envs))
        expect_refusal(session, stream, wanted, f"an Assign with {name}", rules.CONTRADICTION)


def breaches(session: Session) -> None:
    """After each breach the env server ends its stream; then it ends with an error, or returns."""
    stream, _ = session.hello()
    early = HEADER.pack(0, 1, 0) + bytes(_ALIGNMENT)
    _send(session, stream, Breach("actions before Assign", _actions(early)))
    for number in itertools.count():
        lease = open_lease(session)
        policy = random_policy(lease.spec, session.plan.seed)
        lease.play(2, policy)
        possible = list(_breaches(lease))
        if possible[number].may_step:
            lease.answers({0: policy(0, lease.rows[0][-1])})  # a report may count it
        _send(session, lease.stream, possible[number])
        if number + 1 == len(possible):
            break
    _wrong_answer_to_last(session)


def _wrong_answer_to_last(session: Session) -> None:
    """The environment ignores that action; the env server may not."""
    lease = open_lease(session)
    policy = random_policy(lease.spec, session.plan.seed)
    for _ in range(session.plan.steps):
        if StepType.LAST in lease.rows[0][-1].step_type:
            break
        lease.play(1, policy, [0])
    else:
        number = session.plan.steps
        session.skipped.append(f"a wrong answer to a LAST row: no episode ended in {number} steps")
        session.end(lease.stream, grpc.StatusCode.UNAVAILABLE)
        return
    timestep, wrong = lease.rows[0][-1], _ruled_out(lease)[0]
    actions = policy(0, timestep)
    actions[np.argmax(timestep.step_type == StepType.LAST)] = wrong
    payload = _payload(0, len(lease.rows[0]) - 1, actions)
    _send(session, lease.stream, Breach(f"action {wrong:g} for a LAST row", _actions(payload)))


def _send(session: Session, stream: PlayedStream, breach: Breach) -> None:
    stream.send_over_grpc(breach.message)
    expected = f"after {breach.name}: expected that the env server cancels its stream, got"
    got = _next(session, stream, may_step=breach.may_step)
    if got:
        session.findings.add(rules.BREACH, f"{expected} {got}", subject=breach.name)
        session.end(stream, grpc.StatusCode.UNAVAILABLE)
        session.restart()
        return
    session.end(stream, grpc.StatusCode.UNKNOWN)  # in case that it has half-closed
    if session.expect_end_or_return(rules.BREACH, breach.name) == 0:
        text = f"after {breach.name}: expected an exit code other than 0, got 0"
        session.findings.add(rules.BREACH, text, subject="exit code")


def _next(session: Session, stream: PlayedStream, *, may_step: bool) -> str:
    """What arrives instead of the stream's end; "" if that does."""
    patience = session.plan.patience_seconds
    while True:
        try:
            data = stream.receive(patience).data
        except queue.Empty:
            return f"nothing for {patience:g} seconds"
        if data is None:
            return ""
        try:
            got = kind(decode_from_env_server(data))
        except WireError as error:
            return str(error)
        if not may_step or got != "step":
            return got
        may_step = False


def _breaches(lease: Lease) -> Iterator[Breach]:
    """Those that the spec and the sizes of the groups allow."""
    right = random_policy(lease.spec, 0)(0, lease.rows[0][-1])
    sequence = len(lease.rows[0]) - 1
    payload = _payload(0, sequence, right)
    before, after = _payload(0, sequence - 1, right), _payload(0, sequence + 1, right)
    yield Breach("an answer to the step before the one in flight", _actions(before))
    yield Breach("an answer to a step that was not sent yet", _actions(after))
    yield Breach("an answer and, in the same message, the same again", _actions(payload * 2), True)
    unknown = len(lease.groups)
    yield Breach(f"actions of group {unknown}", _actions(_payload(unknown, sequence, right)))
    more = np.concatenate([right, right[:1]])
    text = f"actions with E {len(more)} for a group of {len(right)}"
    yield Breach(text, _actions(_payload(0, sequence, more)))
    yield Breach("actions that are 8 bytes too short", _actions(payload[:-_ALIGNMENT]))
    for wrong in _ruled_out(lease):
        actions = right.copy()
        actions[0] = wrong
        yield Breach(f"action {wrong:g} in row 0", _actions(_payload(0, sequence, actions)))
    for group in lease.groups:
        actions = random_policy(lease.spec, 0)(group, lease.rows[group][-1])
        padded = _payload(group, len(lease.rows[group]) - 1, actions, padding=b"\1")
        if padded.endswith(b"\1"):
            yield Breach("padding of actions that is not zero", _actions(padded))
            break
    yield Breach("a second Assign", lease.assign_message)
    yield Breach("a message of an unknown field alone", _UNKNOWN_MESSAGE)


def _ruled_out(lease: Lease) -> tuple[float, ...]:
    if isinstance(lease.spec.action, DiscreteSpec):
        return -1, lease.spec.action.num_actions
    return 1.5, np.nan


def _payload(group: int, sequence: int, actions: np.ndarray, *, padding: bytes = b"\0") -> bytes:
    """Like `pack_actions`, but as it is told."""
    filling = padding * (-actions.nbytes % _ALIGNMENT)
    return HEADER.pack(group, len(actions), sequence) + actions.tobytes() + filling


def _actions(payload: bytes) -> bytes:
    return encode_from_learner(ActionsPayload(payload))


def _no_groups(assign: Assign, most: int) -> None:
    del assign.groups[:]


def _no_slots(assign: Assign, most: int) -> None:
    del assign.groups[0].slots[:]
    del assign.groups[0].seeds[:]


def _too_many(assign: Assign, most: int) -> None:
    # More than all of the groups may have together.
    first = max(slot for group in assign.groups for slot in group.slots) + 1
    assign.groups[0].slots.extend(range(first, first + most))
    assign.groups[0].seeds.extend(range(first, first + most))


def _seed_missing(assign: Assign, most: int) -> None:
    del assign.groups[0].seeds[0]


def _large_seed(assign: Assign, most: int) -> None:
    assign.groups[0].seeds[0] = 2**31


def _slot_twice(assign: Assign, most: int) -> None:
    last = assign.groups[-1]
    # Of one environment alone there is no other slot to name: then the group has two.
    if len(assign.groups) == 1 and len(last.slots) == 1:
        last.slots.append(last.slots[0])
        last.seeds.append(last.seeds[0] + 1)
    else:
        last.slots[-1] = assign.groups[0].slots[0]


def _no_environment(assign: Assign, most: int) -> None:
    assign.groups[0].environment = len(assign.environments)


def _short_messages(assign: Assign, most: int) -> None:
    assign.max_message_bytes = LEAST_MESSAGE_BYTES - 1


_CONTRADICTIONS: dict[str, Callable[..., None]] = {
    "no group": _no_groups,
    "a group without slots": _no_slots,
    "more environments than offered": _too_many,
    "fewer seeds than slots": _seed_missing,
    "a seed of 2^31": _large_seed,
    "a slot that occurs twice": _slot_twice,
    "an environment that it does not list": _no_environment,
    "max_message_bytes below 64 KiB": _short_messages,
}
