"""Command lines: what they set, what their help says, and how mistakes are reported."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import pytest

from learner.cli.arguments import parse, parse_flags
from learner.cli.train import LearnerOptions, TrainOptions
from seedrl import config_io
from seedrl.config_io import difference
from seedrl.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a test.

    Attributes:
      workdir: some folder.
      number: some number.
    """

    workdir: Path | None = None
    number: int = 3


def mistake(*flags: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(Options, ["cartpole_r2d2", *flags], prog="test")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_without_flags_the_config_is_that_of_the_file() -> None:
    options, config = parse(Options, ["cartpole_r2d2"], prog="test")
    assert options == Options()
    assert config == config_io.load("cartpole_r2d2")


def test_flags_override_fields_at_every_depth() -> None:
    flags = "--number 4 --seed 5 --learning.batch-sequences 48 --agent.network.core-size 16"
    flags += " --agent.network.torso-sizes 8 9 --evaluation.target-return None"
    options, config = parse(Options, ["cartpole_r2d2", *flags.split()], prog="test")
    assert options.number == 4
    lines = difference(config_io.load("cartpole_r2d2"), config)
    assert [line.split(":")[0] for line in lines] == [
        "agent.network.torso_sizes",
        "agent.network.core_size",
        "learning.batch_sequences",
        "evaluation.target_return",
        "seed",
    ]
    assert config.agent.network.torso_sizes == (8, 9)


def test_a_flag_that_must_not_miss_may_stand_behind_others() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Needing:
        """Options of a test.

        Attributes:
          workdir: some folder.
        """

        workdir: Path

    words = ["cartpole_r2d2", "--seed", "5", "--workdir", "w"]
    assert parse(Needing, words, prog="test").options == Needing(workdir=Path("w"))


def test_of_a_flag_given_twice_the_last_one_holds() -> None:
    _, config = parse(Options, ["cartpole_r2d2", "--seed", "1", "--seed", "2"], prog="test")
    assert config.seed == 2


def test_an_own_agent_has_flags_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text(
        "from dataclasses import dataclass\n"
        "from seedrl.config import Config, EnvironmentConfig\n"
        "@dataclass(frozen=True)\n"
        "class Agent:\n"
        "  depth: int = 2\n"
        "def config(): return Config(environment=EnvironmentConfig(id='x'), agent=Agent())\n"
    )
    _, config = parse(Options, [str(path), "--agent.depth", "5"], prog="test")
    assert config.agent.depth == 5


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--agent.unrol 40", "unknown option --agent.unrol; did you mean --agent.unroll?"),
        ("--agent.unrol=40", "unknown option --agent.unrol=40; did you mean --agent.unroll?"),
        ("--agent.unrol=4000000000000000000000", "did you mean --agent.unroll?"),
        ("--nunber 4", "unknown option --nunber; did you mean --number?"),
        ("--unroll 40", "unknown option --unroll; did you mean --agent.unroll?"),
        ("--qwertyuiop 1", "unknown option --qwertyuiop (see"),
        ("--agent.priority-mix 1", "agent.priority_mix is now agent.priority_eta"),
        ("40", "unknown option 40"),
        ("--agent.unroll many", "Error parsing --agent.unroll: expected INT, got 'many' (see"),
        ("--agent.learning-rate x", "--agent.learning-rate: expected FLOAT, got 'x' (see"),
        (
            "--agent.network.torso-sizes 64,64",
            "--agent.network.torso-sizes: expected values with spaces between them, such as "
            "--agent.network.torso-sizes 64 64, got '64,64' (see",
        ),
        ("--agent.network.torso-sizes [64, 32]", "such as --agent.network.torso-sizes 64 32, got"),
        (
            "--agent.network.torso-sizes 64 x",
            "--agent.network.torso-sizes: expected values with spaces between them, got '64 x'",
        ),
        (
            "--agent.network.dueling False --number 1",
            "--agent.network.dueling: expected no value, got 'False'; a bool is "
            "--agent.network.dueling for true, --agent.network.no-dueling for false (see",
        ),
        ("--checkpoint.no_replay=true", "is --checkpoint.replay for true, --checkpoint.no-replay"),
        ("--agent.network.dueling right", "unknown option right"),
        ("--evaluation.target-return none", "expected None or FLOAT, got 'none'; did you mean"),
        ("--agent.unroll 0", "agent.unroll: expected at least 1, got 0"),
        ("--agent.unroll", "--agent.unroll"),
        ("--agent.network.core rnn", "invalid choice 'rnn' for argument '--agent.network.core'"),
        ("--number x", "Error parsing --number"),
    ],
)
def test_a_mistake_is_one_line_that_says_where_to_look(flags: str, message: str) -> None:
    line = mistake(*flags.split())
    assert message in line
    assert line.endswith("(see test cartpole_r2d2 --help)")


def test_the_message_of_a_bad_value_leaves_the_help_texts_out() -> None:
    assert mistake("--agent.unroll", "many").count("--agent.unroll") == 1


@pytest.mark.parametrize("argv", [[], ["--seed", "3"]])
def test_the_config_comes_first(argv: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"expected a CONFIG first, got .*cartpole_r2d2"):
        parse(Options, argv, prog="test")


def test_help_without_a_config_lists_the_bundled_ones_and_the_options(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as end:
        parse(Options, ["--help"], prog="test")
    assert end.value.code == 0
    out = capsys.readouterr().out
    assert "cartpole_masked_r2d2    R2D2 on CartPole-v1 without its two velocities" in out
    assert "usage: test CONFIG" in out and "--number INT" in out
    # And the fields that most users set, explained.
    assert "--learning.total-steps INT" in out and "(as in" in out
    assert "training environment steps after which the run" in out


def test_an_option_that_must_be_given_is_named() -> None:
    with pytest.raises(ConfigError, match=r"--workdir.* \(see test cartpole_r2d2 --help\)"):
        parse(LearnerOptions, ["cartpole_r2d2"], prog="test")


def test_a_switch_of_a_section_can_be_turned_off() -> None:
    words = ["cartpole_r2d2", "--checkpoint.replay", "--checkpoint.no-replay"]
    assert not parse(Options, words, prog="test").config.checkpoint.replay
    assert parse(Options, words[:2], prog="test").config.checkpoint.replay


def test_flags_alone_are_checked_too() -> None:
    assert parse_flags(Options, ["--number", "5"], prog="test").number == 5
    with pytest.raises(ConfigError, match="unknown option --numbr; did you mean --number?"):
        parse_flags(Options, ["--numbr", "5"], prog="test")


@pytest.mark.parametrize("options", [LearnerOptions, TrainOptions])
def test_every_flag_has_a_help_text(
    options: type, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        parse(options, ["cartpole_r2d2", "--help"], prog="test")
    lines = [line.strip("│ ") for line in capsys.readouterr().out.splitlines()]
    flags = [index for index, line in enumerate(lines) if line.startswith("--")]
    assert len(flags) > 50
    without = [lines[index] for index in flags if lines[index + 1].startswith("(")]
    assert without == []


def test_options_of_the_learner_stand_for_fields() -> None:
    config = config_io.load("cartpole_r2d2")
    options = LearnerOptions(workdir=Path("x"))
    assert options.apply(config) == config
    changed = dataclasses.replace(
        options, checkpoint_replay=True, bind="unix:/x", token_file="token"
    ).apply(config)
    assert difference(config, changed) == [
        "serving.bind: expected '', got 'unix:/x'",
        "serving.token_file: expected '', got 'token'",
        "checkpoint.replay: expected False, got True",
    ]
