"""An env server on trial: its streams, leases and steps, looked at message by message."""

import itertools
import queue
import secrets
import time
from collections.abc import Callable, Collection

import grpc
import numpy as np

from envs_server.check.findings import Findings
from envs_server.check.learner import MAX_MESSAGE_BYTES, PlayedLearner, Process, Stream
from envs_server.check.server_options import Options
from seedrl.specs import DiscreteSpec
from seedrl.types import StepType, TimeStep
from seedrl.wire import version
from seedrl.wire.framing import (
    ActionsPayload,
    StepPayload,
    WireError,
    decode_from_env_server,
    encode_from_learner,
)
from seedrl.wire.payload import StepLayout, pack_actions, sequence_of, split
from seedrl.wire.seedrl_pb2 import Assign, Environment, FromEnvServer, FromLearner, Group, Hello
from seedrl.wire.spec import spec_of

# Rules, each with the place in seedrl.proto to read on.
ADVICE = {
    "connect": "see TRANSPORT",
    "hello": "see Hello, and VERSION",
    "message": "see MESSAGES",
    "failure": "see Failure",
    "silence": "see the first paragraphs",
    "refused": "see Environment, or give another --environment",
    "ready": "see Ready",
    "steps": "see STEPS AND ACTIONS",
    "groups": "see the first paragraphs: no group waits for another",
    "fewer": "see SLOTS, and unknown fields under VERSION",
    "seeds": "see Group.seeds",
    "seed-ignored": "see Group.seeds; it may be meant",
    "end": "see HOW A STREAM ENDS",
    "sigterm": "see HOW A STREAM ENDS",
    "refusal": "see Refusal, Environment.arguments and BREACHES",
    "breach": "see BREACHES",
}
NOTES = frozenset({"seed-ignored", "sigterm"})
# How long it has to stay away when it must not return.
QUIET_SECONDS = 6.0
_POLL_SECONDS = 0.01
_LAST_WORDS_SECONDS = 0.5


class BrokenError(Exception):
    """A rule was broken, and the dialogue cannot continue."""

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(text)
        self.rule = rule


class RefusedError(Exception):
    """The env server sent a Refusal; the text is its reason."""


