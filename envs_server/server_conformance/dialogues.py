"""Dialogues about steps: what an env server does while its stream is open."""

import contextlib
import json
import time
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np

from envs_server.conformance.rules import Rule
from envs_server.server_conformance import rules
from envs_server.server_conformance.lease import (
    AcceptedError,
    Lease,
    RefusedError,
    Terms,
    random_policy,
    terms,
)
from envs_server.server_conformance.played_learner import PlayedStream
from envs_server.server_conformance.rules import BrokenError
from envs_server.server_conformance.session import Session, kind
from seedrl.specs import EnvSpec
from seedrl.types import TimeStep
from seedrl.wire.local_link import Link
from seedrl.wire.seedrl_pb2 import Environment

# Field 1000 of Assign, a number: not in this contract, maybe in a later one.
_UNKNOWN_FIELD = b"\xc0\x3e\x01"
_UNKNOWN_ENVIRONMENT = "seedrl-no-such-environment-v0"
_UNKNOWN_ARGUMENT = "seedrl_no_such_argument"
_METRIC, _NO_METRIC = "episode.r", "seedrl.nothing"
_ROUNDS = 20
# How long to look for what must not arrive; each dialogue that expects nothing waits it once.
_EARLY_SECONDS = 0.2


def open_lease(session: Session, *, seed: int = 0) -> Lease:
    """A lease with all groups, whose first steps have arrived. Raises BrokenError."""
    stream, hello = session.hello()
    return accepted(session, stream, terms(session, hello, seed=seed))


def accepted(
    session: Session, stream: PlayedStream, wanted: Terms, link: Link | None = None
) -> Lease:
    """A lease of these terms. Raises BrokenError, also for a Refusal."""
    try:
        return Lease(session, stream, wanted, link)
    except RefusedError as error:
        environment = wanted.environments[0]
        given = f" with {environment.arguments}" if environment.arguments not in ("", "{}") else ""
        text = f"expected Ready for {environment.id}{given}, got a Refusal: {error}"
        raise BrokenError(rules.REFUSED, text) from error


@contextlib.contextmanager
def leased(session: Session, *, seed: int = 0) -> Iterator[Lease]:
    """A lease that ends so that the env server returns."""
    lease = open_lease(session, seed=seed)
    yield lease
    session.end(lease.stream, grpc.StatusCode.UNAVAILABLE)


def steps(session: Session, spec: EnvSpec | None) -> None:
    """Random actions to all groups; what was built is `spec`, if that is known."""
    stream, hello = session.hello()
    if stream.has_message(within_seconds=_EARLY_SECONDS):
        message = session.receive(stream, "nothing", rules.HELLO)
        text = f"expected to wait for Assign after Hello, got {kind(message)}"
        raise BrokenError(rules.HELLO, text)
    lease = accepted(session, stream, terms(session, hello))
    if spec is None:
        name = session.plan.environment.id
        session.skipped.append(f"its spec beside gymnasium's: {name} cannot be built here")
    elif difference := spec.difference(lease.spec):
        session.findings.add(
            rules.SPEC_DIFFERS, f"{session.plan.environment.id}: {'; '.join(difference)}"
        )
    lease.play(session.plan.steps, random_policy(lease.spec, session.plan.seed))
    session.end(stream, grpc.StatusCode.UNAVAILABLE)


def groups(session: Session) -> None:
    """A group is stepped though another waits; one message may answer several."""
    with leased(session) as lease:
        policy = random_policy(lease.spec, session.plan.seed)
        if len(lease.groups) == 1:
            session.skipped.append("several groups: it offers one environment, or one group")
            lease.play(_ROUNDS, policy)
            return
        first, *others = lease.groups
        try:
            lease.play(_ROUNDS, policy, others)
        except BrokenError as error:
            text = f"while group {first} waits for actions: {error}"
            raise BrokenError(
                rules.GROUPS if error.rule == rules.SILENCE else error.rule, text
            ) from error
        try:
            lease.play(_ROUNDS, policy, together=True)
        except BrokenError as error:
            text = f"after one message with the actions of {len(lease.groups)} groups: {error}"
            raise BrokenError(
                rules.GROUPS if error.rule == rules.SILENCE else error.rule, text
            ) from error


def waiting(session: Session) -> None:
    """No actions for a while, as when a learner compiles or saves."""
    with leased(session) as lease:
        policy = random_policy(lease.spec, session.plan.seed)
        lease.play(3, policy)
        time.sleep(session.plan.idle_seconds)
        try:
            lease.expect_nothing()
            lease.play(3, policy)
        except BrokenError as error:
            text = f"after {session.plan.idle_seconds:g} seconds without actions: {error}"
            raise session.broken(error, rules.PATIENCE, text) from error


