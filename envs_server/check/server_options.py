"""The command line of the checker of env servers."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import tyro

from seedrl.programs.command_line import read

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
