"""Checks an env server, in whatever language, against proto/seedrl/wire/seedrl.proto.

`python -m envs_server.check.server --command "node server.js"` plays the learner over real gRPC:
`DIALOGUES` is a table of what it does and of what must come back.
"""

import contextlib
import json
import os
import queue
import shlex
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import tyro
from grpc import StatusCode

from envs_server.check.findings import Findings
from envs_server.check.learner import BrokenError, Lease, listen
from seedrl.errors import ConfigError
from seedrl.exit_codes import ExitCode
from seedrl.programs.command_line import read
from seedrl.programs.outcome import exit_code
from seedrl.timing import POLL_SECONDS
from seedrl.wire.seedrl_pb2 import Finish, FromLearner

PROG = "seedrl check-env-server"
_REMEDY = "see proto/seedrl/wire/seedrl.proto"
# A rule is a heading of seedrl.proto, where it can be read.
_ENDS, _SEEDS, _BREACHES = "HOW A STREAM ENDS", "Group.seeds", "BREACHES"
# A breach of these is a note: it may be intended.
NOTES = ("SIGTERM", "seed ignored")
# How long it has to stay away when it must not return: longer than any pause of the contract.
QUIET_SECONDS = 6.0
# What may be expected after a stream.
_RETURN, _GOOD_END, _BAD_END = "another stream", "exit code 0", "an exit code other than 0"


