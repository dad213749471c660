"""Supervised learning of completions: the warm start of a token policy.

A dialogue is a list of turns and completions alternately, each a list of ids.
"""

import functools
import json
import os
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from envs_server.solutions import played
from learner.acting.token_groups import training_seeds
from seedrl import checkpoints, run_files
from seedrl.agents.check import build_agent
from seedrl.agents.grpo import GRPOConfig
from seedrl.checkpoints import encode_spec
from seedrl.config import Config
from seedrl.config_io import path_for_children
from seedrl.errors import ConfigError, in_one_line
from seedrl.networks import decoder
from seedrl.networks import weights as published
from seedrl.networks.decoder import DecoderConfig
from seedrl.rl.distributions import Categorical
from seedrl.rl.surrogate import mean_of
from seedrl.specs import EnvSpec, TokensSpec
from seedrl.types import Array, Tree
from seedrl.wire.seedrl_pb2 import Environment


class Dialogues(NamedTuple):
    """N dialogues, each padded at its end."""

    ids: np.ndarray  # `[N, context] int32`
    is_policy: np.ndarray  # `[N, context] bool`, tokens of completions


def dialogues_of(config: Config, number: int, file: Path | None) -> tuple[TokensSpec, Dialogues]:
    """Tokens of the environment, and dialogues: of a file, or `number` with its solutions.

    The environment is built in this process, as `seedrl record` does; it knows the spec, whether or
    not its solutions are learned. Raises ConfigError for dialogues that cannot be learned, or if
    there are none although some are wanted.
    """
    own, context = config.environment, config.agent.network.context
    environment = Environment(id=own.id, arguments=own.arguments, wrappers=own.wrappers)
    sys.path.extend(path_for_children().split(os.pathsep))
    found: Iterable[Any]
    seeds, source = training_seeds(config.seed, number), "solutions of the environment"
    sizes, found = played(environment, seeds if file is None else (), context)
    if file is not None:
        source = f"--dialogues: {file}"
        try:
            found = map(_parsed, file.read_text().splitlines())
        except (OSError, ValueError) as error:
            raise ConfigError(f"{source}: cannot read it: {in_one_line(error)}") from error
    rows = []
    for place, dialogue in enumerate(found, 1):
        try:
            rows.append(packed(dialogue, sizes, context))
        except ValueError as error:
            raise ConfigError(f"{source}, line {place}: {error}, got {dialogue!r:.80}") from error
    if number and not rows:
        raise ConfigError(f"{source}: expected at least one dialogue, got none")
    each = np.array(rows, np.int32).reshape(-1, 2, context)
    return sizes, Dialogues(each[:, 0], each[:, 1] > 0)


def _parsed(line: str) -> Any:
    """What a line of JSON holds; a text if it is none, which is no dialogue."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return line


def packed(dialogue: Any, sizes: TokensSpec, context: int) -> np.ndarray:
    """The ids of a dialogue, and 1 for those of completions, `[2, context] int32`; else zeros.

    Raises ValueError for a dialogue that the environment and the policy could not have.
    """
    is_right = isinstance(dialogue, list) and len(dialogue) >= 2 and len(dialogue) % 2 == 0
    is_right = is_right and all(isinstance(ids, list) and ids for ids in dialogue)
    ids = [each for part in dialogue for each in part] if is_right else [-1]
    if not all(type(each) is int and 0 <= each < sizes.vocabulary for each in ids):
        raise ValueError(
            "expected a list of turns and completions alternately, each a list of ids 0 to "
            f"{sizes.vocabulary - 1}"
        )
    for turn, completion in zip(dialogue[::2], dialogue[1::2], strict=True):
        for name, part in (("turn", turn), ("completion", completion)):
            if len(part) > (longest := getattr(sizes, f"longest_{name}")):
                raise ValueError(f"expected at most {longest} ids of a {name}, {len(part)} came")
        # What the policy would never sample, it cannot learn: it stops at the first end.
        is_cut = len(completion) == sizes.longest_completion
        if sizes.end in completion[:-1] or not (is_cut or completion[-1] == sizes.end):
            raise ValueError(f"expected completions that end with {sizes.end}, their only one")
    if len(ids) > context:
        raise ValueError(f"expected at most agent.network.context ids, {context}, {len(ids)} came")
    row = np.zeros((2, context), np.int32)
    lengths = list(map(len, dialogue))
    row[:, : len(ids)] = ids, np.repeat(np.arange(len(lengths)) % 2, lengths)
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
    dialogues: Dialogues,
    *,
    steps: int,
    batch: int,
    learning_rate: float,
    seed: int,
) -> Iterator[tuple[float, Tree]]:
    """Learns in at most `steps` updates; after each the mean loss of the last ten, and parameters.

    Dialogues are drawn with replacement. Adam's learning rate falls to 0 linearly. With LoRA only
    that is trained. Consumes the parameters, also those that it has returned.
    """
    optimizer = optax.chain(
        optax.clip_by_global_norm(config.max_gradient_norm),
        optax.adam(lambda update: learning_rate * (1 - update / float(steps)), b2=config.adam_b2),
    )
    state, random = jax.jit(optimizer.init)(params), np.random.default_rng(seed)
    gradient = jax.value_and_grad(functools.partial(completion_loss, config.network))

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(params: Tree, state: Tree, ids: Array, is_policy: Array) -> tuple[Tree, Tree, Array]:
        loss, gradients = gradient(params, ids, is_policy)
        deltas, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, deltas), state, loss

    losses: deque[float] = deque(maxlen=10)
    for _ in range(steps):
        rows = random.integers(len(dialogues.ids), size=batch)
        own = dialogues.ids[rows], dialogues.is_policy[rows]
        params, state, loss = step(params, state, *own)
        losses.append(float(loss))
        yield sum(losses) / len(losses), params


def completion_loss(network: DecoderConfig, params: Tree, ids: Array, is_policy: Array) -> Array:
    """Mean of -log π over the tokens `[B, T]` that are the policy's, `[] float32`."""
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
    (workdir / run_files.CONFIG).write_text(f"{config}\n")
    meta = {"config": config, "env_spec": encode_spec(spec), "env_steps": 0}
    return checkpoints.save(workdir / "checkpoints", 0, {"params": params}, meta, keep=1)
