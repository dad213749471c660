"""A lease that the env server was given: its handshake, and steps that are checked by row."""

import secrets
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

import numpy as np

from envs_server.server_conformance import rules
from envs_server.server_conformance.played_learner import MAX_MESSAGE_BYTES, PlayedStream
from envs_server.server_conformance.rules import BrokenError
from envs_server.server_conformance.session import Counts, Session, kind
from seedrl.spec_json import decode_spec
from seedrl.specs import DiscreteSpec, EnvSpec
from seedrl.types import StepType, TimeStep
from seedrl.wire import version
from seedrl.wire.framing import ActionsPayload, StepPayload, WireError, encode_from_learner
from seedrl.wire.local_link import Link
from seedrl.wire.payload import StepLayout, pack_actions, sequence_of, split
from seedrl.wire.seedrl_pb2 import (
    Assign,
    Environment,
    FromEnvServer,
    FromLearner,
    Group,
    Hello,
    Ready,
)

# (group, its step) -> actions [E, ...].
Policy = Callable[[int, TimeStep], np.ndarray]


class Terms(NamedTuple):
    """What a lease shall be.

    Attributes:
      environments: what to build, the first in the first group, the second in the second.
      sizes: environments of each group; the last of several groups is one of evaluation.
      seeds: of all environments, in order.
      unknown: bytes of a field of Assign that nobody knows.
      change: of Assign, before it is sent.
      is_refused: whether the only right answer is a Refusal.
    """

    environments: tuple[Environment, ...]
    sizes: tuple[int, ...]
    seeds: tuple[int, ...]
    unknown: bytes = b""
    change: Callable[[Assign], None] = lambda _: None
    is_refused: bool = False

    def asked(self, group: int) -> list[str]:
        """Metrics that are asked for in a group."""
        return list(self.environments[group % len(self.environments)].metrics)


def terms(session: Session, hello: Hello, *, seed: int = 0) -> Terms:
    """Up to three groups, within what is offered: two of training, and one of evaluation."""
    num_envs = min(hello.num_envs, session.plan.num_envs)
    num_groups = min(num_envs, min(max(hello.num_groups, 1), 2) + 1)
    sizes = (num_envs - num_groups + 1, *[1] * (num_groups - 1))
    first = session.plan.seed + 1000 * seed
    return Terms((session.plan.environment,), sizes, tuple(range(first, first + num_envs)))


