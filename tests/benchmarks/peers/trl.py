"""GRPO on words to be reversed, beside TRL's GRPOTrainer: seconds to 90 % right, and tokens/s.

Each round is another seed. Both start from one warm start, and have the same questions (of other
seeds), network, group, batch, optimizer, clipping and temperature, and no KL; they sample and
learn on the same cores. Their torch has one thread or one for each core, whichever generates more
tokens a second in a round. The exported weights must give theirs our logits.

Theirs differs where its library does: it is synchronous and in one process, has the words as text,
rewards them itself, and divides the loss by all tokens, not by those of groups with spread.
Evaluation, 200 held-out words every 2,560 completions on both sides, is left out of theirs. Ours
has it beside acting and learning, so it takes some of the time. Of ours, programs were compiled
before.
"""

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from envs_server.envs.token_tasks import reverse
from learner.extras.bench.measuring import Pace, Result, interleave
from learner.report.stages import num_cores
from seedrl import config_io
from seedrl.config import Config
from seedrl.fields import with_fields
from seedrl.networks import decoder, weights
from seedrl.token_env import TokenEnv
from seedrl.types import Tree
from tests.benchmarks.ended_runs import rounds, train, warm_start
from tests.benchmarks.peers import virtual_environment
from tests.benchmarks.peers.peer_process import PeerProcess

_CONFIG = "reverse_grpo"
_TARGET = 0.9
_ROUND_UPDATES = 5
_WARM_UP_STEPS = 2_560
# A loss of 0.3, where the config's own warm start ends, is too near to the target to tell.
_UNTIL_LOSS = 0.4
_FIELDS = {
    "evaluation.interval_steps": _ROUND_UPDATES * 512,
    "evaluation.episodes": 200,
    "evaluation.target_return": _TARGET,
    "learning.total_steps": 200_000,
    "logging.interval_seconds": 1.0,
}
_FLAGS = [f"--{name.replace('_', '-')}={value}" for name, value in _FIELDS.items()]
# Of questions that theirs is evaluated on.
_HELD_OUT_SEED = 2**30
_PATIENCE_SECONDS = 3600.0
_LARGEST_DIFFERENCE = 1e-4  # of any logit


class Trained(NamedTuple):
    """A run up to the first round of evaluation with 90 % right answers.

    Attributes:
      seconds: since the start of the process.
      training_seconds: since the end of the round before training.
      completions: sampled in training.
      tokens_per_second: sampled in training, and learned from, since the round before training.
    """

    seconds: float
    training_seconds: float
    completions: float
    tokens_per_second: float


# Name, unit, field of `Trained`, target, and whether less is better.
_FIGURES = (
    ("seconds of training", "s", "training_seconds", 1.0, True),
    ("seconds from process start", "s", "seconds", 1.0, True),
    ("completions", "", "completions", None, True),
    ("tokens/s generated and learned", "tokens/s", "tokens_per_second", 1.0, False),
)


def run(pace: Pace, venvs: Path) -> Iterator[Result]:
    """Trains both once a round; the results, all from the same runs."""
    interpreter = virtual_environment.python("trl", venvs)
    differences: list[float] = []
    runs: dict[str, list[Trained]] = {"ours": [], "theirs": []}
    with tempfile.TemporaryDirectory(prefix="seedrl-trl-") as name:
        folders = [Path(name) / str(seed) for seed in range(pace.rounds)]
        params = [
            warm_start(_CONFIG, seed, until_loss=_UNTIL_LOSS, workdir=folder)
            for seed, folder in enumerate(folders)
        ]

        def measure(side: str) -> Trained:
            seed = len(runs[side])
            if side == "ours":
                found = _ours(seed, folders[seed])
            else:
                config = with_fields(config_io.load(_CONFIG), {**_FIELDS, "seed": seed})
                tried = [
                    _theirs(interpreter, config, params[seed], folders[seed], threads)
                    for threads in sorted({1, num_cores()})
                ]
                differences.extend(difference for _, difference in tried)
                found = max((each for each, _ in tried), key=lambda each: each.tokens_per_second)
            runs[side].append(found)
            return found

        warm_up = f"--learning.total-steps={_WARM_UP_STEPS}"
        train(_CONFIG, 0, *_FLAGS, warm_up, "--init-from", str(folders[0]))
        interleave({side: partial(measure, side) for side in runs}, pace.rounds)
    for figure, unit, field, target, is_cost in _FIGURES:
        yield Result(
            name=f"{_CONFIG} to {100 * _TARGET:g} % right: {figure}",
            unit=unit,
            limit_name="TRL GRPOTrainer",
            ours=tuple(getattr(each, field) for each in runs["ours"]),
            limits=tuple(getattr(each, field) for each in runs["theirs"]),
            target=target,
            is_cost=is_cost,
            conditions={"warm start": f"loss {_UNTIL_LOSS:g}", "batch": "512 completions"},
            details={"largest difference of logits": max(differences)},
        )