class Trial:
    """Owns the played learner, and what is known of the env server; used by one thread.

    Attributes:
      findings: of all dialogues.
      num_streams, num_steps: how many there were.
      skipped: dialogues that could not be tried, and why.
      learner, subject: the other side of its streams, and its process.
    """

    def __init__(self, subject: Process, plan: Options) -> None:
        self.plan, self.learner, self.findings = plan, PlayedLearner(), Findings(ADVICE, NOTES)
        self.environment = Environment(
            id=plan.environment, arguments=plan.arguments, vectorization="auto"
        )
        self.num_streams = self.num_steps = 0
        self.skipped: list[str] = []
        self.subject, self._is_started, self._after = subject, False, "its start"

    def start(self) -> None:
        """Starts the env server, unless it runs. Raises CommandNotFoundError."""
        if not self._is_started:
            self._is_started, self._after = True, "its start"
            self.subject.start(self.learner.address)

    def restart(self) -> None:
        """Ends the env server; the next `hello` starts it again."""
        self.subject.stop()
        self._is_started = False
        while not self.learner.streams.empty():
            self.learner.streams.get().end(grpc.StatusCode.UNAVAILABLE)

    def hello(self) -> tuple[Stream, Hello]:
        """The next stream and its first message. Raises BrokenError."""
        self.start()
        if (code := self.await_stream()) is not None or self.learner.streams.empty():
            got = "none" if code is None else f"the env server ended with code {code}"
            rule = "connect" if self._after == "its start" else "end"
            raise BrokenError(
                rule, f"expected a stream after {self._after}, got {got}{self._words()}"
            )
        stream = self.learner.streams.get()
        self.num_streams += 1
        message = self.receive(stream, "Hello")
        if not isinstance(message, FromEnvServer) or not message.HasField("hello"):
            raise BrokenError("hello", f"expected Hello as the first message, got {kind(message)}")
        hello = message.hello
        if hello.major != version.MAJOR or hello.num_envs < 1:
            raise BrokenError(
                "hello",
                f"expected major {version.MAJOR} and num_envs of at least 1, got {hello.major} and "
                f"{hello.num_envs}",
            )
        return stream, hello

    def receive(self, stream: Stream, expected: str) -> FromEnvServer | StepPayload:
        """The next message of `stream`. Raises BrokenError."""
        try:
            data = stream.receive(self.plan.patience_seconds)
        except queue.Empty:
            waited = f"{self.plan.patience_seconds:g} seconds, got nothing{self._words()}"
            raise BrokenError("silence", f"expected {expected} within {waited}") from None
        if data is None:
            text = f"expected {expected}, the env server ended the stream{self._words()}"
            raise BrokenError("ready", text)
        try:
            message = decode_from_env_server(data)
        except WireError as error:
            raise BrokenError("message", str(error)) from error
        if isinstance(message, FromEnvServer) and message.HasField("failure"):
            text = f"expected {expected}, got Failure: {message.failure.reason}"
            raise BrokenError("failure", text)
        return message

    def end(self, stream: Stream, code: grpc.StatusCode, details: str = "") -> None:
        """Ends `stream`; where the env server should return, the next `hello` awaits that."""
        stream.end(code, details)
        self._after = code.name

    def await_stream(self, seconds: float | None = None) -> int | None:
        """Waits for another stream, or the env server's end, whose exit code it returns."""
        deadline = time.monotonic() + (seconds or self.plan.patience_seconds)
        while self.learner.streams.empty() and time.monotonic() < deadline:
            if (code := self.subject.exit_code()) is not None and self.learner.streams.empty():
                self._is_started = False
                return code
            time.sleep(_POLL_SECONDS)
        return None

    def expect_end(self, after: str, *, is_good: bool, rule: str = "end") -> None:
        """Awaits that the env server stays away, and ends with 0 (`is_good`) or another code."""
        code = self.await_stream(QUIET_SECONDS)
        if not self.learner.streams.empty():
            self.findings.add(rule, f"expected no stream after {after}, got another", subject=after)
        elif is_good and code != 0:
            got = "none" if code is None else str(code)
            self.findings.add(rule, f"expected exit code 0 after {after}, got {got}", subject=after)
        elif not is_good and code == 0:
            text = f"expected an exit code other than 0 after {after}, got 0"
            self.findings.add(rule, text, subject=after)
        if code is None:
            self.restart()

    def close(self) -> None:
        """Ends the env server and the learner."""
        self.subject.stop()
        self.learner.stop()

    def assign(self, hello: Hello, *, seed: int = 0) -> Assign:
        """Up to three groups within what is offered: two of training, and one of evaluation."""
        num_envs = min(hello.num_envs, self.plan.num_envs)
        num_groups = min(num_envs, min(max(hello.num_groups, 1), 2) + 1)
        first = self.plan.seed + 1000 * seed
        starts = [0, *range(num_envs - num_groups + 1, num_envs + 1)]
        return Assign(
            lease=secrets.randbits(63) | 1 << 63 | 1,  # more digits than a double has
            minor=version.MINOR,
            environments=[self.environment],
            groups=[
                Group(
                    slots=range(start, end),
                    seeds=range(first + start, first + end),
                    evaluation=start > 0 and end == num_envs,
                )
                for start, end in itertools.pairwise(starts)
            ],
            unlinked_reason="seedrl check-env-server uses no local socket",
            max_message_bytes=MAX_MESSAGE_BYTES,
            step_deadline_seconds=self.plan.patience_seconds,
        )

    def open(self, *, seed: int = 0, change: Callable[[Assign], None] | None = None) -> "Lease":
        """A lease whose first steps have arrived. Raises BrokenError, also for a Refusal."""
        stream, hello = self.hello()
        assign = self.assign(hello, seed=seed)
        if change:
            change(assign)
        try:
            return Lease(self, stream, assign)
        except RefusedError as error:
            given = assign.environments[0].arguments or "no arguments"
            text = f"expected Ready for {assign.environments[0].id} with {given}, got a Refusal"
            raise BrokenError("refused", f"{text}: {error}") from error

    def _words(self) -> str:
        # A process that ends a stream because it fails prints the reason soon after.
        deadline = time.monotonic() + _LAST_WORDS_SECONDS
        while self.subject.exit_code() is None and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        words = self.subject.last_words()
        return f"; its last words: {words}" if words else ""


