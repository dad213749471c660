"""Checks an env server, in whatever language, against proto/seedrl/wire/seedrl.proto.

Plays the learner over real gRPC: `DIALOGUES` has a row for each dialogue, with the message that is
sent and the answer that must come back. A wrong answer is one line.
"""

import contextlib
import functools
import math
import queue
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import grpc
import numpy as np

from envs_server.check.learner import Process
from envs_server.check.server_options import Options
from envs_server.check.trial import BrokenError, Lease, RefusedError, Trial
from seedrl.specs import DiscreteSpec
from seedrl.wire import version
from seedrl.wire.framing import ActionsPayload, encode_from_learner
from seedrl.wire.payload import pack_actions
from seedrl.wire.seedrl_pb2 import Assign, Finish, FromLearner

# Faults that are no fault of the dialogue in which they show.
_THEIR_OWN = frozenset({"connect", "hello", "failure", "refused", "end"})
_ROUNDS = 20
# Field 1000 of Assign, a number, and of FromLearner, one byte: maybe of a later version.
_UNKNOWN_FIELD, _UNKNOWN_MESSAGE = b"\xc0\x3e\x01", b"\xc2\x3e\x01x"


class Dialogue(NamedTuple):
    """A row of the table.

    Attributes:
      name: of the report.
      run: holds it; raises BrokenError if it cannot go on.
      rule: blamed for faults that are not its own; "" if every fault is.
    """

    name: str
    run: Callable[[Trial], None]
    rule: str = ""


def _steps(trial: Trial) -> None:
    lease = trial.open()
    lease.play(trial.plan.steps)
    trial.end(lease.stream, grpc.StatusCode.UNAVAILABLE)


def _groups(trial: Trial) -> None:
    lease = trial.open()
    if len(lease.groups) == 1:
        trial.skipped.append("several groups: it offers one environment, or one group")
    else:
        lease.play(_ROUNDS, lease.groups[1:])  # while the first group waits for actions
        lease.play(_ROUNDS, together=True)
    trial.end(lease.stream, grpc.StatusCode.UNAVAILABLE)


def _fewer(trial: Trial) -> None:
    def change(assign: Assign) -> None:
        del assign.groups[1:], assign.groups[0].slots[1:], assign.groups[0].seeds[1:]
        assign.MergeFromString(_UNKNOWN_FIELD)

    lease = trial.open(change=change)
    lease.play(_ROUNDS)
    trial.end(lease.stream, grpc.StatusCode.UNAVAILABLE)


def _seeds(trial: Trial) -> None:
    plays = []
    for seed in (1, 1, 2):
        lease = trial.open(seed=seed)
        lease.play(3 * _ROUNDS)
        trial.end(lease.stream, grpc.StatusCode.UNAVAILABLE)
        plays.append([_flat(row) for rows in lease.rows for row in rows])
    one, same, other = plays
    if one != same:
        at = next(i for i, pair in enumerate(zip(one, same, strict=True)) if pair[0] != pair[1])
        text = f"expected equal episodes from equal seeds and actions, got another at step {at}"
        trial.findings.add("seeds", text)
    elif one == other:
        trial.findings.add("seed-ignored", "with other seeds the episodes were the same")


def _flat(tree: object) -> bytes:
    if isinstance(tree, np.ndarray):
        return tree.tobytes()
    items = tree.values() if isinstance(tree, dict) else tree
    return b"".join(_flat(item) for item in items)  # type: ignore[attr-defined]


def _returns(trial: Trial, *, code: grpc.StatusCode) -> None:
    lease = trial.open()
    lease.play(2)
    # Once with actions on their way, as it happens.
    lease.acted[0].append(lease.random(0))
    lease.stream.send(encode_from_learner(ActionsPayload(lease.payload(0, lease.acted[0][-1]))))
    trial.end(lease.stream, code)
    trial.end(trial.open().stream, grpc.StatusCode.UNAVAILABLE)


