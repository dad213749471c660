"""Entry point of the checker of environments: `python -m envs_server.check ENVIRONMENT`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from seedrl.exit_codes import ExitCode
from seedrl.observations import describe
from seedrl.programs.command_line import read
from seedrl.programs.flags import POSITIONAL, Mark
from seedrl.programs.outcome import exit_code, leave

if TYPE_CHECKING:
    from envs_server.check.environment import Play

PROG = "seedrl check-env"


@dataclass(frozen=True, kw_only=True)
class Options:
    """Check an environment before training with it.

    Builds the environment as an env server does, plays random actions, and prints each rule that it
    breaks, with how to fix it. Errors would stop training or change its data; notes are only
    warnings.

    Example: seedrl check-env CartPole-v1 --num-envs 8

    Exit codes: 0 no errors, maybe notes; 1 the environment hangs; 2 wrong arguments, or the
    environment cannot be built here; 3 the environment breaks a rule.

    Attributes:
      environment: registered gymnasium id, or package.module:factory.
      arguments: keyword arguments of the environment, as a JSON object.
      wrappers: wrappers (package.module:factory), innermost first.
      vectorization: back end, as `environment.vectorization` of a configuration; auto takes the one
        that training would use.
      num_envs: environments that are played together.
      steps: steps of each environment; they are played twice, to compare the results.
      seed: seed of the first environment and of the random actions; the others use the next seeds.
      max_abs_reward: largest allowed absolute reward, as `environment.max_abs_reward` of a
        configuration; 0 allows any finite reward.
    """

    environment: Annotated[str, POSITIONAL]
    arguments: Annotated[str, Mark("JSON")] = "{}"
    wrappers: Annotated[tuple[str, ...], Mark(action="extend")] = ()
    # By default what training would use: a fault of another back end is none of the run.
    vectorization: Literal["auto", "seeded", "sync", "native", "atari"] = "auto"
    num_envs: int = 4  # several: shared state shows only then
    steps: int = 1_000
    seed: int = 0
    max_abs_reward: float = 1e6  # as a configuration's default

    def __post_init__(self) -> None:
        if self.num_envs < 1 or self.steps < 1:
            got = f"--num-envs {self.num_envs} --steps {self.steps}"
            raise ValueError(f"expected at least one environment and one step, got {got}")
        if not 0 <= self.seed <= 2**31 - self.num_envs:
            raise ValueError(f"expected --seed of 0 to 2^31 - num_envs, got {self.seed}")
        if not self.max_abs_reward >= 0:
            raise ValueError(f"expected --max-abs-reward of at least 0, got {self.max_abs_reward}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Checks the environment that the command line names and prints a report; the exit code."""
    return exit_code(lambda: _check(read(Options, arguments, prog=PROG)), prog=PROG)


def _check(options: Options) -> ExitCode:
    # Imported here: a missing gymnasium is then reported in one line.
    from envs_server.build import choose, read_recipe
    from envs_server.check.environment import check, own_stdout
    from envs_server.stop import HangLimit
    from seedrl.wire.seedrl_pb2 import Environment

    name, wrappers = options.environment, options.wrappers
    environment = Environment(id=name, arguments=options.arguments, wrappers=wrappers)
    with own_stdout() as stdout:
        # All that is named may be built: nobody but the user names it here.
        recipe = read_recipe(environment, [each for each in (name, *wrappers) if ":" in each])
        back_end = choose(recipe, options.vectorization)
        findings, play = check(
            recipe,
            back_end,
            num_envs=options.num_envs,
            num_steps=options.steps,
            seed=options.seed,
            max_abs_reward=options.max_abs_reward,
            hang=HangLimit(),
        )
        print(*findings.lines(name), sep="\n", file=stdout)
        if play is not None and not findings.errors:
            print(*_summary(options, back_end, play), sep="\n", file=stdout)
    return ExitCode.FAULTS if findings.errors else ExitCode.OK


def _summary(options: Options, back_end: str, play: "Play") -> Iterator[str]:
    yield f"  {describe(play.spec)}"
    yield f"  actions      {play.spec.action}"
    if play.mask:
        yield f"  action mask  {play.mask}"
    yield f"  played       {options.num_envs} x {options.steps:,} steps on the {back_end} back end"
    ended = "none ended"
    # Only whole episodes: a score of the beginning of one would look like a bad episode.
    if episodes := play.episodes():
        lengths, scores, are_terminated = zip(*episodes, strict=True)
        ended = (
            f"{len(episodes):,} ended, {sum(are_terminated):,} terminated and "
            f"{are_terminated.count(False):,} truncated; length {min(lengths):,} to "
            f"{max(lengths):,}, "
            f"return {min(scores):g} to {max(scores):g} (mean {sum(scores) / len(scores):.4g})"
        )
    yield f"  episodes     {ended}"
    yield f"  speed        {play.steps_per_second():,.0f} steps/s in one process"


if __name__ == "__main__":
    # Not sys.exit: a thread that an environment has left behind would keep the process.
    leave(main())
