"""Supervised learning of completions: the warm start of a token policy."""

import functools
from collections import deque
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import optax

from seedrl import checkpoints, run_files
from seedrl.agents.check import build_agent
from seedrl.agents.grpo import GRPOConfig
from seedrl.checkpoints import encode_spec
from seedrl.errors import ConfigError
from seedrl.networks import decoder
from seedrl.networks import weights as published
from seedrl.networks.decoder import DecoderConfig
from seedrl.rl import tokens
from seedrl.rl.surrogate import mean_of
from seedrl.specs import EnvSpec
from seedrl.types import Array, Tree


def pretrained(
    config: GRPOConfig,
    spec: EnvSpec,
    ids: np.ndarray,
    is_policy: np.ndarray,
    *,
    steps: int,
    batch: int,
    learning_rate: float,
    seed: int,
    weights: str | None = None,
    goes_on: Callable[[int, float], bool] = lambda number, loss: True,
) -> Tree:
    """Parameters after at most `steps` updates.

    Dialogues are drawn with replacement. Adam's learning rate falls to 0 linearly. With LoRA only
    that is trained.

    Args:
      ids: `[N, T] int32`.
      is_policy: `[N, T] bool`, tokens to be learned.
      weights: see `seedrl.networks.weights.read`; by default parameters are new.
      goes_on: gets the number of each update and the mean loss of the last ten; learning ends once
        it returns False.

    Raises ConfigError for an environment that the agent does not fit, for such weights, or if a
    parameter becomes infinite or no number.
    """
    agent = build_agent(config, spec)
    if weights is None:
        params = jax.jit(agent.init)(jax.random.PRNGKey(seed))
    else:
        _, params = published.read(weights, config.network)
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
    for number in range(1, steps + 1):
        rows = random.integers(len(ids), size=batch)
        params, state, loss = step(params, state, ids[rows], is_policy[rows])
        losses.append(float(loss))
        if not goes_on(number, sum(losses) / len(losses)):
            break
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(params)):
        raise ConfigError(
            f"--step-size: expected one with which parameters stay finite, got {learning_rate:g}"
        )
    return params


def completion_loss(network: DecoderConfig, params: Tree, ids: Array, is_policy: Array) -> Array:
    """Mean of -log π over the tokens `[B, T]` that are the policy's, `[] float32`."""
    logits = decoder.unroll(network, decoder.with_frozen(network, params), ids[:, :-1])
    return -mean_of(tokens.log_probs(logits, ids[:, 1:]), is_policy[:, 1:])


def save(workdir: Path, params: Tree, spec: EnvSpec, config: str) -> Path:
    """Writes a checkpoint that `--init-from WORKDIR` takes; `config`: of the run, as JSON.

    `seedrl evaluate` and `seedrl export` take the folder, too.
    """
    workdir.mkdir(parents=True, exist_ok=True)
    (workdir / run_files.CONFIG).write_text(f"{config}\n")
    meta = {"config": config, "env_spec": encode_spec(spec), "env_steps": 0}
    return checkpoints.save(workdir / "checkpoints", 0, {"params": params}, meta, keep=1)