def _ours(seed: int, warm: Path) -> Trained:
    started = time.time()
    lines = train(_CONFIG, seed, *_FLAGS, "--init-from", str(warm))
    played = rounds(lines)
    reached = next(each for each in played if each["mean_return"] >= _TARGET)
    first, end = played[0]["time_seconds"], reached["time_seconds"]
    counts = [
        (each["time_seconds"], each["generated_tokens"])
        for each in lines
        if each["kind"] == "metrics" and first <= each["time_seconds"] <= end
    ]
    (start, before), (last, after) = counts[0], counts[-1]
    return Trained(
        end - started, end - first, reached["env_steps"], (after - before) / (last - start)
    )


def _theirs(
    interpreter: Path, config: Config, params: Tree, folder: Path, threads: int
) -> tuple[Trained, float]:
    agent, env = config.agent, reverse(**json.loads(config.environment.arguments))
    weights.write(folder / "huggingface", agent.network, params)

    def questions(first: int, number: int) -> list[str]:
        return [env.tokens.decode(env.reset(first + seed)) for seed in range(number)]

    held_out = questions(_HELD_OUT_SEED, config.evaluation.episodes)
    ids = np.stack([env.tokens.encode(question) for question in held_out])
    task = {
        "weights": str(folder / "huggingface"),
        "alphabet": env.tokens.decode(np.arange(env.tokens.end)),
        "threads": threads,
        # Every run has others.
        "questions": questions(
            config.seed * 2**20, config.learning.total_steps // config.agent.group
        ),
        "held_out": held_out,
        "round_updates": _ROUND_UPDATES,
        "target": _TARGET,
        "longest_completion": env.longest_completion,
        "settings": _settings(config, env),
    }
    started = time.time()
    command = (interpreter, virtual_environment.PROGRAMS / "trl_grpo.py")
    with PeerProcess(command, patience_seconds=_PATIENCE_SECONDS) as process:
        answer = process.ask(started=started, **task)
    logits = jax.jit(decoder.unroll, static_argnums=0)(agent.network, params, ids)
    difference = float(np.abs(np.asarray(logits) - np.asarray(answer["logits"])).max())
    if difference > _LARGEST_DIFFERENCE:
        raise RuntimeError(f"expected the logits of the exported weights, off by {difference:g}")
    first, last = answer["lines"][0], answer["lines"][-1]
    if last["score"] < _TARGET:
        raise RuntimeError(f"expected a score of {_TARGET:g}, got {answer['lines']}")
    end = last["elapsed_seconds"]
    seconds = end - first["elapsed_seconds"]
    trained = Trained(end, seconds, last["completions"], last["tokens"] / seconds)
    # A run that is lost later need not take this one with it.
    print(f"theirs, seed {config.seed}, {threads} threads", trained, file=sys.stderr, flush=True)
    return trained, difference


def _settings(config: Config, env: TokenEnv) -> dict[str, Any]:
    """Fields of their GRPOConfig: ours by their names, then what costs them least time."""
    agent, batch = config.agent, config.learning.batch_sequences
    return {
        "seed": config.seed,
        "max_steps": config.learning.total_steps // batch,
        "per_device_train_batch_size": batch,
        "num_generations": agent.group,
        "max_completion_length": env.longest_completion,
        "temperature": agent.temperature,
        "epsilon": agent.clip_low,
        "epsilon_high": agent.clip_high,
        "beta": agent.kl,
        "num_iterations": 1,
        "mask_truncated_completions": not agent.train_truncated,
        "learning_rate": agent.learning_rate,
        "lr_scheduler_type": "constant_with_warmup",
        "warmup_steps": agent.warmup_updates,
        "adam_beta2": agent.adam_b2,
        "weight_decay": 0.0,
        "max_grad_norm": agent.max_gradient_norm,
        "shuffle_dataset": False,
        "use_cpu": True,
        "bf16": False,
        # By default activations are computed twice, to save memory.
        "gradient_checkpointing": False,
        "dataloader_pin_memory": False,
        "logging_strategy": "no",
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
    }
