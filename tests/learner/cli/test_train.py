"""`seedrl train` with a learner and env servers that only write down how they were called."""

import contextlib
import dataclasses
import json
import os
import re
import shlex
from pathlib import Path
from unittest import mock

import pytest

from learner.cli import train
from learner.cli.arguments import parse
from learner.cli.main import main
from learner.launch.env_servers import of_hosts
from learner.saving.run_folder import RunFolder
from seedrl import config_modules
from seedrl.config import Config
from seedrl.config_json import from_json
from seedrl.wire.credentials import read_token

# A stand-in for both programs: the real ones are trained with in tests/system.
PROGRAM = """
import json, os, pathlib, signal, sys
name = pathlib.Path(__file__).parent.name
words = sys.argv[1:]
config = pathlib.Path(words[0]).read_text() if name == "learner" else ""
variables = {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "PYTHONPATH")}
with open(f"{name}_{os.getpid()}.json", "w") as file:
    json.dump({"argv": words, "config": config, **variables}, file)
"""
# Ends when all env servers have said through a pipe that they have written.
LEARNER = (
    PROGRAM
    + """
ready = open("ready", "r+b", buffering=0)
number = json.loads(config)["config"]["launch"]["env_servers"]
while number: number -= len(ready.read(1))
sys.exit(int(os.environ["LEARNER_CODE"]))
"""
)
ENV_SERVER = (
    PROGRAM
    + """
open("ready", "w").write("x")
signal.pause()
"""
)


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, source in (("learner", LEARNER), ("envs_server", ENV_SERVER)):
        (tmp_path / name).mkdir()
        # Without it the folder is no rival to an installed package of that name.
        (tmp_path / name / "__init__.py").touch()
        (tmp_path / name / "__main__.py").write_text(source)
    os.mkfifo(tmp_path / "ready")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEARNER_CODE", "0")
    # Configurations that other tests have read in this process are none of this user's.
    monkeypatch.setattr("seedrl.config_modules._folders", [])
    return tmp_path


def calls(stage: Path, name: str) -> list[list[str]]:
    return [json.loads(path.read_text())["argv"] for path in stage.glob(f"{name}_*.json")]


def learner(stage: Path) -> tuple[dict[str, str], Config]:
    """The options of the learner's command line, and the configuration in the file it was given."""
    (path,) = stage.glob("learner_*.json")
    call = json.loads(path.read_text())
    words = call["argv"][1:]
    return dict(zip(words[::2], words[1::2], strict=True)), from_json(call["config"])


def test_the_learner_gets_the_overridden_config_as_a_file(stage: Path) -> None:
    assert main(["train", "cartpole_r2d2", "--workdir", "w", "--seed", "3"]) == 0
    options, config = learner(stage)
    assert options["--workdir"] == "w" and options["--resume"] == "auto"
    assert (config.seed, config.agent.unroll) == (3, 20)
    address = config.serving.bind
    assert re.fullmatch(r"unix:/.*/learner", address)
    own_folder = Path(address.removeprefix("unix:")).parent
    assert Path(options["--stop-reason"]).parent == own_folder and not own_folder.exists()
    env_servers = calls(stage, "envs_server")
    assert [call[:4] for call in env_servers] == [["--learner", address, "--num-envs", "66"]] * 2


def test_the_command_that_is_recorded_is_that_of_the_user(stage: Path) -> None:
    words = ["cartpole_r2d2", "--workdir", "w", "--env-servers", "2", "--resume", "never"]
    words += ["--environment.arguments", '{"render_mode": null}', "--init-from", "runs/other"]
    assert main(["train", *words]) == 0
    options, _ = learner(stage)
    assert shlex.split(options["--user-command"]) == ["seedrl", "train", *words]
    assert options["--resume"] == "never"
    assert options["--init-from"] == "runs/other"