class Lease:
    """Groups of one stream from Assign on; used by one thread.

    Attributes:
      assign_message: what was sent, encoded.
      spec: what the env server has built.
      rows: the steps of each group, in order.
      acted: the actions of each group, in order.
      metrics: the numbers of episodes `[L, M]` of each group, in order.
    """

    def __init__(
        self, session: Session, stream: PlayedStream, terms: Terms, link: Link | None = None
    ) -> None:
        """Sends Assign, and reads Ready and the first steps.

        Raises BrokenError; RefusedError; AcceptedError for what should have been refused.
        """
        self.stream = stream
        # Too many digits for a double, with which some languages count.
        self.key = secrets.randbits(63) | 1 << 63 | 1
        self.rows: list[list[TimeStep]] = [[] for _ in terms.sizes]
        self.acted: list[list[np.ndarray]] = [[] for _ in terms.sizes]
        self.metrics: list[list[np.ndarray]] = [[] for _ in terms.sizes]
        self._session = session
        self._sizes = terms.sizes
        self._link = link
        self._unanswered: set[int] = set()  # groups whose step has arrived
        self._awaited = set(range(len(terms.sizes)))
        self._note()
        self.assign_message = _encode(self._assign(terms), terms.unknown)
        stream.send_over_grpc(self.assign_message)
        if link is not None:
            stream.use(link)
        asked = {name for each in terms.environments for name in each.metrics}
        self.ready = self._receive_ready(sorted(asked))
        if terms.is_refused:
            raise AcceptedError
        self.spec = self._read_spec(self.ready)
        self._layouts = [
            StepLayout(self.spec, size, len(self.ready.metrics)) for size in terms.sizes
        ]
        self.await_steps()

    @property
    def groups(self) -> range:
        """All groups, by number."""
        return range(len(self._sizes))

    def await_steps(self, groups: Collection[int] | None = None) -> None:
        """Reads until a step of each of `groups` (all) waits for actions. Raises BrokenError."""
        wanted = set(self.groups if groups is None else groups)
        while missing := wanted - self._unanswered:
            expected = f"a step of group {min(missing)}"
            message = self._session.receive(self.stream, expected, rules.SILENCE)
            if not isinstance(message, StepPayload):
                raise BrokenError(rules.READY, f"expected {expected}, got {kind(message)}")
            self._take(message)

    def act(
        self,
        actions: Mapping[int, np.ndarray],
        *,
        together: bool = False,
        in_pieces: bool = False,
    ) -> None:
        """Answers steps of groups: each by a message, all by one, or over a link by pieces."""
        payloads = self.answers(actions)
        if together:
            payloads = [b"".join(payloads)]
        messages = [encode_from_learner(ActionsPayload(payload)) for payload in payloads]
        if in_pieces:
            self.stream.send_in_pieces(messages)
        else:
            for message in messages:
                self.stream.send(message)

    def answers(self, actions: Mapping[int, np.ndarray]) -> list[bytes]:
        """The payloads that answer steps of groups, which count as sent."""
        payloads = [self._payload(group, rows) for group, rows in actions.items()]
        self._note()
        return payloads

    def play(
        self,
        num_rounds: int,
        policy: Policy,
        groups: Collection[int] | None = None,
        *,
        together: bool = False,
        in_pieces: bool = False,
    ) -> None:
        """Answers each group N times, as `act` does, and awaits its steps. Raises BrokenError."""
        chosen = sorted(self.groups if groups is None else groups)
        for _ in range(num_rounds):
            actions = {group: policy(group, self.rows[group][-1]) for group in chosen}
            self.act(actions, together=together, in_pieces=in_pieces)
            self.await_steps(chosen)

    def expect_nothing(self) -> None:
        """Looks for what should not have been sent. Raises BrokenError."""
        while self.stream.has_message():
            message = self._session.receive(self.stream, "nothing", rules.PATIENCE)
            if not isinstance(message, StepPayload):
                raise BrokenError(rules.READY, f"expected nothing, got {kind(message)}")
            self._take(message)

    def _assign(self, terms: Terms) -> Assign:
        starts = np.cumsum([0, *terms.sizes]).tolist()
        groups = [
            Group(
                slots=range(start, start + size),
                seeds=terms.seeds[start : start + size],
                evaluation=number > 0 and number == len(terms.sizes) - 1,
                environment=number % len(terms.environments),
            )
            for number, (start, size) in enumerate(zip(starts, terms.sizes, strict=False))
        ]
        assign = Assign(
            lease=self.key,
            minor=version.MINOR,
            environments=terms.environments,
            groups=groups,
            linked=self._link is not None,
            unlinked_reason=""
            if self._link is not None
            else "seedrl check-env-server tries without",
            max_message_bytes=MAX_MESSAGE_BYTES,
            step_deadline_seconds=self._session.plan.patience_seconds,
        )
        terms.change(assign)
        return assign

    def _receive_ready(self, wanted: list[str]) -> Ready:
        message = self._session.receive(self.stream, "Ready or Refusal", rules.READY)
        if not isinstance(message, FromEnvServer) or kind(message) not in ("Ready", "Refusal"):
            text = f"expected Ready or Refusal after Assign, got {kind(message)}"
            raise BrokenError(rules.READY, text)
        if kind(message) == "Refusal":
            raise RefusedError(message.refusal.reason)
        names = list(message.ready.metrics)
        if len(set(names)) != len(names) or not set(names) <= set(wanted):
            text = f"expected metrics among {wanted}, each once, got {names}"
            raise BrokenError(rules.METRICS, text)
        return message.ready

    def _read_spec(self, ready: Ready) -> EnvSpec:
        try:
            return decode_spec(ready.spec)
        except ValueError as error:
            raise BrokenError(rules.SPEC, str(error)) from error

    def _take(self, message: StepPayload) -> None:
        try:
            for group, data in split(message, self._layouts):
                if group in self._unanswered:
                    text = f"group {group}: expected no step before its actions, got a second one"
                    raise BrokenError(rules.ONE_IN_FLIGHT, text)
                timestep = self._layouts[group].unpack(data)
                self.metrics[group].append(self._layouts[group].metrics(data).copy())
                self._check_order(group, sequence_of(data), timestep)
                # What is kept is no view of the message.
                self.rows[group].append(_copy(timestep, self.spec))
                self._unanswered.add(group)
                self._session.num_steps += len(timestep.step_type)
                self._note()
        except WireError as error:
            raise BrokenError(rules.PAYLOAD, str(error)) from error

    def _check_order(self, group: int, sequence: int, timestep: TimeStep) -> None:
        if sequence != (expected := len(self.rows[group])):
            text = f"group {group}: expected sequence {expected}, got {sequence}"
            raise BrokenError(rules.SEQUENCE, text)
        before = self.rows[group][-1].step_type if self.rows[group] else None
        for row, is_type in enumerate(timestep.step_type):
            begins = before is None or before[row] == StepType.LAST
            if begins != (is_type == StepType.FIRST):
                wanted = "FIRST" if begins else "MID or LAST"
                after = "at the start" if before is None else f"after {StepType(before[row]).name}"
                raise BrokenError(
                    rules.EPISODE_ORDER,
                    f"group {group}, row {row}, step {sequence}: expected {wanted} {after}, "
                    f"got {StepType(is_type).name}",
                )

    def _payload(self, group: int, actions: np.ndarray) -> bytes:
        self._unanswered.remove(group)
        self.acted[group].append(actions)
        return pack_actions(group, len(self.rows[group]) - 1, actions)

    def _note(self) -> None:
        self._session.assigned(
            self.key,
            [
                Counts(size, len(rows), len(acted))
                for size, rows, acted in zip(self._sizes, self.rows, self.acted, strict=True)
            ],
        )


class AcceptedError(Exception):
    """The env server sent Ready where only a Refusal is right."""


class RefusedError(Exception):
    """The env server sent a Refusal; the text is its reason."""


def random_policy(spec: EnvSpec, seed: int) -> Policy:
    """Uniform over the actions."""
    random = np.random.default_rng(seed)

    def act(group: int, timestep: TimeStep) -> np.ndarray:
        size = len(timestep.step_type)
        if isinstance(spec.action, DiscreteSpec):
            return random.integers(spec.action.num_actions, size=size, dtype=np.int32)
        return random.uniform(-1, 1, (size, *spec.action.shape)).astype(np.float32)

    return act


def _copy(timestep: TimeStep, spec: EnvSpec) -> TimeStep:
    observation = spec.unflatten([leaf.copy() for leaf in spec.flatten(timestep.observation)])
    fields = (timestep.step_type.copy(), timestep.reward.copy(), timestep.discount.copy())
    return TimeStep(*fields, observation)


def _encode(assign: Assign, unknown: bytes) -> bytes:
    """FromLearner with `assign`, into which the bytes of a field that nobody knows are put."""
    known = Assign.FromString(assign.SerializeToString() + unknown)
    return FromLearner(assign=known).SerializeToString()
