"""Supervised learning of completions: the warm start of a token policy.

A dialogue is a list of turns and completions alternately, each a list of ids.
"""

import functools
import json
import math
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

from envs_server.build import build_one, read_recipe
from envs_server.failures import BuildError, one_line
from envs_server.tokens import TokenGym
from learner.acting.token_groups import training_seeds
from learner.report.json_lines import replace_file
from seedrl import checkpoints, run_files
from seedrl.agents.check import build_agent
from seedrl.agents.grpo import GRPOConfig
from seedrl.checkpoints import encode_spec
from seedrl.config import Config, EnvironmentConfig
from seedrl.config_io import folders_for_children
from seedrl.errors import ConfigError, in_one_line
from seedrl.networks import decoder
from seedrl.networks import weights as published
from seedrl.networks.decoder import DecoderConfig
from seedrl.rl.distributions import Categorical
from seedrl.rl.surrogate import mean_of
from seedrl.specs import EnvSpec, TokensSpec
from seedrl.token_env import TokenEnv
from seedrl.turns import checked_ids
from seedrl.types import Array, Tree
from seedrl.wire.seedrl_pb2 import Environment


def dialogues_of(
    config: Config, number: int, file: Path | None
) -> tuple[EnvSpec, np.ndarray, float]:
    """The environment's spec, dialogues `[N, 2, context] int32`, see `packed`, and their return.

    The dialogues are those of a file, whose return is NaN, or `number` with the environment's own
    solutions, whose mean return it is.
    The environment is built in this process, as `seedrl record` does; it knows the spec, whether or
    not its solutions are learned. Raises BuildError, or ConfigError for dialogues that cannot be
    learned, or if there are none although some are wanted.
    """
    env, context = _built(config.environment), config.agent.network.context
    sizes = env.spec
    found = _lines(file) if file else _solved(env, training_seeds(config.seed, number), context)
    rows, returns = [], []
    for name, (dialogue, total) in found:
        returns.append(total)
        try:
            rows.append(packed(dialogue, sizes, context))
        except ValueError as error:
            raise ConfigError(f"{name}: {error}, got {dialogue!r:.80}") from error
    if number and not rows:
        raise ConfigError(f"--dialogues: expected at least one dialogue in {file}, got none")
    mean_return = sum(returns) / len(returns) if returns else math.nan
    spec = EnvSpec(sizes.turn, sizes)
    return spec, np.array(rows, np.int32).reshape(-1, 2, context), mean_return


def _built(own: EnvironmentConfig) -> TokenEnv:
    sys.path.extend(folders_for_children())
    asked = Environment(id=own.id, arguments=own.arguments, wrappers=own.wrappers)
    # All code that it names is allowed: the command line chooses it itself. Wrappers see rows and
    # rewards, which solutions do not depend on.
    built = build_one(read_recipe(asked, ("*",))).unwrapped
    if not isinstance(built, TokenGym):
        raise BuildError(f"expected an environment of token ids (TokenEnv) as {own.id}")
    return built.env


def _lines(file: Path) -> Iterator[tuple[str, tuple[Any, float]]]:
    name = f"--dialogues: {file}"
    try:
        for number, line in enumerate(file.read_text().splitlines(), 1):
            name = f"--dialogues: {file}, line {number}"
            yield name, (json.loads(line), math.nan)
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{name}: cannot read it: {in_one_line(error)}") from error


def _solved(
    env: TokenEnv, seeds: Sequence[int], longest: int
) -> Iterator[tuple[str, tuple[Any, float]]]:
    for seed in seeds:
        name = f"question of seed {seed}"
        try:
            found = solved(env, seed, longest)
        except NotImplementedError as error:
            raise BuildError(f"{one_line(error)}. hint: pass --dialogues FILE") from error
        except (Exception, SystemExit) as error:  # of the environment
            raise BuildError(f"{name}: {one_line(error)}") from error
        yield name, found


def solved(env: TokenEnv, seed: int, longest: int) -> tuple[list[list[int]], float]:
    """An episode in which every completion is the environment's own solution, and its return.

    It stops once it has more than `longest` ids.
    """
    turn: Sequence[int] | np.ndarray | None = env.reset(seed)
    found: list[list[int]] = []
    total = 0.0
    while turn is not None and sum(map(len, found)) <= longest:
        solution = np.asarray(env.solution(), np.int32)
        found += [np.asarray(turn).tolist(), solution.tolist()]
        turn, reward = env.step(solution)
        total += float(reward)
    return found, total


