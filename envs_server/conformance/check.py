"""All checks of one environment, and what they gave."""

from functools import partial
from typing import NamedTuple

from envs_server import building
from envs_server.backends import sync
from envs_server.conformance.back_end import Play, check_against_single, check_back_end
from envs_server.conformance.findings import Findings
from envs_server.conformance.single import Alone, check_single
from envs_server.recipe import Recipe


class Plan(NamedTuple):
    """How an environment is to be checked.

    Attributes:
      back_end: name of the back end, see `building.choose`.
      num_envs: environments on it.
      num_steps: steps of each, in each play.
      seed: of the first environment and of the actions; the others count on from it.
    """

    back_end: str
    num_envs: int
    num_steps: int
    seed: int


class Report(NamedTuple):
    """What the checks found.

    Attributes:
      findings: what was wrong.
      play: on the back end; None if that was not reached or could not be finished.
    """

    findings: Findings
    play: Play | None

    @property
    def passes(self) -> bool:
        """Whether there were no errors; notes may be."""
        return not self.findings.errors


def check(recipe: Recipe, plan: Plan) -> Report:
    """Checks an environment by itself and, unless that found errors, on its back end.

    What exists only as vectors, ALE's games for one, is not looked at by itself. Raises BuildError.
    """
    findings = Findings()
    alone: Alone | None = None
    if plan.back_end != "atari" and sync.has_single(recipe):
        build_one = partial(building.build_one, recipe)
        alone = check_single(build_one, findings, seed=plan.seed, num_steps=plan.num_steps)
    if findings.errors:
        return Report(findings, None)
    build = partial(building.build, recipe, plan.back_end, plan.num_envs)
    seeds = [plan.seed + i for i in range(plan.num_envs)]
    play = check_back_end(build, findings, seeds=seeds, num_steps=plan.num_steps)
    if alone and play:
        check_against_single(alone, play, findings, same_seeds=plan.back_end == "sync")
    return Report(findings, play)
