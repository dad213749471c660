"""What a run resumes with: the parts of a checkpoint, checked against the configuration.

And SHA-256 over what a checkpoint holds, by which two runs are known to have learned the same.
"""

import contextlib
import dataclasses
import functools
import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import jax
import numpy as np

from learner.learning.learn_step import LearnerState, initial_state
from seedrl import checkpoints, stored_arrays
from seedrl.agents.check import build_agent
from seedrl.agents.normalization import NormalizedParams
from seedrl.checkpoints import best_directory, saved_spec
from seedrl.config import Config, learning_rate_decay_steps
from seedrl.config_io import changes, difference, to_json
from seedrl.errors import CheckpointError, ConfigError
from seedrl.observations import spec_difference
from seedrl.specs import BoxSpec, EnvSpec
from seedrl.types import Tree

_MOST_DIFFERENCES = 3
# Of differences: the same array, in other heads, is another network.
_OTHER_HEADS = re.compile(r"agent\.network\.(kv_)?heads: ")
# Another class, other heads, or a number with which only a new run starts.
_OTHER_AGENT = re.compile(
    rf"agent\.(\w+\.)*type: |agent\.initial_temperature: |{_OTHER_HEADS.pattern}"
)
_TASK = ("environment.id", "environment.arguments", "environment.wrappers")
# Fields on which it depends what stored experience means, though its arrays have the same shapes.
_EXPERIENCE = (
    *_TASK,
    "agent.group",  # rollouts with the same question
    "replay.priority_exponent",  # of the weights by which sequences are drawn
)
# Fields on which the discounted sums of rewards depend.
_REWARDS = (*_TASK, "agent.gamma")
# The parts of a checkpoint, as the first words of the arrays' names.
PARTS = ("params", "target", "optimizer", "extras", "updates", "key", "replay")


# Another run's checkpoint, and its parameters by path: read at once, as that run may replace it.
Initial = tuple[checkpoints.Checkpoint, Mapping[str, np.ndarray]]


def initial_of(workdir: Path, step: int | None = None) -> Initial:
    """Of another run's newest checkpoint, or its best if it is alone. Raises ConfigError.

    `step`: take only the checkpoint of this update.
    """
    # `workdir`: the run's directory, or that of its best checkpoint, which is then meant.
    run = workdir.absolute().parent.parent
    is_best = workdir.absolute() == best_directory(run)

    def initial(found: checkpoints.Checkpoint) -> Initial:
        return found, stored_arrays.read_all(found.path, ["params"])

    try:
        return checkpoints.read(
            run if is_best else workdir,
            initial,
            step=step,
            is_best=is_best,
            parts=checkpoints.PARAMS,
        )
    except CheckpointError as error:
        raise ConfigError(f"--init-from: {error}") from error


def require_fit(checkpoint: checkpoints.Checkpoint, config: Config) -> None:
    """Refuses, before an env server is waited for, what cannot be restored.

    And what other classes of agent or network have learned, even if their arrays would fit, and
    fewer steps than the run has taken. Raises ConfigError for another configuration,
    CheckpointError for a checkpoint that does not fit its own.
    """
    has_params, has_state = ((checkpoint.path / item).is_dir() for item in ("params", "state"))
    if has_params and not has_state:
        run = checkpoint.path.parent.parent
        raise CheckpointError(
            f"expected a checkpoint with the optimizer's state, to resume training, got only "
            f"parameters in {checkpoint.path}. hint: `seedrl train CONFIG --init-from {run}` "
            "starts a new run from them"
        )
    differences = difference(checkpoint.meta["config"], to_json(config))
    # Before shapes: the arrays may have the same ones.
    if others := [line for line in differences if _OTHER_AGENT.match(line)]:
        raise _misfit(checkpoint, config, others[:1])
    # A run that is over may be started again as it was: it ends as it has ended before.
    if any(line.startswith("learning.total_steps:") for line in differences):
        _require_steps(checkpoint, config)
    # A checkpoint holds the spec of its environment, from which the shapes follow.
    agent = build_agent(config.agent, saved_spec(checkpoint.meta["env_spec"]))
    key = jax.ShapeDtypeStruct((2,), np.uint32)
    state: LearnerState = jax.eval_shape(functools.partial(initial_state, agent), key)
    with naming_fields(checkpoint, config, "agent"):
        stored_arrays.require_fit(checkpoint.path, state._asdict())


def _require_steps(checkpoint: checkpoints.Checkpoint, config: Config) -> None:
    # For a run that shall take another number of steps than before.
    taken, steps = checkpoint.meta["env_steps"], config.learning.total_steps
    if steps <= taken:
        raise ConfigError(
            f"learning.total_steps: expected more than {taken:,}, the environment steps that the "
            f"run in {checkpoint.path.parent.parent} has taken, got {steps:,}"
        )
    # The run would act on, and learn nothing.
    if 0 < (decay := learning_rate_decay_steps(config)) < steps:
        raise ConfigError(
            "agent.learning_rate_decay_steps: expected 0, or at least learning.total_steps "
            f"({steps:,}), because the learning rate is 0 after them, got {decay:,}"
        )


