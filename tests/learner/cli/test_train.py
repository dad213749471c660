"""`seedrl train` with stand-ins for learning and env servers, which write how they were called.

Both are real in tests/system.
"""

import dataclasses
import json
import re
import shlex
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import learner.train
from learner.cli.main import main
from seedrl import config_io
from seedrl.config import Config
from seedrl.config_io import to_json
from seedrl.exit_codes import ExitCode
from seedrl.fields import with_fields
from seedrl.wire.credentials import read_token
from tests.patience import wait_until

ENV_SERVERS = """
import json, os, signal, sys
variables = {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "PYTHONPATH")}
with open("env_servers.tmp", "w") as file:
    json.dump({"argv": sys.argv[1:], **variables}, file)
os.rename("env_servers.tmp", "env_servers.json")
signal.pause()
"""


class Call(NamedTuple):
    """How the learner was called, and the child process of its env servers."""

    config: Config
    arguments: dict[str, Any]
    argv: list[str]
    variables: dict[str, str]

    def option(self, name: str) -> str:
        return self.argv[self.argv.index(name) + 1]


class Stage:
    """A folder where `seedrl train` finds the stand-ins, and what they were called with."""

    def __init__(self, path: Path):
        self.path = path
        self.calls: list[Call] = []
        self.result: BaseException | None = None

    def train(self, config: Config, **arguments: Any) -> ExitCode:
        written = self.path / "env_servers.json"
        wait_until(written.exists, "the env servers never started")
        found = json.loads(written.read_text())
        self.calls.append(Call(config, arguments, found.pop("argv"), found))
        written.unlink()
        if self.result is not None:
            raise self.result
        return ExitCode.OK


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    (tmp_path / "envs_server").mkdir()
    # Without it the folder does not come before an installed package of that name.
    (tmp_path / "envs_server" / "__init__.py").touch()
    (tmp_path / "envs_server" / "__main__.py").write_text(ENV_SERVERS)
    monkeypatch.chdir(tmp_path)
    # Env servers of a saved config import nothing from the current folder.
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    # Configurations that other tests have read in this process are none of this user's.
    monkeypatch.setattr(config_io, "_folders", [])
    stage = Stage(tmp_path)
    monkeypatch.setattr(learner.train, "train", stage.train)
    return stage


def test_a_run_gets_its_config_and_its_env_servers_find_it(stage: Stage) -> None:
    words = ["train", "cartpole_r2d2", "--workdir", "w", "--seed", "3", "--resume", "never"]
    assert main([*words, "--init-from", "runs/other", "--env-servers", "3"]) == 0
    (call,) = stage.calls
    assert (call.config.seed, call.config.agent.unroll) == (3, 20)
    assert call.arguments["workdir"] == Path("w")
    assert call.arguments["resume"] == "never"
    assert call.arguments["init_from"] == Path("runs/other")
    assert shlex.split(call.arguments["stop"].command)[:2] == ["seedrl", "train"]
    assert call.option("--learner") == call.config.serving.bind
    assert re.fullmatch(r"unix:/.*", call.config.serving.bind)
    assert (call.option("--processes"), call.option("--num-envs")) == ("3", "44")
    assert Path(call.option("--logs")) == Path("w/logs")
    # The saved config of a run is one, too; a new run has a folder of its own.
    (stage.path / "saved.json").write_text(to_json(call.config))
    assert main(["train", "saved.json", "--agent.unroll", "40"]) == 0
    again = stage.calls[1]
    assert (again.config.seed, again.config.agent.unroll) == (3, 40)
    assert re.fullmatch(r"runs/saved__3__\d{8}-\d{6}", str(again.arguments["workdir"]))


def test_a_run_is_resumed_by_its_own_config_and_its_name(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "cartpole_r2d2", "--workdir", "w", "--bind", "127.0.0.1:8686"]) == 0
    begun = stage.calls[0].config
    folder = stage.path / "w"
    assert main(["resume", "w"]) == 2  # the stand-in has begun no run
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(to_json(dataclasses.replace(begun, seed=5)))
    (folder / "status.json").write_text('{"config": "mine"}')
    assert main(["resume", "w/config.json", "--agent.learning-rate", "0.5", "--envs", "6"]) == 0
    resumed = stage.calls[1]
    assert (resumed.config.seed, resumed.config.agent.learning_rate) == (5, 0.5)
    assert resumed.config.serving.training_slots == 6
    assert resumed.config.serving.bind == "127.0.0.1:8686"
    assert Path(resumed.config.serving.token_file) != Path(begun.serving.token_file)
    assert main(["resume", "w", "--token-file", "none"]) == 0
    assert stage.calls[2].config.serving.token_file == "none"  # and the learner refuses it
    given = resumed.arguments
    assert (given["workdir"], given["resume"], given["name"]) == (Path("w"), "must", "mine")
    words = shlex.split(given["stop"].command)
    assert words[:3] == ["seedrl", "resume", "w/config.json"]
    # Of a flag in several sessions the last one counts, and of those the one typed now.
    balanced = ["train x --balance=auto --seed 3", "resume w --most_env_servers 3", "resume 'half"]
    for lines, more, most in (
        (balanced, [], 3),
        (balanced, ["--most-env-servers", "5"], 5),
        # More would find no slot: 66 env servers of 2 environments fill all 132.
        (balanced, ["--most-env-servers", "100"], 66),
        (balanced, ["--balance", "off"], None),
        ([*balanced, "train x"], [], None),  # which takes nothing from the sessions before
    ):
        (folder / "command.txt").write_text("".join(f"seedrl {line}\n" for line in lines))
        assert main(["resume", "w", *more]) == 0
        fleets = stage.calls[-1].arguments["fleets"]
        assert (fleets.most if fleets else None) == most
    for more in (["--workdir", "other"], ["--init-from", "other"]):
        assert main(["resume", "w", *more]) == 2
    assert "--init-from" in capsys.readouterr().err
    # What the folder names may be anybody's code.
    environment = dataclasses.replace(begun.environment, id="os:system")
    (folder / "config.json").write_text(
        to_json(dataclasses.replace(begun, environment=environment))
    )
    assert main(["resume", "w"]) == 2 and "--allow" in capsys.readouterr().err
    # What the user types is the user's.
    assert main(["resume", "w", "--environment.id", "json:loads"]) == 0


