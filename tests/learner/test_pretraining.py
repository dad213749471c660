"""Pretraining: from published weights, and with LoRA."""

import dataclasses
import itertools
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from envs_server.envs import token_tasks
from envs_server.failures import BuildError
from learner.acting.token_groups import training_seeds
from learner.cli.arguments import parse
from learner.cli.main import main
from learner.cli.pretrain import train_words
from learner.cli.train import TrainOptions
from learner.pretraining import (
    dialogues_of,
    first_params,
    packed,
    save,
    solved,
    updates,
)
from seedrl import config_io
from seedrl.agents.check import build_agent
from seedrl.agents.grpo import GRPOConfig
from seedrl.config import Config, EnvironmentConfig
from seedrl.config_io import to_json
from seedrl.errors import ConfigError
from seedrl.fields import with_fields
from seedrl.networks import weights
from seedrl.networks.decoder import DecoderConfig
from seedrl.replay.group_queue import GroupQueueConfig
from seedrl.specs import EnvSpec, TokensSpec
from seedrl.token_env import BytesVocabulary, TokenEnv
from tests.gated import all_but
from tests.seedrl.networks.decoder_oracle import random_params

NETWORK = DecoderConfig(vocabulary=7, layers=1, width=8, heads=2, kv_heads=1, ffn=6, context=8)
TOKENS = TokensSpec(vocabulary=7, longest_turn=3, longest_completion=3, end=6)
SPEC = EnvSpec(TOKENS.turn, TOKENS)
IDS = np.random.default_rng(0).integers(0, 7, (5, 8), np.int32)
DIALOGUES = np.stack([IDS, np.ones_like(IDS)], axis=1)


def after(source: Path, *, most: int = 30, steps: int = 30, **changes: Any) -> Any:
    config = GRPOConfig(network=dataclasses.replace(NETWORK, **changes))
    params = first_params(config, SPEC, str(source), 0)
    learned = updates(config, params, DIALOGUES, steps=steps, batch=4, learning_rate=0.01, seed=0)
    return next(itertools.islice(learned, most - 1, None))[1]


def test_it_starts_from_published_weights_and_trains_lora_only(
    tmp_path: Path,
) -> None:
    params = random_params(NETWORK)
    weights.write(tmp_path, NETWORK, params)
    trained = after(tmp_path, most=2, steps=10**10, lora_rank=2, context=12)
    published = {jax.tree_util.keystr(path): x for path, x in jax.tree.leaves_with_path(params)}
    for path, new in jax.tree.leaves_with_path(trained):
        if path[-1].key == "lora_b":  # zeros at first
            assert new.any(), path
        elif path[-1].key != "lora_a" and path[0].key != "value":
            np.testing.assert_array_equal(new, published.pop(jax.tree_util.keystr(path)))
    assert len(published) == 2  # the value head has no part in a likelihood
    with pytest.raises(ConfigError, match=r"network\.width"):
        after(tmp_path, width=16)


def test_a_run_s_network_is_exported_with_lora_merged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    network = dataclasses.replace(NETWORK, lora_rank=2)
    config = Config(
        environment=EnvironmentConfig(id="envs_server.envs.token_tasks:reverse"),
        agent=GRPOConfig(network=network),
        replay=GroupQueueConfig(),
    )
    params = random_params(network)
    save(tmp_path, params, SPEC, to_json(config))
    words = ["export", str(tmp_path), "--safetensors", str(tmp_path / "out")]
    assert main(words) == 0
    found_config, found = weights.read(tmp_path / "out")
    assert found_config == NETWORK
    settings = json.loads((tmp_path / "out" / "config.json").read_text())
    assert settings["eos_token_id"] == TOKENS.end
    query = params["layers"]["query"]
    expected = query["kernel"] + 8 * query["lora_a"] @ query["lora_b"]
    np.testing.assert_allclose(found["layers"]["query"]["kernel"], expected, atol=1e-5)
    assert main(words) == 2 and "--safetensors" in capsys.readouterr().err
    assert main([*words, "--force"]) == 0


def test_parameters_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    params = random_params(NETWORK)
    params["norm"]["scale"][2] = np.inf
    with pytest.raises(ConfigError, match="--step-size"):
        save(tmp_path / "warm", params, SPEC, "")
    assert not (tmp_path / "warm").exists()