def test_a_killed_learner_leaves_the_whole_command_that_resumes_its_run(
    stage: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LEARNER_CODE", "137")
    words = ["train", "cartpole_r2d2", "--launch.env-servers", "1", "--workdir", "w"]
    assert main([*words, "--resume", "never", "--seed", "3"]) == 137
    said = capfd.readouterr().err
    command = "seedrl train cartpole_r2d2 --launch.env-servers 1 --seed 3 --workdir w"
    assert said.endswith(
        f"killed by SIGKILL (out of memory?); this resumes from its newest checkpoint, or "
        f"begins again if it has saved none: {command}\n"
    )


def test_the_numbers_of_the_fleet_reach_the_learner_as_slots(stage: Path) -> None:
    flags = ["--env-servers", "3", "--envs_per_server=40", "--groups", "1", "--workdir", "w"]
    flags += ["--replay.min-steps", "10_000"]
    assert main(["train", "cartpole_r2d2", *flags]) == 0
    _, config = learner(stage)
    assert config.serving.training_slots == 20
    assert (config.launch.env_servers, config.launch.envs_per_server) == (3, 40)
    assert {path.name for path in (stage / "w" / "logs").iterdir()} == {
        f"env_server_{index}.log" for index in range(3)
    }


def test_the_exit_code_is_that_of_the_learner(stage: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEARNER_CODE", "74")
    assert main(["train", "cartpole_r2d2", "--workdir", "w"]) == 74


def test_a_learner_whose_saves_may_take_an_hour_has_it_when_its_env_servers_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = mock.Mock(return_value=mock.MagicMock(is_interrupted=False, wait=lambda: 0))
    monkeypatch.setattr("learner.cli.train.Supervisor", started)
    words = ["--workdir", str(tmp_path / "w"), "--logging.stuck-seconds", "3600"]
    assert main(["train", "cartpole_r2d2", *words]) == 0
    assert started.call_args.kwargs["learner"].grace_seconds == 3780


_REFUSED = {"code": 2}
_INTERRUPTED = {"code": 0, "is_interrupted": True}


@pytest.mark.parametrize(
    ("ending", "is_kept"),
    [
        (_REFUSED, False),
        ({"code": 74}, False),
        ({"code": 98}, True),  # another learner's
        ({**_REFUSED, "is_made_before": True}, True),  # the user's own
        ({**_REFUSED, "env_server_failed": True}, True),  # its log says why
        ({"code": 1}, True),
        ({"code": 70}, True),
        (_INTERRUPTED, False),
        ({**_INTERRUPTED, "code": 143}, False),
        ({**_INTERRUPTED, "is_made_before": True}, True),
        ({**_INTERRUPTED, "env_server_failed": True}, True),
        ({**_INTERRUPTED, "has_begun": True}, True),
    ],
)
def test_the_new_folder_of_a_run_that_is_refused_or_stopped_is_removed_unless_it_has_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: dict[str, int], is_kept: bool
) -> None:
    workdir = tmp_path / "w"

    def wait() -> int:
        if "has_begun" in ending:
            (workdir / "config.json").touch()
        return ending["code"]

    supervisor = mock.MagicMock(
        has_failed_env_server="env_server_failed" in ending,
        is_interrupted="is_interrupted" in ending,
        wait=wait,
    )
    monkeypatch.setattr("learner.cli.train.Supervisor", lambda *_, **__: supervisor)
    if "is_made_before" in ending:
        workdir.mkdir()
    assert main(["train", "cartpole_r2d2", "--workdir", str(workdir)]) == ending["code"]
    assert workdir.exists() == is_kept


def test_an_address_of_ones_own_is_kept(stage: Path) -> None:
    assert main(["train", "cartpole_r2d2", "--workdir", "w", "--bind=127.0.0.1:8700"]) == 0
    assert learner(stage)[1].serving.bind == "127.0.0.1:8700"


def test_the_saved_config_of_a_run_is_a_config(stage: Path) -> None:
    assert main(["train", "cartpole_r2d2", "--workdir", "w", "--seed", "3"]) == 0
    (path,) = stage.glob("learner_*.json")
    (stage / "saved.json").write_text(json.loads(path.read_text())["config"])
    path.unlink()
    assert main(["train", "saved.json", "--workdir", "w", "--agent.unroll", "40"]) == 0
    _, config = learner(stage)
    assert (config.seed, config.agent.unroll) == (3, 40)


def test_a_free_port_cannot_be_told_to_env_servers(
    stage: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "cartpole_r2d2", "--workdir", "w", "--serving.bind", "localhost:0"]) == 2
    assert "expected a port other than 0" in capsys.readouterr().err
    assert not (stage / "w").exists()


