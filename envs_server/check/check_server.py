"""Entry point: `python -m envs_server.check.check_server --command "node server.js"`.

Exit codes: 0 the env server passes, maybe with notes; 2 wrong arguments, or the command cannot be
started; 3 it breaks a rule; 70 a defect of the checker; 143 interrupted.
"""

import contextlib
import json
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import tyro

from seedrl.exit_codes import ExitCode
from seedrl.programs.command_line import read
from seedrl.programs.outcome import exit_code

PROG = "seedrl check-env-server"


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
    """Rounds of random actions in the long dialogues."""

    seed: int = 0
    """Seed of environments and random actions."""

    patience_seconds: float = 30.0
    """The longest wait for an answer, building included."""

    json: bool = False
    """Print one JSON object instead of lines."""

    def __post_init__(self) -> None:
        if self.num_envs < 1 or self.steps < 1 or not self.patience_seconds > 0:
            raise ValueError(
                "expected at least one environment, one step and some patience, got "
                f"--num-envs {self.num_envs} --steps {self.steps} "
                f"--patience-seconds {self.patience_seconds}"
            )
        try:
            is_object = isinstance(json.loads(self.arguments or "{}"), dict)
        except ValueError:
            is_object = False
        if not is_object:
            raise ValueError(f"expected a JSON object as --arguments, got {self.arguments!r}")


def read_options(words: Sequence[str] | None = None) -> Options:
    """Parses a command line, by default this process's own. Raises ConfigError if it is wrong."""
    return read(Options, words, prog=PROG)


def main(arguments: Sequence[str] | None = None) -> int:
    """Checks the env server that the command line names and prints a report; the exit code."""
    return exit_code(lambda: _check(read_options(arguments)), prog=PROG)


def _check(options: Options) -> ExitCode:
    from envs_server.check.learner import Process
    from envs_server.check.server import check

    def log(line: str) -> None:
        if not options.json:  # then stdout and stderr may be read as one
            print(line, file=sys.stderr, flush=True)

    with _ended_by_sigterm(), Process(options.command, options.num_envs) as subject:
        trial = check(subject, options, log=log)
    counts = {"num_streams": trial.num_streams, "num_steps": trial.num_steps}
    if options.json:
        content = {"command": options.command, **trial.findings.as_json(), **counts}
        print(json.dumps(content | {"skipped": trial.skipped}))
    else:
        for line in (*trial.findings.lines(), *(f"skipped {text}" for text in trial.skipped)):
            print(line)
        print(
            f"{options.command} {trial.findings.verdict()}: {trial.num_streams} streams, "
            f"{trial.num_steps:,} steps of {options.environment}"
        )
    return ExitCode.FAULTS if trial.findings.errors else ExitCode.OK


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM interrupts like Ctrl-C, so that the env server is ended too; a second is ignored."""

    def interrupt(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    sys.exit(main())
