"""Checks an env server, in whatever language, against proto/seedrl/wire/seedrl.proto.

`python -m envs_server.check.server --command "node server.js"` plays the learner over real gRPC:
`DIALOGUES` is a table of what it does and of what must come back. A `Lease` is the learner's side
of one stream, a `Process` the env server; a `Trial` has both, and what was found.
"""

import contextlib
import os
import queue
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import grpc
import numpy as np
from grpc import StatusCode

from envs_server.check.environment import legal, random_actions
from envs_server.check.findings import Findings
from seedrl.errors import ConfigError
from seedrl.exit_codes import ExitCode
from seedrl.programs.command_line import read
from seedrl.programs.flags import Mark
from seedrl.programs.outcome import exit_code
from seedrl.specs import TokensSpec
from seedrl.timing import POLL_SECONDS
from seedrl.types import NEXT, StepType, TimeStep
from seedrl.wire import contract
from seedrl.wire.framing import StepPayload, WireError
from seedrl.wire.learner_end import learner_handler, server_options
from seedrl.wire.learner_payload import StepReader, pack_actions, pack_reset, sequence_of
from seedrl.wire.payload import Buffer, split
from seedrl.wire.seedrl_pb2 import Assign, Finish, FromLearner, Hello
from seedrl.wire.spec import spec_of

PROG = "seedrl check-env-server"
_REMEDY = "see proto/seedrl/wire/seedrl.proto"
# A rule is a heading of seedrl.proto, where it can be read.
_ENDS, _SEEDS, _BREACHES = "HOW A STREAM ENDS", "Group.seeds", "BREACHES"
# A breach of it is a note: it may be intended.
NOTES = ("seed ignored",)
# How long it has to stay away when it must not return: longer than any pause of the contract.
QUIET_SECONDS = 6.0
# What may be expected after a stream.
_RETURN, _GOOD_END, _BAD_END = "another stream", "exit code 0", "an exit code other than 0"
_MAX_MESSAGE_BYTES = 64 * 2**20
# Each open stream holds a thread; old ones end soon after the process that opened them.
_STREAMS = 16
_STEPS = "STEPS AND ACTIONS"
_NUM_DRAWN = 64  # random actions that are used again and again


@dataclass(frozen=True, kw_only=True)
class Options:
    """Check an env server, in any language, against proto/seedrl/wire/seedrl.proto.

    Starts the env server several times and acts as the learner: handshakes, steps, several groups,
    refusals, and ends of all kinds. Each broken rule is one line: expected, got, where to read on.

    Example: seedrl check-env-server --command "node server.js" --environment Catch

    Exit codes: 0 no errors, maybe notes; 2 wrong arguments, or the command cannot be started; 3 the
    env server breaks a rule.

    Attributes:
      command: command that starts the env server; no shell reads it. {learner} and {num_envs} stand
        for the learner's address and the number of environments to offer. Without {learner},
        `--learner ADDRESS --num-envs N` is added at the end.
      environment: environment to build: a gymnasium id, or any name that the env server knows.
      arguments: keyword arguments of the environment, as a JSON object.
      num_envs: environments that the env server is to offer; at least 4 to test three groups.
      steps: rounds of random actions in the first dialogue.
      patience_seconds: longest wait for an answer, building included.
    """

    command: str
    environment: str = "CartPole-v1"
    arguments: Annotated[str, Mark("JSON")] = "{}"
    num_envs: int = 4  # three groups, and a first one of two: rows that are mixed up show
    steps: int = 200
    patience_seconds: float = 30.0

    def __post_init__(self) -> None:
        if self.num_envs < 1 or self.steps < 1 or not self.patience_seconds > 0:
            raise ValueError("expected --num-envs, --steps and --patience-seconds above 0")


class BrokenError(Exception):
    """A rule was broken, and the dialogue cannot continue."""

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(text)
        self.rule = rule