def _stays_away(trial: Trial, *, code: grpc.StatusCode) -> None:
    stream, _ = trial.hello()
    trial.end(stream, code)
    trial.expect_end(code.name, is_good=False)


def _finish(trial: Trial) -> None:
    lease = trial.open()
    lease.play(2)
    lease.stream.send(encode_from_learner(FromLearner(finish=Finish(reason="the check is over"))))
    trial.end(lease.stream, grpc.StatusCode.OK)
    trial.expect_end("Finish", is_good=True)


def _sigterm(trial: Trial) -> None:
    trial.open().play(2)
    trial.subject.ask_to_end()
    trial.expect_end("SIGTERM", is_good=True, rule="sigterm")


def _refuses(trial: Trial, *, fields: Mapping[str, object], name: str) -> None:
    stream, hello = trial.hello()
    assign = trial.assign(hello)
    _set(assign, fields)
    try:
        Lease(trial, stream, assign)
    except RefusedError as error:
        reason = str(error)
        if not reason or "\n" in reason:
            trial.findings.add("refusal", f"expected a reason of one line, got {reason!r}")
        trial.end(stream, grpc.StatusCode.FAILED_PRECONDITION, reason)
        trial.expect_end("a Refusal", is_good=False, rule="refusal")
        return
    raise BrokenError("refusal", f"expected a Refusal of {name}, got Ready")


def _breach(trial: Trial, *, breach: "Callable[[Lease], bytes | None]", name: str) -> None:
    """The env server cancels its stream; then it ends with an error, or returns."""
    lease = trial.open()
    lease.play(2)
    message = breach(lease)
    if message is None:
        trial.end(lease.stream, grpc.StatusCode.UNAVAILABLE)
        return
    lease.stream.send(message)
    for _ in range(2):  # a part of the message may be right: then one step comes before the end
        with contextlib.suppress(queue.Empty):
            if lease.stream.receive(trial.plan.patience_seconds) is None:
                break
    else:
        raise BrokenError("breach", f"after {name}: expected that it cancels its stream")
    lease.acted[0].append(lease.random(0))  # a report may count the right part
    trial.end(lease.stream, grpc.StatusCode.UNKNOWN)  # in case that it has half-closed
    if trial.await_stream() == 0:
        trial.findings.add("breach", f"after {name}: expected an exit code other than 0, got 0")


def _raw(payload: bytes) -> bytes:
    return encode_from_learner(ActionsPayload(payload))


def _ruled_out(lease: Lease, action: float) -> bytes | None:
    """An answer with an action that the spec rules out: -1 or 1 beyond those of a Discrete, NaN."""
    if isinstance(lease.spec.action, DiscreteSpec) == math.isnan(action):
        return None
    actions = lease.random(0)
    if isinstance(lease.spec.action, DiscreteSpec) and action > 0:
        action += lease.spec.action.num_actions - 1
    actions[0] = action
    return _raw(lease.payload(0, actions))


def _set(assign: Assign, fields: Mapping[str, object]) -> None:
    """Sets fields of Assign, of which `groups.slots` is the first group's."""
    for path, value in fields.items():
        target: Any = assign
        *parents, last = path.split(".")
        for name in parents:
            target = getattr(target, name)[0]
        if isinstance(value, Sequence) and not isinstance(value, str):
            del getattr(target, last)[:]
            getattr(target, last).extend(value)
        else:
            setattr(target, last, value)


