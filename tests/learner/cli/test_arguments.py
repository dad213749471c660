"""Command lines that begin with a CONFIG: what they set, and how mistakes are reported."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from learner.cli.arguments import parse
from seedrl import config_io
from seedrl.config import Config
from seedrl.config_io import difference, to_json

CARTPOLE = config_io.load("cartpole_r2d2")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a test.

    Attributes:
      workdir: some folder.
      number: some number.
    """

    workdir: Path | None = None
    number: int = 3


def test_flags_override_fields_at_every_depth() -> None:
    flags = "--number 4 --seed 1 --learning.batch-sequences 48 --agent.network.core-size 16 "
    flags += "--agent.network.torso-sizes 8 9 --evaluation.target-return None --seed 5"
    flags += " --learning.total-steps 1e5 --checkpoint.replay --checkpoint.no-replay"
    assert parse(Options, ["cartpole_r2d2"], prog="test") == (Options(), CARTPOLE)
    options, config = parse(Options, ["cartpole_r2d2", *flags.split()], prog="test")
    assert options.number == 4
    changed = {line.split(":")[0] for line in difference(to_json(CARTPOLE), to_json(config))}
    assert changed == {
        "agent.network.torso_sizes",
        "agent.network.core_size",
        "learning.batch_sequences",
        "learning.total_steps",
        "evaluation.target_return",
        "seed",
    }
    assert config.agent.network.torso_sizes == (8, 9) and config.seed == 5
    assert config.learning.total_steps == 100_000


def test_a_terminal_shows_that_a_config_is_read_before_it_imports_jax(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown: list[str] = []

    def load(name: str) -> Config:
        shown.append(capsys.readouterr().err)
        return CARTPOLE

    monkeypatch.setattr(config_io, "load", load)
    for is_terminal in (True, False):
        monkeypatch.setattr("sys.stderr.isatty", lambda: is_terminal)  # noqa: B023
        parse(Options, ["cartpole_r2d2"], prog="test")
        parse(Options, ["carpole"], prog="test")  # `load` refuses it at once
    assert "cartpole_r2d2" in shown[0] and shown[1:] == [""] * 3


def test_a_factory_of_the_current_folder_is_found_from_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config_io, "_folders", [])
    monkeypatch.setattr("sys.path", [])
    monkeypatch.chdir(tmp_path)
    words = ["cartpole_r2d2", "--environment.id", "mine:make"]
    parse(Options, words, prog="test")
    (tmp_path / "envs_server").mkdir()  # as in a checkout
    parse(Options, ["cartpole_r2d2"], prog="test")
    assert config_io.import_folders() == ()
    (tmp_path / "mine.py").touch()
    _, config = parse(Options, words, prog="test")
    assert config_io.to_allow(config_io.to_json(config)) == [str(tmp_path)]