def metrics(session: Session) -> None:
    """Numbers of each episode are asked for, which it may have or not, differing by environment."""
    stream, hello = session.hello()
    names = ([_METRIC, _NO_METRIC], [_NO_METRIC])
    asked = tuple(changed(session.plan.environment, metrics=each) for each in names)
    wanted = terms(session, hello)._replace(environments=asked)
    try:
        lease = accepted(session, stream, wanted)
        lease.play(session.plan.steps, random_policy(lease.spec, session.plan.seed))
    except BrokenError as error:
        text = f"{error} (Assign listed two environments, with metrics {names[0]} and {names[1]})"
        raise session.broken(error, rules.METRICS, text) from error
    for group in lease.groups:
        numbers = np.concatenate(lease.metrics[group])
        for column, name in zip(numbers.T, lease.ready.metrics, strict=True):
            is_known = name != _NO_METRIC and name in wanted.asked(group)
            if not is_known and not np.isnan(column).all():
                why = (
                    "no environment has" if name == _NO_METRIC else "its environment was not asked"
                )
                got = column[~np.isnan(column)][0]
                text = f"group {group}: expected NaN for {name}, which {why}, got {got:g}"
                session.findings.add(rules.METRICS, text)
    session.end(stream, grpc.StatusCode.UNAVAILABLE)


def fewer(session: Session) -> None:
    """One environment alone, whatever was offered, and a field that nobody knows."""
    stream, hello = session.hello()
    offered = terms(session, hello)
    one = offered._replace(sizes=(1,), seeds=offered.seeds[:1], unknown=_UNKNOWN_FIELD)
    try:
        lease = accepted(session, stream, one)
    except BrokenError as error:
        both = "Assign had a single environment, and a field 1000 that no version knows"
        raise session.broken(error, rules.FEWER, f"{error} ({both})") from error
    lease.play(_ROUNDS, random_policy(lease.spec, session.plan.seed))
    session.end(stream, grpc.StatusCode.UNAVAILABLE)


def seeds(session: Session) -> None:
    """Equal seeds and actions give equal episodes; others, as a rule, do not."""
    plays = []
    for seed in (1, 1, 2):
        with leased(session, seed=seed) as lease:
            lease.play(3 * _ROUNDS, random_policy(lease.spec, session.plan.seed))
            plays.append(lease.rows)
    for group, (one, same) in enumerate(zip(*plays[:2], strict=True)):
        for sequence, (row, other) in enumerate(zip(one, same, strict=True)):
            if not _is_equal(row, other):
                session.findings.add(
                    rules.SEEDS,
                    f"group {group}, step {sequence}: expected the same as in the lease before, "
                    "with the same seeds and actions; got another",
                )
    if all(map(_is_equal, plays[0][0], plays[2][0])):
        rule = rules.ORACLE_SEED if session.plan.is_cartpole else rules.SEED_IGNORED
        text = f"with other seeds {3 * _ROUNDS} steps of group 0 were the same"
        session.findings.add(rule, text)


def refusal(session: Session) -> None:
    """An environment that cannot be built is refused in one line, and that is the end."""
    unknown = (Environment(id=_UNKNOWN_ENVIRONMENT),)
    stream, hello = session.hello()
    wanted = terms(session, hello)._replace(environments=unknown)
    expect_refusal(session, stream, wanted, _UNKNOWN_ENVIRONMENT, rules.REFUSAL)


def arguments(session: Session) -> None:
    """An argument that the environment does not know is no less a reason."""
    environment = session.plan.environment
    given = json.loads(environment.arguments or "{}") | {_UNKNOWN_ARGUMENT: 1}
    unknown = changed(environment, arguments=json.dumps(given))
    rule = rules.ARGUMENTS if session.plan.is_cartpole else rules.ARGUMENTS_TAKEN
    stream, hello = session.hello()
    wanted = terms(session, hello)._replace(environments=(unknown,))
    name = f"{environment.id} with {unknown.arguments}"
    expect_refusal(session, stream, wanted, name, rule)


def expect_refusal(
    session: Session, stream: PlayedStream, wanted: Terms, name: str, rule: Rule
) -> None:
    """Assigns what must be refused, in one line and for ever; `rule` is broken by a Ready."""
    try:
        Lease(session, stream, wanted._replace(is_refused=True))
    except RefusedError as error:
        take_refusal(session, stream, str(error))
    except AcceptedError:
        session.findings.add(rule, f"expected a Refusal of {name}, got Ready", subject=name)
        session.end(stream, grpc.StatusCode.FAILED_PRECONDITION)
        session.restart()
    except BrokenError as error:
        raise session.broken(error, rule, f"expected a Refusal of {name}: {error}") from error


def take_refusal(session: Session, stream: PlayedStream, reason: str) -> None:
    """Ends `stream` as a learner does after a Refusal, which ends the env server with an error."""
    if not reason or "\n" in reason:
        session.findings.add(rules.REFUSAL, f"expected a reason of one line, got {reason!r}")
    session.end(stream, grpc.StatusCode.FAILED_PRECONDITION, reason)
    if session.expect_gone(rules.REFUSAL, "a Refusal") == 0:
        session.findings.add(rules.ERROR_CODE, "after a Refusal the exit code was 0")


def changed(environment: Environment, **fields: Any) -> Environment:
    """A copy of `environment` with other fields."""
    copy = Environment()
    copy.CopyFrom(environment)
    copy.MergeFrom(Environment(**fields))
    return copy


def _is_equal(one: TimeStep, other: TimeStep) -> bool:
    return all(
        np.array_equal(mine, theirs)
        for mine, theirs in zip(_leaves(one), _leaves(other), strict=True)
    )


def _leaves(tree: object) -> list[np.ndarray]:
    if isinstance(tree, np.ndarray):
        return [tree]
    items = tree.values() if isinstance(tree, dict) else tree
    return [leaf for item in items for leaf in _leaves(item)]  # type: ignore[attr-defined]
