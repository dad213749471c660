"""The command line of the checker."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from seedrl.programs.command_line import read

PROG = "seedrl check-env"

_Names = tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Check an environment before training with it.

    Plays the environment by gymnasium's own calls, then through the back end and the wire format
    that training would use, and prints each rule that it breaks with how to fix it. Errors would
    stop training or spoil what is learned; notes may be intended.

    Exit codes: 0 it passes, maybe with notes; 2 wrong arguments, or the environment cannot be built
    here; 3 it breaks a rule.
    """

    environment: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="ENVIRONMENT")]
    """A registered gymnasium id, or package.module:factory."""

    arguments: Annotated[str, tyro.conf.arg(metavar="JSON")] = "{}"
    """Keyword arguments of the environment, as a JSON object."""

    wrappers: _Names = ()
    """Wrappers (package.module:factory), innermost first."""

    vectorization: Literal["auto", "seeded", "sync", "native", "atari"] = "auto"
    """Back end, as in environment.vectorization of a config; auto takes what training would."""

    allow_env: _Names = ()
    """Shell patterns of further factories that may be built; those that are named on this command
    line always may."""

    num_envs: int = 4
    """Environments that are played together on the back end."""

    steps: int = 1_000
    """Steps of each environment; some are played several times."""

    seed: int = 0
    """Seed of the first environment and of the random actions; the others count on from it."""

    json: bool = False
    """Print one JSON object instead of lines."""

    def __post_init__(self) -> None:
        if self.num_envs < 1 or self.steps < 1:
            raise ValueError(
                "expected at least one environment and one step, "
                f"got --num-envs {self.num_envs} --steps {self.steps}"
            )
        if not 0 <= self.seed <= 2**31 - self.num_envs:
            raise ValueError(f"expected --seed of 0 to 2^31 - num_envs, got {self.seed}")

    @property
    def wrapper_names(self) -> tuple[str, ...]:
        """All of `wrappers`."""
        return tuple(name for names in self.wrappers for name in names)

    @property
    def allowed(self) -> tuple[str, ...]:
        """Patterns of what may be built: what was named, and `allow_env`."""
        patterns = (pattern for patterns in self.allow_env for pattern in patterns)
        named = (self.environment, *self.wrapper_names)
        return (*(name for name in named if ":" in name), *patterns)


def read_options(words: Sequence[str] | None = None) -> Options:
    """Parses a command line, by default this process's own. Raises ConfigError if it is wrong."""
    return read(Options, words, prog=PROG)