def test_a_new_run_has_a_folder_of_its_own(stage: Path) -> None:
    assert main(["train", "cartpole_r2d2", "--seed", "7"]) == 0
    options, _ = learner(stage)
    assert re.fullmatch(r"runs/cartpole_r2d2__7__\d{8}-\d{6}", options["--workdir"])


def test_env_servers_compute_in_one_thread_and_import_what_lies_beside_the_config(
    stage: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    # Configurations that other tests of this process have loaded come before.
    monkeypatch.setattr(config_modules, "_folders", [])
    folder = stage / "own"
    folder.mkdir()
    for place in (folder, stage):
        (place / "own_twin.py").touch()
    source = "from seedrl import config_file\ndef config(): return config_file.load('catch_r2d2')\n"
    (folder / "own_config.py").write_text(source)
    words = ["--environment.id", "own_twin:make", "--workdir", "w"]
    assert main(["train", str(folder / "own_config.py"), *words]) == 0
    assert "imports own_twin from beside the config" in capfd.readouterr().err
    paths = list(stage.glob("envs_server_*.json"))
    assert len(paths) == 2
    for path in paths:
        variables = json.loads(path.read_text())
        assert variables["OMP_NUM_THREADS"] == "1"
        assert variables["PYTHONPATH"].split(":")[:2] == [str(folder), str(stage)]


def test_a_folder_that_a_learner_uses_is_refused_before_anything_starts(
    stage: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with contextlib.closing(RunFolder(stage / "w")):
        assert main(["train", "cartpole_r2d2", "--workdir", "w"]) == 98
    assert capsys.readouterr().err == (
        f"seedrl: error: another learner is using {stage}/w; stop it or choose another --workdir\n"
    )
    assert calls(stage, "envs_server") == calls(stage, "learner") == []
    assert main(["train", "cartpole_r2d2", "--workdir", "w"]) == 0  # looking has taken nothing


def test_its_env_servers_are_given_a_token_for_a_port_and_nobody_can_read_it_elsewhere(
    stage: Path,
) -> None:
    assert main(["train", "cartpole_r2d2", "--bind", "127.0.0.1:8686", "--env-servers", "1"]) == 0
    serving = learner(stage)[1].serving
    (argv,) = calls(stage, "envs_server")
    # Both have the name of a file, which is gone with the run.
    assert argv[argv.index("--token-file") + 1] == serving.token_file
    assert not Path(serving.token_file).exists()


def test_several_hosts_have_a_learner_and_a_socket_each_and_one_token(tmp_path: Path) -> None:
    options, config = parse(train.TrainOptions, ["cartpole_r2d2", "--hosts", "2"], prog="train")
    config, planned = train.plan(options, config)
    serving = train._serving(config.serving, tmp_path, [], hosts=2)
    config = dataclasses.replace(config, serving=serving)
    fleets = of_hosts(planned, serving, options.hosts)
    found = train._of_hosts(
        config, fleets, tmp_path, tmp_path, ["--resume", "auto"], user_command=""
    )
    words = [learner.arguments[4:] for learner in found.learners]
    given = [dict(zip(each[1::2], each[2::2], strict=True)) for each in words]
    assert [each["--host-index"] for each in given] == ["0", "1"]
    assert [each["--hosts"] for each in given] == ["2", "2"]
    assert len({each["--coordinator"] for each in given}) == 1
    served = [from_json(Path(each[0]).read_text()).serving for each in words]
    binds = [each.bind for each in served]
    assert binds == [f"unix:{tmp_path}/learner", f"unix:{tmp_path}/learner1"]
    # Every user of this machine reaches the port at which they meet.
    (token,) = {Path(each.token_file) for each in served}
    assert read_token(token) and token.stat().st_mode & 0o777 == 0o600
    shown = [
        server.arguments[server.arguments.index("--token-file") + 1] for server in found.env_servers
    ]
    assert shown == [str(token)] * 2
    dialled = [
        server.arguments[server.arguments.index("--learner") + 1] for server in found.env_servers
    ]
    assert dialled == binds
    assert [server.name for server in found.env_servers] == ["env server 0", "env server 1"]
    assert [learner.log for learner in found.learners] == [None, tmp_path / "learner_1.log"]