class Lease:
    """The learner's side of a stream. Used by the checker's thread; reading raises BrokenError.

    Attributes:
      outbox: of what gRPC's thread sends, until None.
      steps: the payloads of each group's steps so far.
    """

    def __init__(
        self, received: Iterator[Any], context: grpc.ServicerContext, plan: Options
    ) -> None:
        self._received, self._context, self._plan = received, context, plan
        self.outbox = queue.SimpleQueue[Any]()
        # Wakes gRPC's thread when the env server leaves. It may have left already.
        if not context.add_callback(lambda: self.outbox.put(None)):
            self.outbox.put(None)

    def begin(
        self,
        *,
        num_envs: int | None = None,
        seed: int = 0,
        environment: Mapping[str, Any] | None = None,
    ) -> None:
        """Answers Hello, and reads Ready and the first steps of all groups.

        They are two to train and one to evaluate, as far as the env server offers them.
        """
        hello: Hello = self.receive("Hello")
        if hello.major != contract.MAJOR or hello.num_envs < 1:
            expected = f"expected major {contract.MAJOR} and num_envs of at least 1"
            raise BrokenError("Hello", f"{expected}, got {hello.major} and {hello.num_envs}")
        num_envs = num_envs or min(hello.num_envs, self._plan.num_envs)
        # The first group has the rest: groups of different sizes must not be mixed up.
        rest = max(1, num_envs - min(max(hello.num_groups, 1), 2))
        slots = [range(rest), *(range(slot, slot + 1) for slot in range(rest, num_envs))]
        groups: list[dict[str, Any]] = [
            {"slots": each, "seeds": [1000 * seed + slot for slot in each]} for each in slots
        ]
        groups[-1]["evaluation"] = len(groups) > 1
        asked = {"id": self._plan.environment, "arguments": self._plan.arguments}
        assign = Assign(
            lease=2**63 + 1,  # more digits than a double has
            minor=contract.MINOR,
            unlinked_reason="seedrl check-env-server uses no local socket",
            step_deadline_seconds=self._plan.patience_seconds,
            max_message_bytes=_MAX_MESSAGE_BYTES,
            environment=asked | dict(environment or {}),
            groups=groups,
        )
        self.outbox.put(FromLearner(assign=assign))
        try:
            self._spec = spec_of(self.receive("Ready").spec)
        except ValueError as error:
            raise BrokenError("Ready", str(error)) from error
        self._is_asking, self._minor = False, hello.minor
        sizes = [len(each) for each in slots]
        self.steps: list[list[bytes]] = [[] for _ in sizes]
        self._layouts = [StepReader(self._spec, size) for size in sizes]
        self._actions = [
            random_actions(self._spec.action, _NUM_DRAWN, size, seed=0) for size in sizes
        ]
        # Of each row, whether it has to be FIRST next.
        self._is_first = [np.ones(size, bool) for size in sizes]  # all, at the beginning
        self._await_steps(set(range(len(sizes))))

    def reset(self) -> None:
        """Has the evaluation group, if there is one, reset its environments, and awaits it."""
        group = len(self.steps) - 1
        if group and self._minor >= contract.RESET_MINOR:
            self._is_first[group][:] = True
            self.outbox.put(memoryview(pack_reset(group, len(self.steps[group]) - 1)))
            self._await_steps({group})

    def ask_next(self) -> None:
        """From now on answers ask the next question, where both sides know of that."""
        if isinstance(self._spec.action, TokensSpec) and self._minor >= contract.NEXT_MINOR:
            self._is_asking = True
            for actions in self._actions:
                actions[..., 0] = 1 + np.arange(_NUM_DRAWN)[:, None]

    def receive(self, kind: str) -> Any:
        """The content of the next message, which is to be of this kind, a heading of the .proto."""
        start, patience_seconds = time.monotonic(), self._plan.patience_seconds
        # Reading has no deadline of its own: it raises once the timer's thread cancels the stream.
        timer = threading.Timer(patience_seconds, self._context.cancel)
        timer.start()
        message = None
        with contextlib.suppress(Exception):  # the stream was cancelled, by whomever
            message = next(self._received, None)
        timer.cancel()
        if message is None:
            is_late = time.monotonic() - start >= patience_seconds
            got = f"nothing within {patience_seconds:g} seconds" if is_late else "its end"
            raise BrokenError("TIME LIMITS" if is_late else kind, f"expected {kind}, got {got}")
        if isinstance(message, WireError):
            raise BrokenError("MESSAGES", str(message))
        field = "" if isinstance(message, StepPayload) else message.WhichOneof("content")
        got = field.capitalize() or _STEPS
        content: Any = getattr(message, field) if field else message
        if got != kind:
            is_reason = got in ("Refusal", "Failure")
            reason = f": {content.reason}" if is_reason else ""
            raise BrokenError(got if is_reason else kind, f"expected {kind}, got {got}{reason}")
        return content

    def answer(self, group: int, offset: int = 0) -> bytes:
        """Random actions that answer the step in flight, or one `offset` from it."""
        number = len(self.steps[group]) - 1  # the step in flight is the last one that came
        step = self._layouts[group].unpack(memoryview(self.steps[group][number]))
        actions = legal(self._actions[group][number % _NUM_DRAWN], step.observation)
        return pack_actions(group, number + offset, actions)

    def play(self, num_rounds: int, first_group: int = 0) -> None:
        """Answers all groups from one on, in one message, and awaits their steps, N times."""
        groups = range(first_group, len(self.steps))
        for _ in range(num_rounds if groups else 0):
            self.outbox.put(memoryview(b"".join(map(self.answer, groups))))
            self._await_steps(set(groups))

    def _await_steps(self, due: set[int]) -> None:
        while due:
            try:
                for group, data in split(self.receive(_STEPS), self._layouts):
                    self._take(group, data, is_due=group in due)
                    due.remove(group)
            except WireError as error:
                raise BrokenError(_STEPS, str(error)) from error

    def _take(self, group: int, data: Buffer, *, is_due: bool) -> None:
        number, got = len(self.steps[group]), sequence_of(data)
        where = f"group {group}: expected step {number}"
        if not is_due or got != number:
            raise BrokenError(_STEPS, f"{where} after actions for the one before, got step {got}")
        timestep = self._layouts[group].unpack(data)
        step_type = timestep.step_type
        # FIRST at the beginning and after LAST, and nowhere else.
        for row in np.flatnonzero((step_type == StepType.FIRST) != self._is_first[group]):
            expected = "FIRST" if self._is_first[group][row] else "MID or LAST"
            got_type = ("FIRST", "MID", "LAST", "NEXT")[step_type[row]]
            raise BrokenError(_STEPS, f"{where} with {expected} in row {row}, got {got_type}")
        if isinstance(self._spec.action, TokensSpec):
            self._check_next(group, timestep)
        # Copies: what `unpack` gives are views of a buffer that gRPC may use again.
        self._is_first[group] = step_type == StepType.LAST
        self.steps[group].append(bytes(data))

    def _check_next(self, group: int, timestep: TimeStep) -> None:
        asked = self._actions[group][(len(self.steps[group]) - 1) % _NUM_DRAWN][:, 0]
        is_next = timestep.step_type == NEXT
        is_end = (timestep.step_type == StepType.LAST) & (timestep.discount == 0)
        # Of a first step it says nothing: no answer came before it.
        is_wrong = is_end & self._is_asking & bool(self.steps[group])
        is_wrong |= is_next & ~(self._is_asking & (timestep.observation[:, 0] == asked))
        for row in np.flatnonzero(is_wrong):
            expected = "NEXT with the question that was asked" if self._is_asking else "LAST"
            turn = timestep.observation[row, :2].tolist()
            got = f"step type {timestep.step_type[row]} and a turn that begins with {turn}"
            raise BrokenError("Tokens", f"group {group}, row {row}: expected {expected}, got {got}")

    def end(self, code: StatusCode) -> None:
        """Ends the stream."""
        # First the status, then the end of the outbox, at which gRPC's thread reads it.
        self._context.set_code(code)
        self._context.set_details(f"seedrl check-env-server tries {code.name}")
        self.outbox.put(None)