def test_a_new_run_by_the_config_of_another_shares_nothing_of_its_session(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = stage.path / "w"
    folder.mkdir()
    assert main(["train", "cartpole_r2d2", "--workdir", "w"]) == 0
    (folder / "config.json").write_text(to_json(stage.calls[0].config))
    assert main(["train", "w/config.json", "--workdir", "v"]) == 0
    assert [call.arguments["name"] for call in stage.calls] == ["cartpole_r2d2", "v"]
    first, second = (call.config.serving.bind for call in stage.calls)
    assert first != second  # one socket for both would end the second run, or both
    serving = {"serving.bind": "127.0.0.1:8686", "serving.token_file": "/gone"}
    (folder / "config.json").write_text(to_json(with_fields(stage.calls[0].config, serving)))
    assert main(["train", "w/config.json", "--workdir", "v"]) == 0
    assert stage.calls[2].config.serving.bind == "127.0.0.1:8686"
    assert stage.calls[2].config.serving.token_file != "/gone"
    # Nor does somebody's folder open a port to everybody.
    serving = {"serving.bind": "0.0.0.0:8686", "serving.insecure": True}
    (folder / "config.json").write_text(to_json(with_fields(stage.calls[0].config, serving)))
    for words in (["train", "w/config.json", "--workdir", "v"], ["resume", "w"]):
        assert main(words) == 2
        assert "serving.bind: expected" in capsys.readouterr().err
        assert main([*words, "--serving.insecure"]) == 0


@pytest.mark.parametrize("name", ["cartpole_r2d2", "halfcheetah_ppo"])
def test_envs_and_env_servers_are_all_that_sets_the_size(stage: Stage, name: str) -> None:
    assert main(["train", name, "--workdir", "w", "--envs", "12", "--env-servers", "3"]) == 0
    (call,) = stage.calls
    assert call.config.serving.training_slots == 12
    if name == "halfcheetah_ppo":  # in rounds, each of one sequence of every environment
        assert call.config.learning.batch_sequences == 12
    both = 12 + call.config.serving.evaluation_slots
    assert call.option("--processes") == "3"
    assert 3 * int(call.option("--num-envs")) >= both > 3 * int(call.option("--num-envs")) - 3
    assert main(["train", name, "--envs", "0"]) == 2


def test_an_address_of_a_flag_or_a_config_file_is_kept_and_has_a_token(stage: Stage) -> None:
    (stage.path / "own.py").write_text(
        "import dataclasses\nfrom seedrl import config_io\n"
        "def config():\n"
        "    config = config_io.load('cartpole_r2d2')\n"
        "    serving = dataclasses.replace(config.serving, bind='127.0.0.1:8701')\n"
        "    return dataclasses.replace(config, serving=serving)\n"
    )
    seen = []
    played = stage.train

    def train(config: Config, **arguments: Any) -> ExitCode:
        path = Path(config.serving.token_file)
        seen.append((bool(read_token(path)), path.stat().st_mode & 0o777))
        return played(config, **arguments)

    learner.train.train = train  # type: ignore[assignment]  # undone by the fixture
    assert main(["train", "cartpole_r2d2", "--workdir", "v", "--bind=127.0.0.1:8700"]) == 0
    assert main(["train", "own.py", "--workdir", "w"]) == 0
    binds = ["127.0.0.1:8700", "127.0.0.1:8701"]
    assert [call.config.serving.bind for call in stage.calls] == binds
    assert seen == [(True, 0o600)] * 2
    for call in stage.calls:
        # Both have the name of a file, which is gone with the run.
        assert call.option("--token-file") == call.config.serving.token_file
        assert not Path(call.config.serving.token_file).exists()


def test_env_servers_compute_in_one_thread_and_import_from_the_folder_of_the_config(
    stage: Stage,
) -> None:
    folder = stage.path / "own"
    folder.mkdir()
    for place in (folder, stage.path):
        (place / "own_twin.py").touch()
    source = "from seedrl import config_io\ndef config(): return config_io.load('cartpole_r2d2')\n"
    (folder / "own_config.py").write_text(source)
    words = ["--environment.id", "own_twin:make", "--workdir", "w"]
    assert main(["train", str(folder / "own_config.py"), *words]) == 0
    variables = stage.calls[0].variables
    assert variables["OMP_NUM_THREADS"] == "1"
    assert variables["PYTHONPATH"].split(":")[:2] == [str(folder), str(stage.path)]
