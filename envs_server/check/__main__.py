"""Entry point of the checker of environments: `python -m envs_server.check ENVIRONMENT`.

Exit codes: 0 the environment passes, maybe with notes; 2 wrong arguments, or the environment cannot
be built here; 3 it breaks a rule; 70 a defect of the checker; 143 interrupted.
"""

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from seedrl.exit_codes import ExitCode
from seedrl.programs.command_line import read
from seedrl.programs.outcome import exit_code, leave
from seedrl.spec_json import encode_spec
from seedrl.specs import ActionSpec, DiscreteSpec

if TYPE_CHECKING:
    from envs_server.check.environment import Checked, Episode

PROG = "seedrl check-env"


@dataclass(frozen=True, kw_only=True)
class Options:
    """Check an environment before training with it.

    Builds and plays the environment by the code of an env server, with random actions, and prints
    each rule that it breaks with how to fix it. Errors would stop training or spoil what is
    learned; notes may be intended.

    Exit codes: 0 it passes, maybe with notes; 2 wrong arguments, or the environment cannot be built
    here; 3 it breaks a rule.
    """

    environment: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="ENVIRONMENT")]
    """A registered gymnasium id, or package.module:factory."""

    arguments: Annotated[str, tyro.conf.arg(metavar="JSON")] = "{}"
    """Keyword arguments of the environment, as a JSON object."""

    wrappers: tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]] = ()
    """Wrappers (package.module:factory), innermost first."""

    vectorization: Literal["auto", "seeded", "sync", "native", "atari"] = "auto"
    """Back end, as in environment.vectorization of a config; auto takes the one of training."""

    num_envs: int = 4
    """Environments that are played together."""

    steps: int = 1_000
    """Steps of each environment; some are played several times."""

    seed: int = 0
    """Seed of the first environment and of the random actions; the others count on from it."""

    max_abs_reward: float = 1e6
    """Largest reward, either way, as environment.max_abs_reward of a config; 0: any finite one."""

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


def read_options(words: Sequence[str] | None = None) -> Options:
    """Parses a command line, by default this process's own. Raises ConfigError if it is wrong."""
    return read(Options, words, prog=PROG)


def main(arguments: Sequence[str] | None = None) -> int:
    """Checks the environment that the command line names and prints a report; the exit code."""
    return exit_code(lambda: _check(read_options(arguments)), prog=PROG)


def _check(options: Options) -> ExitCode:
    # Imported here: a missing gymnasium is then reported in one line.
    from envs_server.build import choose, read_recipe
    from envs_server.check.environment import check
    from seedrl.wire.seedrl_pb2 import Environment

    wrappers = [name for names in options.wrappers for name in names]
    allowed = [name for name in (options.environment, *wrappers) if ":" in name]
    environment = Environment(
        id=options.environment, arguments=options.arguments, wrappers=wrappers
    )
    with _stdout_to_stderr():
        recipe = read_recipe(environment, allowed)
        back_end = choose(recipe, options.vectorization)
        found = check(
            recipe,
            back_end,
            num_envs=options.num_envs,
            num_steps=options.steps,
            seed=options.seed,
            max_abs_reward=options.max_abs_reward,
        )
    if options.json:
        print(json.dumps(_as_json(options, back_end, found)))
    else:
        print("\n".join(_lines(options, back_end, found)))
    return ExitCode.FAULTS if found.findings.errors else ExitCode.OK


@contextlib.contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """Leads what environments print to stderr: stdout is the report's.

    Descriptor 1 too, to which code in C writes.
    """
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
        sys.stdout.flush()
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _lines(options: Options, back_end: str, found: "Checked") -> Iterator[str]:
    yield from found.findings.lines()
    yield f"{options.environment} {found.findings.verdict()}"
    play = found.play
    if play is None or found.findings.errors:
        return
    leaves = (
        f"{path.removeprefix('observation').removeprefix('.')} {leaf.dtype}{list(leaf.shape)}"
        for path, leaf in play.spec.leaves()
    )
    yield f"  observation  {', '.join(leaf.strip() for leaf in leaves)}"
    yield f"  actions      {_actions(play.spec.action)}"
    yield (
        f"  played       {options.num_envs} x {options.steps:,} steps on the {back_end} back end"
    )
    yield f"  episodes     {_episodes(play.episodes)}"
    yield f"  speed        {play.num_steps / play.seconds:,.0f} steps/s in one process"


def _actions(action: ActionSpec) -> str:
    if isinstance(action, DiscreteSpec):
        return str(action.num_actions)
    return f"box{list(action.shape)}, {min(action.low):g} to {max(action.high):g}"


def _episodes(ended: "Sequence[Episode]") -> str:
    if not ended:
        return "none ended"
    terminated = sum(episode.is_terminated for episode in ended)
    lengths = sorted(episode.length for episode in ended)
    scores = sorted(episode.score for episode in ended)
    return (
        f"{len(ended)} ended, {terminated} terminated and {len(ended) - terminated} truncated; "
        f"length {lengths[0]} to {lengths[-1]}, return {scores[0]:g} to {scores[-1]:g} "
        f"(mean {sum(scores) / len(scores):.4g})"
    )


def _as_json(options: Options, back_end: str, found: "Checked") -> dict[str, Any]:
    content: dict[str, Any] = {"environment": options.environment, **found.findings.as_json()}
    content |= {"back_end": back_end}
    if play := found.play:
        content |= {
            "spec": json.loads(encode_spec(play.spec)),
            "steps_per_second": play.num_steps / play.seconds,
            "episodes": [episode._asdict() for episode in play.episodes],
        }
    return content


if __name__ == "__main__":
    # Not sys.exit: a thread that an environment has left behind would keep the process.
    leave(main())
