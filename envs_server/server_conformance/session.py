"""The env server under check from one stream to the next: started, awaited, its reports read."""

import queue
import time
from dataclasses import dataclass
from typing import NamedTuple

import grpc

from envs_server.conformance.findings import Findings
from envs_server.conformance.rules import Rule
from envs_server.server_conformance import rules
from envs_server.server_conformance.played_learner import (
    PlayedLearner,
    PlayedStream,
    Status,
    longest_silence,
)
from envs_server.server_conformance.rules import BrokenError
from envs_server.server_conformance.subject import Subject
from seedrl.wire import version
from seedrl.wire.framing import StepPayload, WireError, decode_from_env_server
from seedrl.wire.seedrl_pb2 import Environment, FromEnvServer, Hello

_LOOK_SECONDS = 0.01
_LAST_WORDS_SECONDS = 0.5
_LONGEST_HOST_BYTES = 253

# The environment of which every number is known.
CARTPOLE = "CartPole-v1"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How an env server is to be checked.

    Attributes:
      environment: what it has to build.
      num_envs: environments that it is asked to offer.
      steps: rounds of random actions in the long dialogues.
      seed: of environments and actions.
      patience_seconds: the longest wait for anything that it has to do.
      quiet_seconds: how long it has to stay away after it was told never to return.
      idle_seconds: how long it is left without actions.
    """

    environment: Environment
    num_envs: int = 4
    steps: int = 200
    seed: int = 0
    patience_seconds: float = 30.0
    quiet_seconds: float = 6.0
    idle_seconds: float = 3.0

    @property
    def is_cartpole(self) -> bool:
        """Whether the environment is the one of which every number is known."""
        return self.environment.id == CARTPOLE


class Counts(NamedTuple):
    """What was seen of a group: its size, steps received, and actions given."""

    num_envs: int
    received: int
    given: int


class Session:
    """Owns the env server and what is known of it; used by one thread.

    Attributes:
      plan, learner, findings: given.
      num_streams, num_steps: how many there were.
      skipped: what could not be tried, and why.
    """

    def __init__(self, subject: Subject, plan: Plan, findings: Findings) -> None:
        self.plan = plan
        self.learner = PlayedLearner()
        self.findings = findings
        self.num_streams = 0
        self.num_steps = 0
        self.skipped: list[str] = []
        self._subject = subject
        self._is_started = False
        self._expected_after = "its start"
        # The last lease that was assigned to this process.
        self._lease: tuple[int, list[Counts]] | None = None

    def start(self) -> None:
        """Starts the env server, unless it runs. Raises CommandNotFoundError."""
        if not self._is_started:
            self._is_started = True
            self._lease = None
            self._subject.start(self.learner.address)

    def hello(self) -> tuple[PlayedStream, Hello]:
        """The next stream with its first message, from an env server that is started if need be.

        Raises BrokenError if there is none, or no Hello in it.
        """
        self.start()
        stream = self._next_stream()
        self.num_streams += 1
        message = self.receive(stream, "Hello", rules.HELLO)
        if not isinstance(message, FromEnvServer) or message.WhichOneof("content") != "hello":
            raise BrokenError(
                rules.HELLO, f"expected Hello as the first message, got {kind(message)}"
            )
        self._check(message.hello)
        return stream, message.hello

    def receive(
        self, stream: PlayedStream, expected: str, rule: Rule
    ) -> FromEnvServer | StepPayload:
        """The next message of `stream`. Raises BrokenError, of `rule` if the stream ends."""
        patience = self.plan.patience_seconds
        try:
            received = stream.receive(patience)
            # What is sent over gRPC may be over long before what is sent over the link.
            while stream.is_linked and not received.is_linked and received.data is None:
                received = stream.receive(patience)
        except queue.Empty:
            text = f"expected {expected} within {patience:g} seconds, got nothing{self._words()}"
            raise BrokenError(rules.SILENCE, text) from None
        if stream.is_linked and not received.is_linked:
            raise BrokenError(rules.LINK, f"expected {expected} over the link, got it over gRPC")
        if received.data is None:
            way = "link" if received.is_linked else "stream"
            raise BrokenError(
                rule, f"expected {expected}, the env server ended the {way}{self._words()}"
            )
        try:
            message = decode_from_env_server(received.data)
        except WireError as error:
            raise BrokenError(rules.MESSAGE, str(error)) from error
        if kind(message) == "Failure":
            assert isinstance(message, FromEnvServer)
            text = f"expected {expected}, got Failure: {message.failure.reason}"
            raise BrokenError(rules.FAILURE, text)
        return message

    def assigned(self, lease: int, counts: list[Counts]) -> None:
        """Notes what was seen of the groups of a lease so far, for the report of the next Hello."""
        self._lease = (lease, counts)

    def end(self, stream: PlayedStream, code: grpc.StatusCode, details: str = "") -> None:
        """Ends `stream`; where the env server should return, the next `hello` awaits that."""
        stream.end(Status(code, details or f"seedrl check-env-server tries {code.name}"))
        self._expected_after = code.name

    def cut(self, closed_seconds: float, silent_seconds: float, enough_seconds: float) -> float:
        """Makes the learner vanish without a status, and return.

        Its port is closed for `closed_seconds`, then open for `silent_seconds`, in which every
        connection is dropped. Returns the longest wait for one, in seconds; a wait of
        `enough_seconds` ends it at once.
        """
        self.learner.stop()
        time.sleep(closed_seconds)
        longest = longest_silence(self.learner.address, silent_seconds, enough_seconds)
        self.learner.start()
        self._expected_after = "the learner had gone and come back"
        return longest

    def broken(self, error: BrokenError, rule: Rule, text: str) -> BrokenError:
        """`error` as a breach of `rule`, unless its own was broken before, elsewhere."""
        return error if self.findings.has(error.rule) else BrokenError(rule, text)

    def expect_gone(self, rule: Rule, after: str) -> int | None:
        """Awaits that the env server stays away; its exit code, if it ends. Adds findings."""
        deadline = time.monotonic() + self.plan.quiet_seconds
        while time.monotonic() < deadline:
            if (code := self._subject.exit_code()) is not None:
                self._is_started = False
                return code
            try:
                self.learner.streams.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                continue
            self.findings.add(rule, f"expected no stream after {after}, got another", subject=after)
            break
        self.restart()
        return None

    def ask_to_end(self) -> None:
        """Sends SIGTERM to the env server."""
        self._subject.ask_to_end()

    def expect_end_or_return(self, rule: Rule, after: str) -> int | None:
        """Awaits that the env server ends, or opens another stream, which the next `hello` takes.

        Returns its exit code, if it ends. Adds a finding if it does neither.
        """
        deadline = time.monotonic() + self.plan.patience_seconds
        self._expected_after = after
        while time.monotonic() < deadline:
            if not self.learner.streams.empty():
                return None
            if (code := self._subject.exit_code()) is not None:
                self._is_started = False
                return code
            time.sleep(_LOOK_SECONDS)
        text = (
            f"after {after}: expected its end or another stream within "
            f"{self.plan.patience_seconds:g} seconds, got neither"
        )
        self.findings.add(rule, text, subject=after)
        self.restart()
        return None

    def restart(self) -> None:
        """Ends the env server; the next `hello` starts it again."""
        self._subject.stop()
        self._is_started = False
        self._expected_after = "its start"
        while not self.learner.streams.empty():
            self.learner.streams.get().end(Status(grpc.StatusCode.UNAVAILABLE, "restarting"))

    def close(self) -> None:
        """Ends the env server and the learner."""
        self._subject.stop()
        self.learner.stop()

    def _next_stream(self) -> PlayedStream:
        deadline = time.monotonic() + self.plan.patience_seconds
        rule = rules.CONNECT if self._expected_after == "its start" else rules.RETURN
        expected = f"expected a stream after {self._expected_after}"
        while time.monotonic() < deadline:
            try:
                return self.learner.streams.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                code = self._subject.exit_code()
            if code is not None and self.learner.streams.empty():
                self._is_started = False
                raise BrokenError(
                    rule, f"{expected}, the env server ended with code {code}{self._words()}"
                )
        raise BrokenError(
            rule,
            f"{expected} within {self.plan.patience_seconds:g} seconds, got none{self._words()}",
        )

    def _words(self) -> str:
        # A process that ends a stream because it fails says why soon after.
        deadline = time.monotonic() + _LAST_WORDS_SECONDS
        while self._subject.exit_code() is None and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
        words = self._subject.last_words()
        return f"; its last words: {words}" if words else ""

    def _check(self, hello: Hello) -> None:
        add = self.findings.add
        if hello.major != version.MAJOR:
            add(rules.VERSION, f"expected major {version.MAJOR}, got {hello.major}")
        if hello.num_envs < 1:
            raise BrokenError(rules.HELLO, "expected num_envs of at least 1, got 0")
        if (size := len(hello.host.encode())) > _LONGEST_HOST_BYTES:
            add(rules.HELLO, f"expected a host of at most {_LONGEST_HOST_BYTES} bytes, got {size}")
        if self._lease is None:
            return
        lease, counts = self._lease
        if not hello.sent:
            add(rules.SENT_MISSING, "Hello reports nothing of the lease before")
        elif fault := report_fault(hello, lease, counts):
            add(rules.SENT, f"after {self._expected_after}: {fault}")


def report_fault(hello: Hello, lease: int, counts: list[Counts]) -> str:
    """What is wrong with Hello's report of `lease`; "" if it can be true."""
    others = {sent.lease for sent in hello.sent} - {lease}
    if others:
        return f"expected a report of lease {lease}, got {min(others)}"
    groups = sorted(sent.group for sent in hello.sent)
    if groups != list(range(len(counts))):
        return f"expected each of groups 0 to {len(counts) - 1} once, got {groups}"
    for sent in hello.sent:
        seen = counts[sent.group]
        place = f"group {sent.group}: expected"
        if sent.num_envs != seen.num_envs:
            return f"{place} num_envs {seen.num_envs}, got {sent.num_envs}"
        if sent.steps - sent.answered not in (0, 1):
            return f"{place} steps of answered or answered + 1, got {sent.steps}, {sent.answered}"
        if sent.steps < seen.received:
            return f"{place} steps >= {seen.received}, which had arrived, got {sent.steps}"
        if sent.answered > seen.given:
            return f"{place} answered <= {seen.given}, all that were given, got {sent.answered}"
    return ""


def kind(message: FromEnvServer | StepPayload) -> str:
    """What a message is, in one word."""
    if isinstance(message, StepPayload):
        return "step"
    return (message.WhichOneof("content") or "nothing").capitalize()