class Lease:
    """Groups of one stream from Assign on; used by one thread.

    Attributes:
      stream, spec: of it, and of its environments.
      rows, acted: the steps of each group so far, and the actions between them.
    """

    def __init__(self, trial: Trial, stream: Stream, assign: Assign) -> None:
        """Sends `assign`, and reads Ready and the first steps. Raises BrokenError, RefusedError."""
        self.stream = stream
        self.sizes = [len(group.slots) for group in assign.groups]
        self.rows: list[list[TimeStep]] = [[] for _ in self.sizes]
        self.acted: list[list[np.ndarray]] = [[] for _ in self.sizes]
        self.message = FromLearner(assign=assign).SerializeToString()
        self._trial = trial
        stream.send(self.message)
        message = trial.receive(stream, "Ready or Refusal")
        if isinstance(message, FromEnvServer) and message.HasField("refusal"):
            raise RefusedError(message.refusal.reason)
        if not isinstance(message, FromEnvServer) or not message.HasField("ready"):
            raise BrokenError("ready", f"expected Ready or Refusal, got {kind(message)}")
        if message.ready.metrics:  # none were asked for
            raise BrokenError("ready", f"expected no metrics, got {[*message.ready.metrics]}")
        try:
            self.spec = spec_of(message.ready.spec)
        except ValueError as error:
            raise BrokenError("ready", str(error)) from error
        self._random = np.random.default_rng(trial.plan.seed)
        self._layouts = [StepLayout(self.spec, size) for size in self.sizes]
        self.await_steps()

    @property
    def groups(self) -> range:
        """All groups, by number."""
        return range(len(self.sizes))

    def random(self, group: int, size: int | None = None) -> np.ndarray:
        """Random actions for a group, or for another number of environments."""
        size = size or self.sizes[group]
        if isinstance(self.spec.action, DiscreteSpec):
            return self._random.integers(self.spec.action.num_actions, size=size, dtype=np.int32)
        return self._random.uniform(-1, 1, (size, *self.spec.action.shape)).astype(np.float32)

    def payload(self, group: int, actions: np.ndarray | None = None, offset: int = 0) -> bytes:
        """Random or other actions that answer the step in flight, or one `offset` from it."""
        actions = self.random(group) if actions is None else actions
        return pack_actions(group, len(self.rows[group]) - 1 + offset, actions)

    def play(
        self,
        num_rounds: int,
        groups: Collection[int] | None = None,
        *,
        together: bool = False,
    ) -> None:
        """Answers each group N times, each by a message or all by one. Raises BrokenError."""
        chosen = self.groups if groups is None else groups
        for _ in range(num_rounds):
            payloads = []
            for group in chosen:
                self.acted[group].append(self.random(group))
                payloads.append(self.payload(group, self.acted[group][-1]))
            for payload in [b"".join(payloads)] if together else payloads:
                self.stream.send(encode_from_learner(ActionsPayload(payload)))
            self.await_steps(chosen)

    def await_steps(self, groups: Collection[int] | None = None) -> None:
        """Reads until a step of each of `groups` (all) waits for actions. Raises BrokenError."""
        wanted = self.groups if groups is None else groups
        while missing := [n for n in wanted if len(self.rows[n]) == len(self.acted[n])]:
            expected = f"a step of group {missing[0]}"
            message = self._trial.receive(self.stream, expected)
            if not isinstance(message, StepPayload):
                raise BrokenError("steps", f"expected {expected}, got {kind(message)}")
            try:
                for group, data in split(message, self._layouts):
                    self._take(group, data)
            except WireError as error:
                raise BrokenError("steps", str(error)) from error

    def _take(self, group: int, data: bytes | bytearray | memoryview) -> None:
        rows = self.rows[group]
        step_type, reward, discount, observation = self._layouts[group].unpack(data)
        if len(rows) > len(self.acted[group]) or sequence_of(data) != len(rows):
            expected = f"step {len(rows)} after actions for the one before"
            text = f"group {group}: expected {expected}, got step {sequence_of(data)}"
            raise BrokenError("steps", text)
        is_due = rows[-1].step_type == StepType.LAST if rows else np.ones(len(step_type), bool)
        wrong = np.flatnonzero((step_type == StepType.FIRST) != is_due)
        if len(wrong):
            wanted = "FIRST" if is_due[wrong[0]] else "MID or LAST"
            got = StepType(step_type[wrong[0]]).name
            text = f"group {group}, row {wrong[0]}, step {len(rows)}: expected {wanted}, got {got}"
            raise BrokenError("steps", text)
        # Copies: the message is a buffer that may be used again.
        leaves = [leaf.copy() for leaf in self.spec.flatten(observation)]
        fields = (step_type.copy(), reward.copy(), discount.copy())
        rows.append(TimeStep(*fields, self.spec.unflatten(leaves)))
        self._trial.num_steps += len(step_type)


def kind(message: FromEnvServer | StepPayload) -> str:
    """The kind of a message, in one word."""
    if isinstance(message, StepPayload):
        return "step"
    return (message.WhichOneof("content") or "nothing").capitalize()