_RETURN = ("OK", "UNAVAILABLE", "DEADLINE_EXCEEDED", "ABORTED", "INTERNAL", "CANCELLED", "UNKNOWN")
_NEVER = ("INVALID_ARGUMENT", "FAILED_PRECONDITION", "UNAUTHENTICATED", "PERMISSION_DENIED")
# What an Assign has that must be refused.
_REFUSED: dict[str, dict[str, object]] = {
    "an unknown environment": {"environments.id": "seedrl-no-such-environment-v0"},
    "an unknown argument": {"environments.arguments": '{"seedrl_no_such_argument": 1}'},
    "no group": {"groups": []},
    "a group without slots": {"groups.slots": [], "groups.seeds": []},
    "more environments than offered": {"groups.slots": range(999), "groups.seeds": range(999)},
    "no seed for each slot": {"groups.seeds": []},
    "a seed of 2^31": {"groups.slots": [0], "groups.seeds": [2**31]},
    "a slot that occurs twice": {"groups.slots": [7, 7], "groups.seeds": [1, 2]},
    "an environment that it does not list": {"groups.environment": 1},
    "max_message_bytes below 64 KiB": {"max_message_bytes": version.LEAST_MESSAGE_BYTES - 1},
}
# What a learner must not send; None where the environment has no such thing.
_BREACHES: dict[str, Callable[[Lease], bytes | None]] = {
    "an answer to the step before": lambda lease: _raw(lease.payload(0, offset=-1)),
    "an answer to a step not sent yet": lambda lease: _raw(lease.payload(0, offset=1)),
    "two answers to one step": lambda lease: _raw(2 * lease.payload(0)),
    "actions of an unknown group": lambda lease: _raw(
        pack_actions(len(lease.groups), len(lease.rows[0]) - 1, lease.random(0))
    ),
    "actions of more environments": lambda lease: _raw(
        lease.payload(0, lease.random(0, lease.sizes[0] + 1))
    ),
    "actions that are too short": lambda lease: _raw(lease.payload(0)[:-8]),
    "action -1": lambda lease: _ruled_out(lease, -1),
    "an action beyond the last": lambda lease: _ruled_out(lease, 1),
    "action NaN": lambda lease: _ruled_out(lease, math.nan),
    "a second Assign": lambda lease: lease.message,
    "a message of an unknown field": lambda lease: _UNKNOWN_MESSAGE,
}

# Later ones assume what earlier ones have shown.
DIALOGUES: tuple[Dialogue, ...] = (
    Dialogue("steps", _steps),
    Dialogue("several groups", _groups, "groups"),
    Dialogue("one environment, and a field that no version knows", _fewer, "fewer"),
    Dialogue("seeds", _seeds),
    *(
        Dialogue(f"return after {name}", functools.partial(_returns, code=grpc.StatusCode[name]))
        for name in _RETURN
    ),
    Dialogue("Finish", _finish),
    Dialogue("SIGTERM", _sigterm),
    *(
        Dialogue(f"refuse {name}", functools.partial(_refuses, fields=fields, name=name), "refusal")
        for name, fields in _REFUSED.items()
    ),
    *(
        Dialogue(name, functools.partial(_breach, breach=breach, name=name), "breach")
        for name, breach in _BREACHES.items()
    ),
    *(
        Dialogue(f"end after {name}", functools.partial(_stays_away, code=grpc.StatusCode[name]))
        for name in _NEVER
    ),
)


def check(
    subject: Process,
    plan: Options,
    dialogues: Sequence[Dialogue] = DIALOGUES,
    *,
    log: Callable[[str], None] = lambda line: None,
) -> Trial:
    """Holds the dialogues, and returns what they gave. Raises CommandNotFoundError.

    `log` is given a line as each begins. After one that could not be finished the env server is
    started again, so that each is judged by itself; the rest is not tried with an env server that
    never says Hello, never sends a step, or refuses its environment.
    """
    trial = Trial(subject, plan)
    try:
        for number, dialogue in enumerate(dialogues):
            trial.start()  # a command that cannot be started ends it all
            log(f"dialogue {number + 1} of {len(dialogues)}: {dialogue.name}")
            try:
                dialogue.run(trial)
            except BrokenError as error:
                own = error.rule in _THEIR_OWN or trial.findings.has(error.rule)
                rule = error.rule if own else dialogue.rule or error.rule
                trial.findings.add(rule, f"{dialogue.name}: {error}", subject=str(error)[:40])
                trial.restart()
                if error.rule == "refused" or not trial.num_steps:
                    left = len(dialogues) - number - 1
                    trial.skipped.append(f"{left} more dialogues: this one must succeed")
                    break
    finally:
        trial.close()
    return trial