def packed(dialogue: Any, sizes: TokensSpec, context: int) -> np.ndarray:
    """The ids of a dialogue, and 1 for those of completions, `[2, context] int32`; else zeros.

    Raises ValueError for a dialogue that the environment and the policy could not have.
    """
    if not isinstance(dialogue, list) or not dialogue or len(dialogue) % 2:
        raise ValueError("expected a list of turns and completions alternately")
    for turn, completion in zip(dialogue[::2], dialogue[1::2], strict=True):
        checked_ids(sizes, "turn", turn)
        checked_ids(sizes, "completion", completion)
        if not (turn and completion):
            raise ValueError("expected turns and completions of at least one id")
        # What the policy would never sample, it cannot learn: it stops at the first end.
        is_cut = len(completion) == sizes.longest_completion
        if sizes.end in completion[:-1] or not (is_cut or completion[-1] == sizes.end):
            raise ValueError(f"expected completions that end with {sizes.end}, their only one")
    lengths = list(map(len, dialogue))
    if (size := sum(lengths)) > context:
        raise ValueError(f"expected at most agent.network.context ids, {context}, {size} came")
    row = np.zeros((2, context), np.int32)
    row[:, :size] = np.concatenate(dialogue), np.repeat(np.arange(len(lengths)) % 2, lengths)
    return row


def first_params(config: GRPOConfig, spec: EnvSpec, weights: str | None, seed: int) -> Tree:
    """New parameters, or published ones, see `seedrl.networks.weights.read`.

    Raises ConfigError for such weights, or for an environment that the agent does not fit.
    """
    agent = build_agent(config, spec)
    if weights is not None:
        return published.read(weights, config.network)[1]
    return jax.jit(agent.init)(jax.random.PRNGKey(seed))


def updates(
    config: GRPOConfig,
    params: Tree,
    dialogues: np.ndarray,
    *,
    steps: int,
    batch: int,
    learning_rate: float,
    seed: int,
) -> Iterator[tuple[float, Tree]]:
    """Learns in at most `steps` updates; after each the mean loss of the last ten, and parameters.

    `dialogues [N, 2, context] int32` are drawn with replacement. Adam's learning rate falls to 0
    linearly. With LoRA only that is trained. Consumes the parameters, also those that it has
    returned.
    """
    optimizer = optax.chain(
        optax.clip_by_global_norm(config.max_gradient_norm),
        optax.adam(lambda update: learning_rate * (1 - update / float(steps)), b2=config.adam_b2),
    )
    state, random = jax.jit(optimizer.init)(params), np.random.default_rng(seed)
    gradient = jax.value_and_grad(functools.partial(completion_loss, config.network))

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(params: Tree, state: Tree, dialogues: Array) -> tuple[Tree, Tree, Array]:
        loss, gradients = gradient(params, dialogues)
        deltas, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, deltas), state, loss

    losses: deque[float] = deque(maxlen=10)
    for _ in range(steps):
        rows = random.integers(len(dialogues), size=batch)
        params, state, loss = step(params, state, dialogues[rows])
        losses.append(float(loss))
        yield sum(losses) / len(losses), params


def completion_loss(network: DecoderConfig, params: Tree, dialogues: Array) -> Array:
    """Mean of -log π over the tokens of `dialogues [B, 2, T]` that are the policy's."""
    ids, is_policy = dialogues[:, 0], dialogues[:, 1] > 0
    logits = decoder.unroll(network, decoder.with_frozen(network, params), ids[:, :-1])
    return -mean_of(Categorical(logits).log_probability(ids[:, 1:]), is_policy[:, 1:])


def save(workdir: Path, params: Tree, spec: EnvSpec, config: str) -> Path:
    """Writes a checkpoint that `--init-from WORKDIR` takes; `config`: of the run, as JSON.

    `seedrl evaluate` and `seedrl export` take the folder, too. Raises ConfigError if a parameter is
    infinite or no number.
    """
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(params)):
        raise ConfigError("--step-size: expected one with which parameters stay finite; lower it")
    workdir.mkdir(parents=True, exist_ok=True)
    replace_file(workdir / run_files.CONFIG, f"{config}\n")
    meta = {"config": config, "env_spec": encode_spec(spec), "env_steps": 0}
    return checkpoints.save(workdir / "checkpoints", 0, {"params": params}, meta, keep=1)