@pytest.mark.parametrize(
    ("line", "named"),
    {
        '{"a": 1}': "turns and completions",
        "[]": "turns and completions",
        "[[0, 1, 6]]": "turns and completions",
        "[[], [6]]": "turns and completions",
        "[[1], []]": "turns and completions",
        "[0, 6]": "turn: expected a list of ids",
        '["a", [6]]': "turn: expected a list of ids",
        "[[[1]], [6]]": "turn: expected a list of ids",
        "[[0], [7, 6]]": "completion: expected ids 0 to 6",
        "[[-1], [6]]": "turn: expected ids 0 to 6",
        "[[true], [6]]": "turn: expected a list of ids",
        "[[1.0], [6]]": "turn: expected a list of ids",
        "[[1, 1, 1, 1], [6]]": "turn: expected at most 3 ids, got 4",
        "[[1], [6], [1], [1, 1, 1, 6]]": "completion: expected at most 3 ids, got 4",
        "[[1], [0, 1]]": "that end with 6",
        "[[1], [0, 6, 6]]": "that end with 6",
        "[[1], [6], [1, 2], [0, 6], [1, 2], [6]]": "agent.network.context ids, 8, 9 came",
    }.items(),
)
def test_a_dialogue_that_cannot_be_had_is_not_learned(line: str, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        packed(json.loads(line), TOKENS, 8)


@pytest.mark.parametrize("line", ["", "[" * 100_000, "[[0], [1"])
def test_a_line_that_is_no_json_is_named(line: str, tmp_path: Path) -> None:
    config, file = config_io.load("reverse_grpo"), tmp_path / "dialogues.jsonl"
    file.write_text(f"[[0, 27], [0, 27]]\n{line}\n")
    with pytest.raises(ConfigError, match=r"^--dialogues: .*dialogues.jsonl, line 2: "):
        dialogues_of(config, 1, file)


@pytest.mark.parametrize(
    "line", ["[[1, 2, 6], [0, 6]]", "[[1], [0, 1, 2]]", "[[6], [6], [1], [6]]"]
)
def test_a_completion_ends_with_the_end_or_is_cut(line: str) -> None:
    dialogue = json.loads(line)
    ids, is_policy = packed(dialogue, TOKENS, 8)
    size = sum(map(len, dialogue))
    assert ids.tolist() == [*itertools.chain(*dialogue), *[0] * (8 - size)]
    assert ids[is_policy > 0].tolist() == [*itertools.chain(*dialogue[1::2])]


@pytest.mark.parametrize(
    "name", all_but(["reverse_grpo"], ["reverse_grpo", "addition_grpo", "guess_grpo"])
)
def test_a_bundled_configuration_has_room_for_its_solutions(name: str) -> None:
    config: Config = config_io.load(name)
    factory = getattr(token_tasks, config.environment.id.rpartition(":")[2])
    env: TokenEnv = factory(**json.loads(config.environment.arguments))
    build_agent(config.agent, EnvSpec(env.spec.turn, env.spec))
    lengths = [sum(map(len, solved(env, seed, 1000)[0])) for seed in training_seeds(0, 60)]
    # And little more: each token of the context costs time in every tick.
    assert max(lengths) < config.agent.network.context <= max(lengths) + 5


@pytest.mark.gate  # the other configurations: above
def test_the_configuration_of_smollm2_fits_its_environment() -> None:
    config: Config = config_io.load("smollm2_chain_sum_grpo")
    arguments = json.loads(config.environment.arguments)
    sizes = arguments["longest_turn"], arguments["longest_completion"]
    tokens = TokensSpec(49152, *sizes, end=2)
    build_agent(config.agent, EnvSpec(tokens.turn, tokens))
    assert config.agent.network.context == sum(sizes)


def test_the_command_that_continues_has_the_fields_that_were_typed() -> None:
    typed = {"environment.metrics": (), "agent.network.context": 17, "seed": 3}
    config = with_fields(config_io.load("reverse_grpo"), typed)
    words = train_words("reverse_grpo", config, Path("runs/warm"))
    _, parsed = parse(TrainOptions, words[2:], prog="seedrl train")
    assert parsed == config and words[-2:] == ["--init-from", "runs/warm"]
    plain = train_words("reverse_grpo", config_io.load("reverse_grpo"), Path("w"))
    assert plain == ["seedrl", "train", "reverse_grpo", "--init-from", "w"]


class Solved(TokenEnv):
    """`answer` decides the solution; without `turns` it never ends."""

    tokens = BytesVocabulary()
    longest_turn, longest_completion = 1, 2

    def __init__(self, answer: list[int] | None = None, turns: int = 0) -> None:
        self._answer, self._turns = answer, turns

    def reset(self, seed: int) -> list[int]:
        self._left, self._number = self._turns, seed % 7
        return [self._number]

    def step(self, ids: np.ndarray) -> tuple[list[int] | None, float]:
        self._left, self._number = self._left - 1, self._number + 1
        return [self._number] if self._left else None, 0.25

    def solution(self) -> list[int]:
        if self._answer is None:
            raise LookupError("no answer is known")
        if not self._answer:
            raise SystemExit(3)
        return self._answer


def _dialogues(wrappers: tuple[str, ...] = (), **arguments: Any) -> np.ndarray:
    changes = {
        "environment.id": f"{__name__}:Solved",
        "environment.arguments": json.dumps(arguments),
        "environment.wrappers": wrappers,
    }
    config = with_fields(config_io.load("reverse_grpo"), changes)
    spec, dialogues, mean_return = dialogues_of(config, 2, None)
    assert spec == EnvSpec(Solved().spec.turn, Solved().spec)
    assert mean_return == 0.5  # two turns
    return dialogues


def test_solutions_of_an_environment_that_never_ends_stop() -> None:
    assert solved(Solved([1, 256]), 3, 5) == ([[3], [1, 256], [4], [1, 256]], 0.5)


def test_solutions_do_not_depend_on_wrappers() -> None:
    plain = _dialogues(answer=[1, 256], turns=2)
    assert plain.shape == (2, 2, 16) and plain[:, 1].tolist() == [[0, 1, 1, 0, 1, 1, *[0] * 10]] * 2
    wrapped = _dialogues(("gymnasium.wrappers:RecordEpisodeStatistics",), answer=[1, 256], turns=2)
    np.testing.assert_array_equal(plain, wrapped)


@pytest.mark.parametrize(
    ("answer", "named"), [(None, "LookupError: no answer is known"), ([], "SystemExit: 3")]
)
def test_an_environment_that_fails_with_a_solution_is_named(answer: Any, named: str) -> None:
    with pytest.raises(BuildError, match=rf"^question of seed \d+: {named}"):
        _dialogues(answer=answer)


def test_without_solutions_the_other_way_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Solved, "solution")
    with pytest.raises(BuildError, match="Solved has no method solution.*--dialogues"):
        _dialogues()
