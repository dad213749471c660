"""Builds the groups of environments that a learner asks for, each on the back end that it takes."""

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import gymnasium

from envs_server.backends import atari, film, native, sync
from envs_server.errors import BuildError, FilmError, one_line
from envs_server.factories import ADVICE
from envs_server.group import EnvGroup
from envs_server.playback import PlayedGroup
from envs_server.recipe import GroupPlan, Recipe
from envs_server.vector import VectorEnvironment
from seedrl.programs import extras
from seedrl.wire.local_link import require_room
from seedrl.wire.seedrl_pb2 import Assign

BackEnd = Callable[[Recipe, int], VectorEnvironment]
Stepped: TypeAlias = EnvGroup | PlayedGroup

# Pong-v0, PongDeterministic-v4, PongNoFrameskip-v4, Pong-ram-v0 and the like.
_OLD_ATARI = re.compile(r"([A-Z][A-Za-z]+?)(?:-ram)?(?:Deterministic|NoFrameskip)?-v[045]")
_BACK_ENDS: dict[str, BackEnd] = {
    "sync": sync.build,
    "native": native.build,
    "atari": atari.build,
}


def build(
    recipe: Recipe,
    vectorization: str,
    num_envs: int,
    *,
    idle_before: Sequence[int] = (),
    notes: Sequence[Callable[[bool], None]] = (),
) -> VectorEnvironment:
    """`num_envs` environments of `recipe` on the back end that `choose` names.

    `idle_before`, `notes`: see `sync.build`; other back ends build no environments one by one.

    Raises BuildError, with the environment's own reason on one line.
    """
    with _one_line_refusal(recipe):
        back_end = choose(recipe, vectorization)
        if back_end == "sync":
            return sync.build(recipe, num_envs, idle_before, notes)
        return _BACK_ENDS[back_end](recipe, num_envs)


def build_filmed(recipe: Recipe, vectorization: str, folder: Path) -> VectorEnvironment:
    """One environment of `recipe` whose episodes are filmed into `folder`.

    As it draws itself on the sync back end; an ALE game as the agent sees it. Raises BuildError.
    """
    with _one_line_refusal(recipe):
        if choose(recipe, vectorization) == "atari":
            return film.build_from_observations(recipe, atari.build(recipe, 1), folder)
        return film.build(recipe, folder)


def build_one(recipe: Recipe) -> gymnasium.Env[Any, Any]:
    """One environment of `recipe` as the sync back end makes it. Raises BuildError."""
    with _one_line_refusal(recipe):
        return sync.build_one(recipe)


def choose(recipe: Recipe, vectorization: str) -> str:
    """The name of the back end that `vectorization` means; `auto` takes the fastest.

    That is `atari` for ALE games, `native` for an environment with a vector implementation of its
    own, else `sync`; with wrappers always `sync`. `seeded` takes `native`, which has one seed for
    all of its environments, only for what has nothing else. Raises BuildError for an unknown name.
    """
    if vectorization not in ("auto", "seeded", ""):
        if vectorization not in _BACK_ENDS:
            raise BuildError(
                f"expected vectorization auto, seeded, {', '.join(_BACK_ENDS)}; got "
                f"{vectorization!r}"
            )
        return vectorization
    if atari.is_atari(recipe) and not recipe.wrappers:
        return "atari"
    is_native = native.is_available(recipe) and not (
        vectorization == "seeded" and sync.has_single(recipe)
    )
    return "native" if is_native else "sync"


def build_group(
    index: int,
    plan: GroupPlan,
    *,
    films: Path | None = None,
    broken_off: str = "",
    note: Callable[[int, bool], None] | None = None,
) -> EnvGroup:
    """Group number `index`, as it is planned. Raises BuildError, and FilmError like `Lease.serve`.

    Args:
      films: where every episode of its only environment is filmed, if it is.
      broken_off: how an earlier stream ended that was being filmed, if there was one.
      note: takes the position of each environment that is at work, and of each that no longer is;
        not of those that are filmed, or have a vector implementation.
    """
    notes = note and [functools.partial(note, place.position) for place in plan.places]
    environments = _environments(plan, films, broken_off, notes or ())
    try:
        return EnvGroup(
            index,
            environments,
            plan.seeds,
            plan.metrics,
            places=plan.places,
            max_abs_reward=plan.max_abs_reward,
        )
    except BuildError:
        environments.close()
        raise


def _environments(
    plan: GroupPlan,
    films: Path | None,
    broken_off: str,
    notes: Sequence[Callable[[bool], None]],
) -> VectorEnvironment:
    num_envs = len(plan.places)
    if films is None:
        return build(plan.recipe, plan.back_end, num_envs, idle_before=plan.idle, notes=notes)
    if num_envs != 1:
        raise BuildError(f"expected one environment to film, got {num_envs}")
    if broken_off:
        # Which episodes the learner has counted is not known here: the numbers of films would no
        # longer be those of its returns.
        raise FilmError(f"the films were broken off: {broken_off}")
    return build_filmed(plan.recipe, plan.back_end, films)


def check_together(groups: Sequence[Stepped], assign: Assign) -> None:
    """Raises BuildError for groups of several specs, or with steps that the learner does not take.

    Raises UnusableLinkError if the link that the learner took has no room for its actions.
    """
    for group in groups:
        if difference := groups[0].spec.difference(group.spec):
            raise BuildError(f"expected environments of one spec: {'; '.join(difference)}")
    longest = max(group.longest_message_bytes for group in groups)
    if 0 < assign.max_message_bytes < longest:
        raise BuildError(
            f"expected steps of at most {assign.max_message_bytes} bytes, as the learner takes, "
            f"they would be of {longest}; offer fewer environments, or raise "
            "serving.max_message_bytes"
        )
    if assign.linked:
        require_room([group.action_layout.num_bytes for group in groups])


@contextmanager
def _one_line_refusal(recipe: Recipe) -> Iterator[None]:
    try:
        if atari.is_atari(recipe):
            atari.register()
        yield
    except BuildError:
        raise
    except (Exception, SystemExit) as error:
        reason = extras.describe(error) or f"{one_line(error)}{_hint(recipe.id, error)}"
        raise BuildError(f"cannot build {recipe.id}: {reason}") from error


def _hint(name: str, error: BaseException) -> str:
    """What may have been meant by an id that is not registered; gymnasium guesses some."""
    if game := _OLD_ATARI.fullmatch(name):
        # Names of before gymnasium 1.0: the variants are arguments of ALE/... now.
        return f" An Atari game is named ALE/{game[1]}-v5; or {ADVICE}, as package.module:factory"
    if isinstance(error, gymnasium.error.NameNotFound) and "Did you mean" not in str(error):
        return f" Name an environment of your own as package.module:factory; or {ADVICE}"
    if isinstance(error, gymnasium.error.NamespaceNotFound):
        return f" Nobody imports it here: {ADVICE}, as package.module:factory"
    return ""
