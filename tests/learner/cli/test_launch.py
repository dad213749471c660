"""`seedrl launch`: what it refuses, and the processes that it would place."""

from pathlib import Path

import pytest

from envs_server.options import read_options
from learner.cli import launch
from learner.cli.arguments import parse
from learner.cli.train import LearnerOptions
from seedrl import config_io
from seedrl.config import check
from seedrl.errors import ConfigError


def test_the_folder_of_a_run_on_ray_is_a_path_of_its_nodes() -> None:
    mine = Path("/shared/mine")
    assert launch.workdir_of(mine, "ray://head:10001", "cartpole_r2d2", 7) == mine
    found = launch.workdir_of(None, "head:6379", "cartpole_r2d2", 7)
    assert str(found).startswith(str(Path("runs").absolute() / "cartpole_r2d2__7__"))
    for given in (None, Path("mine")):
        with pytest.raises(ConfigError) as caught:
            launch.workdir_of(given, "ray://head:10001", "cartpole_r2d2", 7)
        assert "--workdir" in str(caught.value)


def test_programs_accept_the_commands_of_the_processes(tmp_path: Path) -> None:
    _, config, fleet = launch.read(["pong_r2d2", "--on", "ray", "--env-servers", "3"])
    (tmp_path / "config.json").write_text(config_io.to_json(config))

    def words(command: list[str], module: str) -> list[str]:
        found = [word.replace("{folder}", str(tmp_path)) for word in command]
        assert found[:3] == ["-P", "-m", module]
        return [word.replace("{address}", "127.0.0.1:1") for word in found[3:]]

    of_run = ["--workdir", str(tmp_path), "--name", "pong"]
    _, placed = parse(
        LearnerOptions, words(launch.learner_words(of_run), "learner"), prog="learner"
    )
    check(placed)
    served = read_options(words(launch.env_server_words(config, fleet), "envs_server"))
    assert (served.num_envs, served.learner) == (fleet.num_envs, placed.serving.bind)
    assert served.token_file == Path(placed.serving.token_file)