class Process:
    """A command in a process group of its own, which writes to this process's stderr."""

    def __init__(self, command: str, num_envs: int) -> None:
        """`command`: see `Options.command`."""
        if "{learner}" not in command:
            command = f"{command} --learner {{learner}} --num-envs {{num_envs}}"
        self._command = command.replace("{num_envs}", str(num_envs))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, address: str) -> None:
        """Starts it, unless it runs. Raises ConfigError if it cannot be started."""
        if self.exit_code() is None and self._process is not None:
            return
        command = self._command.replace("{learner}", address)
        # stdout has only the report, whatever the env server prints.
        files: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": sys.__stderr__}
        try:
            words = shlex.split(command)  # no shell: an argument is never read a second time
            self._process = subprocess.Popen(words, start_new_session=True, **files)
        except (OSError, ValueError) as error:
            raise ConfigError(f"--command: cannot start {command!r}: {error}") from error

    def exit_code(self) -> int | None:
        """How it has ended; None while it runs."""
        return self._process.poll() if self._process is not None else None

    def stop(self) -> None:
        """Kills it with all that it has started."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                # Not SIGTERM: whether it ends when it is asked to is none of the rules.
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


class Trial:
    """Owns the played learner, and the findings of all dialogues; used by one thread."""

    def __init__(self, subject: Process, plan: Options) -> None:
        self.subject, self.plan = subject, plan
        self.findings = Findings(defaultdict(lambda: _REMEDY), NOTES)
        self._opened = queue.SimpleQueue[Lease]()  # by gRPC's threads
        self._waiting: Lease | None = None  # the next of them, not used yet

        # gRPC calls it in a thread of the stream's own, which only sends what the outbox gives it.
        # All else, reading included, is done by the checker's thread.
        def serve(received: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
            lease = Lease(received, context, plan)
            self._opened.put(lease)
            return iter(lease.outbox.get, None)

        workers = ThreadPoolExecutor(_STREAMS, "played learner")
        self.server = grpc.server(workers, options=server_options(_MAX_MESSAGE_BYTES))
        self.server.add_generic_rpc_handlers((learner_handler(serve, _MAX_MESSAGE_BYTES),))
        self._address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()

    def connect(self) -> Lease:
        """The next stream of the env server, which is started unless it runs."""
        self.subject.start(self._address)
        got = self.wait(self.plan.patience_seconds)
        lease, self._waiting = self._waiting, None
        if lease is None:
            raise BrokenError("TRANSPORT", f"expected a stream, got {got}")
        return lease

    def play(self, num_rounds: int, first_group: int = 0, **changed: Any) -> Lease:
        """A new stream, of which that many rounds of steps were answered."""
        lease = self.connect()
        lease.begin(**changed)
        lease.play(num_rounds, first_group)
        return lease

    def expect(self, then: str, after: str) -> None:
        """Awaits that the env server returns, or that it ends; a bad end need not come."""
        got = self.wait(self.plan.patience_seconds if then == _RETURN else QUIET_SECONDS)
        is_right = got not in (_RETURN, _GOOD_END) if then == _BAD_END else got == then
        if not is_right:
            self.findings.add(_ENDS, f"after {after}: expected {then}, got {got}", subject=after)
        if got != _RETURN:
            self.restart()

    def wait(self, seconds: float) -> str:
        """What there is within this time: another stream, or an end."""
        deadline = time.monotonic() + seconds
        while self._waiting is None and time.monotonic() < deadline:
            # A stream first: the process may have ended since.
            with contextlib.suppress(queue.Empty):
                self._waiting = self._opened.get(timeout=POLL_SECONDS)
                break
            if (code := self.subject.exit_code()) is not None:
                return f"exit code {code}"
        return _RETURN if self._waiting is not None else "neither a stream nor an end"

    def restart(self) -> None:
        """Ends the env server, and forgets its streams; the next dialogue starts it again."""
        # First the process, or it would open another stream.
        self.subject.stop()
        self._waiting = None
        while not self._opened.empty():
            self._opened.get()


def _steps(trial: Trial, *, rounds: int = 0, **changed: Any) -> None:
    trial.play(rounds or trial.plan.steps, **changed).end(StatusCode.UNAVAILABLE)
    trial.expect(_RETURN, "UNAVAILABLE")


def _resets(trial: Trial) -> None:
    lease = trial.play(5)
    for _ in range(2):
        lease.reset()
        lease.play(5)
    lease.end(StatusCode.UNAVAILABLE)
    trial.expect(_RETURN, "UNAVAILABLE")


def _next_questions(trial: Trial) -> None:
    lease = trial.connect()
    lease.begin()
    lease.ask_next()
    lease.play(20)
    lease.end(StatusCode.UNAVAILABLE)
    trial.expect(_RETURN, "UNAVAILABLE")


def _seeds(trial: Trial) -> None:
    plays = []
    for seed in (1, 1, 2):  # equal seeds, and others
        lease = trial.play(60, seed=seed)
        lease.end(StatusCode.UNAVAILABLE)  # it returns with new environments
        plays.append(lease.steps)
    # Bytes of whole steps: nothing that a learner sees may differ.
    if plays[0] != plays[1]:
        trial.findings.add(_SEEDS, "expected equal steps from equal seeds and actions, got others")
    elif plays[1] == plays[2]:
        trial.findings.add("seed ignored", "with other seeds the steps were the same")


def _ends(trial: Trial, *, code: StatusCode, then: str) -> None:
    lease = trial.play(2)
    if then == _RETURN:  # with actions on their way, as it happens
        lease.outbox.put(memoryview(lease.answer(0)))
    lease.end(code)
    trial.expect(then, code.name)


def _finishes(trial: Trial) -> None:
    lease = trial.play(2)
    lease.outbox.put(FromLearner(finish=Finish(reason="the check is over")))
    lease.end(StatusCode.OK)
    trial.expect(_GOOD_END, "Finish")


def _refuses(trial: Trial, *, environment: Mapping[str, Any], name: str) -> None:
    lease = trial.connect()
    try:
        lease.begin(environment=environment)
    except BrokenError as error:
        if error.rule != "Refusal":
            raise
        lease.end(StatusCode.FAILED_PRECONDITION)
        trial.expect(_BAD_END, f"a Refusal of {name}")
    else:
        raise BrokenError("Refusal", f"expected a Refusal of {name}, got Ready")


def _breaks(trial: Trial, *, answer: Callable[[Lease], bytes], name: str) -> None:
    # The env server cancels its stream; then it ends with an error, or returns.
    lease = trial.play(2)
    lease.outbox.put(memoryview(answer(lease)))
    try:
        while True:  # steps may come before the end
            lease.receive(_STEPS)
    except BrokenError as error:
        if error.rule != _STEPS:
            raise BrokenError(_BREACHES, f"{name}: expected that it cancels its stream") from error
    if trial.wait(trial.plan.patience_seconds) == _GOOD_END:
        trial.findings.add(_BREACHES, f"after {name}: expected {_BAD_END}, got {_GOOD_END}")


_RETURNS = ("OK", "UNAVAILABLE", "DEADLINE_EXCEEDED", "ABORTED", "INTERNAL", "CANCELLED", "UNKNOWN")
_STAYS = ("INVALID_ARGUMENT", "FAILED_PRECONDITION", "UNAUTHENTICATED", "PERMISSION_DENIED")
# Environments that must be refused: mistakes in the run's configuration.
_REFUSED = {
    "an unknown environment": {"id": "seedrl-no-such-environment-v0"},
    "an unknown argument": {"arguments": '{"seedrl_no_such_argument": 1}'},
}
# What a learner must not send: a step would be answered by another one's actions.
_BREAKING: dict[str, Callable[[Lease], bytes]] = {
    "an answer to the step before": lambda lease: lease.answer(0, offset=-1),
    "two answers to one step": lambda lease: 2 * lease.answer(0),
}
# By name; later ones assume what earlier ones have shown.
DIALOGUES: dict[str, Callable[[Trial], None]] = {
    "steps": _steps,
    "several groups": partial(
        _steps, rounds=20, first_group=1
    ),  # while the first one waits for actions
    "one environment": partial(_steps, rounds=20, num_envs=1),  # of more that are offered
    "resets": _resets,
    "next questions": _next_questions,  # of tokens; others are only stepped
    "seeds": _seeds,
    **{f"return after {n}": partial(_ends, code=StatusCode[n], then=_RETURN) for n in _RETURNS},
    "Finish": _finishes,
    **{f"refuse {n}": partial(_refuses, environment=what, name=n) for n, what in _REFUSED.items()},
    **{n: partial(_breaks, answer=answer, name=n) for n, answer in _BREAKING.items()},
    **{f"end after {n}": partial(_ends, code=StatusCode[n], then=_BAD_END) for n in _STAYS},
}


def check(subject: Process, plan: Options, names: Sequence[str] = tuple(DIALOGUES)) -> Findings:
    """Holds the dialogues of these names. Raises ConfigError if the command cannot be started.

    After one that could not be finished the env server is started again, so that each is judged by
    itself; after a broken first one no other is tried.
    """
    trial = Trial(subject, plan)
    try:
        for number, name in enumerate(names):
            print(f"dialogue {number + 1} of {len(names)}: {name}", file=sys.stderr, flush=True)
            try:
                DIALOGUES[name](trial)
            except BrokenError as error:
                left = f" ({len(names) - 1} more were not tried)" if number == 0 else ""
                trial.findings.add(error.rule, f"{name}{left}: {error}", subject=str(error)[:40])
                trial.restart()
                if left:  # it cannot serve at all: every other dialogue would end the same way
                    break
    finally:
        subject.stop()
        trial.server.stop(0).wait()
    return trial.findings


def main(arguments: Sequence[str] | None = None) -> int:
    """Checks the env server that the command line names and prints a report; the exit code."""
    return exit_code(lambda: _check(read(Options, arguments, prog=PROG)), prog=PROG)


def _check(options: Options) -> ExitCode:
    findings = check(Process(options.command, options.num_envs), options)
    print(*findings.lines(options.command), sep="\n")
    return ExitCode.FAULTS if findings.errors else ExitCode.OK


if __name__ == "__main__":
    # As Ctrl-C: the env server is ended too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