@dataclass(frozen=True, kw_only=True)
class Options:
    """Check an env server, in whatever language, against proto/seedrl/wire/seedrl.proto.

    Starts it, again and again, and plays the learner: handshakes, steps, several groups, refusals,
    and ends of all kinds. Each rule that it breaks is one line: expected, got, where to read on.

    Exit codes: 0 it passes, maybe with notes; 2 wrong arguments, or the command cannot be started;
    3 it breaks a rule.
    """

    command: str
    """How the env server is started, e.g. "node server.js"; no shell reads it. {learner} and
    {num_envs} stand for the learner's address and the environments to offer; without {learner}, the
    options `--learner ADDRESS --num-envs N` are added at its end."""

    environment: str = "CartPole-v1"
    """The environment to build: a gymnasium id, or any name that the env server knows."""

    arguments: Annotated[str, tyro.conf.arg(metavar="JSON")] = "{}"
    """Keyword arguments of the environment, as a JSON object."""

    num_envs: int = 4
    """Environments that it is to offer; three groups take four at least."""

    steps: int = 200
    """Rounds of random actions in the first dialogue."""

    patience_seconds: float = 30.0
    """The longest wait for an answer, building included."""

    json: bool = False
    """Print one JSON object instead of lines."""

    def __post_init__(self) -> None:
        if self.num_envs < 1 or self.steps < 1 or not self.patience_seconds > 0:
            raise ValueError("expected --num-envs, --steps and --patience-seconds above 0")


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
        if self._process is None or self._process.poll() is not None:
            command = self._command.replace("{learner}", address)
            files: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": sys.__stderr__}
            try:
                words = shlex.split(command)
                self._process = subprocess.Popen(words, start_new_session=True, **files)
            except (OSError, ValueError) as error:
                raise ConfigError(f"--command: cannot start {command!r}: {error}") from error

    def exit_code(self) -> int | None:
        """How it has ended; None while it runs."""
        return self._process.poll() if self._process is not None else None

    def ask_to_end(self) -> None:
        """Sends SIGTERM to it and all that it has started."""
        self._signal(signal.SIGTERM)

    def stop(self) -> None:
        """Kills it with all that it has started."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def _signal(self, number: int) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)


class Trial:
    """Owns the played learner, and the findings of all dialogues; used by one thread."""

    def __init__(self, subject: Process, plan: Options) -> None:
        self.subject, self.plan = subject, plan
        self.findings = Findings(defaultdict(lambda: _REMEDY), NOTES)
        self._opened = queue.SimpleQueue[Lease]()  # by gRPC's threads
        self._waiting: Lease | None = None  # the next of them, not used yet
        self.lease: Lease | None = None  # the one in use
        self.server, self._address = listen(self._opened, plan.patience_seconds)

    def open(self, *, seed: int = 0, **changed: Any) -> Lease:
        """Starts the env server unless it runs, and reads the first steps of its groups.

        They are two to train and one to evaluate, or what `changed` has for fields of Assign.
        Raises BrokenError.
        """
        self.subject.start(self._address)
        # It may be there already, since the dialogue before.
        got = self.wait(self.plan.patience_seconds)
        if self._waiting is None:
            raise BrokenError("TRANSPORT", f"expected a stream, got {got}")
        lease, self._waiting = self._waiting, None
        self.lease = lease
        hello = lease.hello()
        num_envs = min(hello.num_envs, self.plan.num_envs)
        # The first group has what the others leave.
        left = max(1, num_envs - min(max(hello.num_groups, 1), 2))
        slots = [range(left), *(range(slot, slot + 1) for slot in range(left, num_envs))]
        groups: list[dict[str, Any]] = [
            {"slots": each, "seeds": [1000 * seed + slot for slot in each]} for each in slots
        ]
        groups[-1]["evaluation"] = len(groups) > 1
        environment = {"id": self.plan.environment, "arguments": self.plan.arguments}
        environment |= changed.pop("environment", {})
        lease.begin({"environment": environment, "groups": groups, **changed})
        return lease

    def expect(self, then: str, after: str, rule: str = _ENDS) -> None:
        """Awaits that the env server returns, or that it ends; a bad end need not come."""
        got = self.wait(self.plan.patience_seconds if then == _RETURN else QUIET_SECONDS)
        is_right = got not in (_RETURN, _GOOD_END) if then == _BAD_END else got == then
        if not is_right:
            self.findings.add(rule, f"after {after}: expected {then}, got {got}", subject=after)
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
        """Ends the env server, and forgets its streams; the next `open` starts it again."""
        # First the process, or it would open another stream.
        self.subject.stop()
        self._waiting = None
        while not self._opened.empty():
            self._opened.get()


def _plays(trial: Trial, *, rounds: int = 20, first_group: int = 0, **changed: Any) -> None:
    lease = trial.open(**changed)
    lease.play(rounds or trial.plan.steps, first_group)
    lease.end(StatusCode.UNAVAILABLE)
    trial.expect(_RETURN, "UNAVAILABLE")


def _seeds(trial: Trial) -> None:
    plays = []
    for seed in (1, 1, 2):
        lease = trial.open(seed=seed)
        lease.play(60)
        lease.end(StatusCode.UNAVAILABLE)
        plays.append(lease.steps)
    # Bytes of whole steps: nothing that a learner sees may differ.
    if plays[0] != plays[1]:
        trial.findings.add(_SEEDS, "expected equal steps from equal seeds and actions, got others")
    elif plays[1] == plays[2]:
        trial.findings.add("seed ignored", "with other seeds the steps were the same")


def _ends(trial: Trial, *, code: StatusCode, then: str) -> None:
    lease = trial.open()
    lease.play(2)
    if then == _RETURN:  # with actions on their way, as it happens
        lease.send(memoryview(lease.answer(0)))
    if then == _GOOD_END:
        lease.send(FromLearner(finish=Finish(reason="the check is over")))
    lease.end(code)
    trial.expect(then, "Finish" if then == _GOOD_END else code.name)


def _sigterm(trial: Trial) -> None:
    trial.open().play(2)
    trial.subject.ask_to_end()
    trial.expect(_GOOD_END, "a signal", "SIGTERM")


def _refuses(trial: Trial, *, changed: Mapping[str, Any], name: str) -> None:
    try:
        trial.open(**changed)
    except BrokenError as error:
        if error.rule != "Refusal" or trial.lease is None:
            raise
        trial.lease.end(StatusCode.FAILED_PRECONDITION)
        trial.expect(_BAD_END, f"a Refusal of {name}")
    else:
        raise BrokenError("Refusal", f"expected a Refusal of {name}, got Ready")


def _breaks(trial: Trial, *, answer: Callable[[Lease], bytes], name: str) -> None:
    # The env server cancels its stream; then it ends with an error, or returns.
    lease = trial.open()
    lease.play(2)
    lease.send(memoryview(answer(lease)))
    if not lease.is_ended_by_peer():
        raise BrokenError(_BREACHES, "expected that it cancels its stream")
    if trial.wait(trial.plan.patience_seconds) == _GOOD_END:
        trial.findings.add(_BREACHES, f"after {name}: expected {_BAD_END}, got {_GOOD_END}")


_RETURNS = ("OK", "UNAVAILABLE", "DEADLINE_EXCEEDED", "ABORTED", "INTERNAL", "CANCELLED", "UNKNOWN")
_STAYS = ("INVALID_ARGUMENT", "FAILED_PRECONDITION", "UNAUTHENTICATED", "PERMISSION_DENIED")
# What an Assign has that must be refused: a mistake in the run's configuration.
_REFUSED: dict[str, dict[str, Any]] = {
    "an unknown environment": {"environment": {"id": "seedrl-no-such-environment-v0"}},
    "an unknown argument": {"environment": {"arguments": '{"seedrl_no_such_argument": 1}'}},
}
# What a learner must not send: a step would be answered by another one's actions.
_BREAKING: dict[str, Callable[[Lease], bytes]] = {
    "an answer to the step before": lambda lease: lease.answer(0, offset=-1),
    "two answers to one step": lambda lease: 2 * lease.answer(0),
}
# By name, each a function that holds it; later ones assume what earlier ones have shown.
DIALOGUES: dict[str, Callable[[Trial], None]] = {
    "steps": partial(_plays, rounds=0),
    "several groups": partial(_plays, first_group=1),  # while the first one waits for actions
    "one environment": partial(_plays, groups=[{"slots": [0], "seeds": [0]}]),
    "seeds": _seeds,
    **{f"return after {n}": partial(_ends, code=StatusCode[n], then=_RETURN) for n in _RETURNS},
    "Finish": partial(_ends, code=StatusCode.OK, then=_GOOD_END),
    "SIGTERM": _sigterm,
    **{f"refuse {n}": partial(_refuses, changed=fields, name=n) for n, fields in _REFUSED.items()},
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
            if not plan.json:  # then stdout and stderr may be read as one
                print(f"dialogue {number + 1} of {len(names)}: {name}", file=sys.stderr, flush=True)
            try:
                DIALOGUES[name](trial)
            except BrokenError as error:
                left = f" ({len(names) - 1} more were not tried)" if number == 0 else ""
                trial.findings.add(error.rule, f"{name}{left}: {error}", subject=str(error)[:40])
                trial.restart()
                if left:
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
    if options.json:
        print(json.dumps({"command": options.command, **findings.as_json()}))
    else:
        print(*findings.lines(options.command), sep="\n")
    return ExitCode.FAULTS if findings.errors else ExitCode.OK


if __name__ == "__main__":
    # As Ctrl-C: the env server is ended too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