def take_over(
    initial: Initial, params: Tree, config: Config, spec: EnvSpec, *, is_partial: bool
) -> tuple[Tree, str]:
    """Fresh `params` with those of another run in their place; if `is_partial` those that fit.

    Returns a line about both with them. Raises ConfigError if not all fit, or none. Nor may
    observations or actions have had another meaning, which the line names if `is_partial`: the same
    arrays, scaled by other bounds, or one action of 6 where there are now two, of 2 and of 4.
    """
    checkpoint, saved = initial
    fitted, taken, fresh = stored_arrays.fitting(saved, {"params": params})
    # This run's fields are expected, the other way round than for a resume.
    changed = difference(to_json(config), checkpoint.meta["config"])
    meanings = _other_meanings(checkpoint, spec) + list(filter(_OTHER_HEADS.match, changed))
    own, rewards = with_own_rewards(checkpoint, fitted["params"], config)
    if is_partial and taken:
        # The line may be cut at its end.
        text = f"parameters fresh: {_layers(fresh) or 'none'}; taken: {_layers(taken)}"
        return own, "; ".join([*filter(None, [rewards]), text, *meanings])
    differences = stored_arrays.tree_difference(saved, {"params": params}) + meanings
    if differences:
        # What else differs in the agent, such as a learning rate, is no obstacle.
        fields = [line for line in changed if line.startswith("agent.network.")]
        named = dict.fromkeys([*fields, *differences[:_MOST_DIFFERENCES]])
        raise ConfigError(
            f"--init-from: the parameters of {checkpoint.path} do not fit the network of "
            f"this run: {'; '.join(named)}. hint: "
            "--init-from-partial takes those that fit, if any"
        )
    return own, rewards


def _layers(names: list[str]) -> str:
    # `query` of `query/kernel`, and `query/lora` of `query/lora_a`.
    return ", ".join(dict.fromkeys(re.sub(r"(/lora)?[/_][^/]*$", r"\1", name) for name in names))


def _other_meanings(checkpoint: checkpoints.Checkpoint, spec: EnvSpec) -> list[str]:
    # How a network's inputs and outputs differ between two environments. It sees no action mask,
    # and its actions between two bounds are -1 to 1, whatever the bounds.
    saved, mine = saved_spec(checkpoint.meta["env_spec"]).without_mask(), spec.without_mask()
    if isinstance(saved.action, BoxSpec) and isinstance(mine.action, BoxSpec):
        are_bounded_alike = np.array_equal(saved.action.is_bounded, mine.action.is_bounded)
        saved = dataclasses.replace(saved, action=mine.action) if are_bounded_alike else saved
    return spec_difference(mine, saved)


@contextlib.contextmanager
def naming_fields(
    checkpoint: checkpoints.Checkpoint, config: Config, *sections: str
) -> Iterator[None]:
    """Inside, an error is a ConfigError that names the changed fields of `sections`, if any.

    Else it is a CheckpointError.
    """
    try:
        yield
    # What is restored may be anybody's: of any type, without any key.
    except (CheckpointError, ValueError, TypeError, LookupError, AttributeError) as error:
        changed = difference(checkpoint.meta["config"], to_json(config))
        # What the user has changed explains more than the shapes of arrays.
        if fields := [line for line in changed if line.startswith(sections)]:
            raise _misfit(checkpoint, config, fields) from error
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{checkpoint.path}: {error}; restore the config") from error


def _misfit(checkpoint: checkpoints.Checkpoint, config: Config, fields: list[str]) -> ConfigError:
    run = checkpoint.path.parent.parent
    return ConfigError(
        f"{checkpoint.path} does not fit this config: {'; '.join(fields)}; `seedrl resume {run}` "
        f"takes the run's own, a new --workdir starts another run, with `--init-from {run} "
        "--init-from-partial` from those of its parameters that fit"
    )


def is_other_task(checkpoint: checkpoints.Checkpoint, config: Config) -> bool:
    """True if the scores of the checkpoint's run are of another environment."""
    return bool(_changed(checkpoint, config, _TASK))


def other_experience(checkpoint: checkpoints.Checkpoint, config: Config) -> str:
    """The changed fields because of which a saved replay must not be learned from; "" if none."""
    return _listed(_changed(checkpoint, config, _EXPERIENCE))


def with_own_rewards(
    checkpoint: checkpoints.Checkpoint, params: Tree, config: Config
) -> tuple[Tree, str]:
    """`params` of a checkpoint, without statistics of other rewards; and a line about these.

    Divided by them, the rewards of this run could vanish.
    """
    changed = _changed(checkpoint, config, _REWARDS)
    if not (changed and isinstance(params, NormalizedParams) and params.returns):
        return params, ""
    fresh = jax.tree.map(np.zeros_like, params.returns)  # as before the first batch
    text = f"statistics of rewards start again, because they were of {_listed(changed)}"
    return params._replace(returns=fresh), text


def _listed(fields: Mapping[str, str]) -> str:
    return ", ".join(f"{path} {value}" for path, value in fields.items())


def _changed(
    checkpoint: checkpoints.Checkpoint, config: Config, paths: tuple[str, ...]
) -> dict[str, str]:
    # Those of the fields that the checkpoint's run had otherwise, with its values.
    changed = changes(checkpoint.meta["config"], to_json(config))
    return {path: changed[path][0] for path in paths if path in changed}


def digests(arrays: Mapping[str, np.ndarray]) -> dict[str, str]:
    """SHA-256 of each part that `arrays` has, and of `all` together. Raises CheckpointError."""
    # It covers names, shapes, dtypes and every byte. An array of no known part is an error: a
    # digest that left it out would be worth nothing.
    parts: dict[str, list[str]] = {part: [] for part in PARTS}
    for name in sorted(arrays):
        part = stored_arrays.tree_of(name)
        if part not in parts:
            raise CheckpointError(f"expected an array of {', '.join(PARTS)}, got {name}")
        array = np.asarray(arrays[name])
        content = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
        parts[part].append(f"{name} {array.dtype} {array.shape} {content}\n")
    lines = {part: "".join(entries) for part, entries in parts.items() if entries}
    lines["all"] = "".join(lines.values())
    return {part: hashlib.sha256(text.encode()).hexdigest() for part, text in lines.items()}
