"""What a user may get wrong on a command line or in a file: each is one line and an exit code.

Environments with a defect are in `tests/envs_server/test_bad_environments.py`; what only running
processes can show is in `tests/system/test_errors.py`.
"""

import shlex
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import envs_server.__main__
import envs_server.check.__main__
import learner.cli.main
import learner.cli.train
from seedrl import config_io
from seedrl.programs.outcome import exit_code
from tests import own_process

# A config file that spoils one field of a bundled configuration.
_SPOILT = """
import dataclasses
from seedrl import config_io
def config():
    return dataclasses.replace(config_io.load("cartpole_r2d2"), {})
"""
# One with an agent of one's own, which checks a field of its own.
_OWN = """
import os
from dataclasses import dataclass
from seedrl.agents.r2d2 import R2D2Config
from seedrl.config import Config, EnvironmentConfig
from seedrl.errors import ConfigError

{decorator}
class OwnConfig(R2D2Config):
    epsilon: float = 0.1
    number: int = 3

    def __post_init__(self):
        super().__post_init__()
        if not 0 <= self.epsilon <= 1:
            raise ConfigError(f"agent.epsilon: expected 0 to 1, got {{self.epsilon}}")
        assert self.number > 0, "no number"

def config():
    return Config(environment=EnvironmentConfig(id="CartPole-v1"), agent=OwnConfig({values}))
"""
_DATACLASS = "@dataclass(frozen=True, kw_only=True)"
_FILES = {
    "own.py": _OWN.format(decorator=_DATACLASS, values=""),
    "own_range.py": _OWN.format(decorator=_DATACLASS, values="epsilon=2.0"),
    "own_lost.py": _OWN.format(decorator="", values=""),
    "afile": "",
    "empty.py": "",
    "none.py": "def config(): return None",
    "syntax.py": "def config(:",
    "divides.py": "def config():\n    return 1 / 0",
    "exits.py": "import sys\nsys.exit(9)",
    "imports.py": "import no_such_package",
    "field.py": "from seedrl.config import Config\ndef config(): return Config(envronment=3)",
    "seed.py": _SPOILT.format("seed='7'"),
    "environment.py": _SPOILT.format("environment='CartPole-v1'"),
    "agent.py": _SPOILT.format("agent=None"),
    "replay.py": _SPOILT.format("replay=None"),
    "empty.json": "",
    "list.json": "[1]",
    "mein Lauf ü/konfig ß.py": "def config(): return 3",
}


def _env_server(words: Sequence[str]) -> int:
    return exit_code(lambda: envs_server.__main__._run(words), prog=envs_server.__main__.PROG)


_PROGRAMS: dict[str, tuple[str, Callable[[list[str]], int]]] = {
    "seedrl": ("seedrl", learner.cli.main.main),
    "learner": ("python -m learner", learner.cli.train.main),
    "env server": ("python -m envs_server", _env_server),
    "check-env": ("seedrl check-env", envs_server.check.__main__.main),
}

TRAIN = "seedrl train cartpole_r2d2 "
LEARNER = "learner cartpole_r2d2 --workdir w "
ENV_SERVER = "env server --learner h:1 --num-envs 2 "

# Command -> exit code, and what the line says.
CASES: dict[str, tuple[int, str]] = {
    "seedrl trian": (2, "unknown command 'trian': did you mean train?"),
    "seedrl train": (2, "expected a CONFIG first, got nothing"),
    "seedrl train catch": (2, "unknown config 'catch': did you mean catch_r2d2?"),
    "seedrl train nosuch.py": (2, "expected a config file, but there is no nosuch.py"),
    "seedrl train untrained": (2, "got the folder of a run; pass untrained/config.json"),
    "seedrl train folder.py": (2, "expected a config file, but there is no folder.py"),
    "seedrl train binary.py": (2, "/binary.py: SyntaxError: "),
    "seedrl train binary.json": (2, "/binary.json: 'utf-8' codec can't decode byte 0xff"),
    "seedrl train empty.json": (2, "/empty.json: expected a saved config in JSON, got ''"),
    "seedrl train list.json": (2, "/list.json: expected a saved config in JSON, got '[1]'"),
    "seedrl train newer.json": (2, "config.future: Config has no such field; another version may"),
    "seedrl train foreign.json": (2, "config.agent: cannot import its class other.agents:Agent"),
    "seedrl train typed.json": (2, "/typed.json: config.seed: expected int, got 'zero'"),
    "seedrl train empty.py": (2, "/empty.py: expected a function `config()` that returns a Config"),
    "seedrl train none.py": (2, "/none.py: expected a Config from config(), got NoneType"),
    "seedrl train syntax.py": (2, "/syntax.py:1: invalid syntax"),
    "seedrl train divides.py": (2, "/divides.py:2: ZeroDivisionError: division by zero"),
    "seedrl train exits.py": (2, "/exits.py:2: SystemExit: 9"),
    "seedrl train imports.py": (2, "/imports.py:1: ModuleNotFoundError: No module named 'no_such_"),
    "seedrl train field.py": (2, "/field.py:2: TypeError: Config.__init__() got an unexpected"),
    "seedrl train seed.py": (2, "/seed.py: seed: expected int, got '7'"),
    "seedrl train environment.py": (2, "environment: expected EnvironmentConfig, got 'Cart"),
    "seedrl train agent.py": (2, "agent: expected an instance of a frozen dataclass, got None"),
    "seedrl train replay.py": (2, "replay: expected an instance of a frozen dataclass, got None"),
    "seedrl train own_range.py": (2, "/own_range.py:16: agent.epsilon: expected 0 to 1, got 2.0"),
    "seedrl train own_lost.py": (2, "above class OwnConfig, found none; without it epsilon"),
    "seedrl train own.py --agent.epsilon 3": (2, "agent.epsilon: expected 0 to 1, got 3.0 (see "),
    "seedrl train own.py --agent.number 0": (2, "AssertionError: no number ("),
    "seedrl train own.json": (2, "/own.json: config.agent: AssertionError: no number"),
    "seedrl train 'mein Lauf ü/konfig ß.py'": (2, "/mein Lauf ü/konfig ß.py: expected a Config"),
    f"{TRAIN} --agent.learning-rat 1": (2, "did you mean --agent.learning-rate?"),
    f"{TRAIN} --seed abc": (2, "--seed: expected INT, got 'abc' (see"),
    f"{TRAIN} --seed 99999999999": (2, "seed: expected 0 to 2147483647, got 99999999999"),
    f"{TRAIN} --agent.network.torso cnn": (2, "--agent.network.torso: expected auto or mlp or"),
    f"{TRAIN} --agent.network.core-size 0": (2, "network.core_size: expected at least 1, got 0"),
    f"{TRAIN} --workdir {'x' * 300}": (2, "too long"),
    f"{TRAIN} --resume maybe": (2, "--resume: expected auto or never or must, got 'maybe'"),
    f"{TRAIN} --environment.arguments '{{gravity: 3}}'": (2, "expected a JSON object such as"),
    f"{TRAIN} --environment.arguments [1]": (2, "environment.arguments: expected a JSON object"),
    f"{TRAIN} --environment.id ''": (2, "environment.id: expected a gymnasium id or package.mod"),
    f"{TRAIN} --environment.wrappers foo": (2, "environment.wrappers: expected package.module:f"),
    f"{TRAIN} --serving.training-slots -1": (2, "serving.training_slots: expected at least 1, got"),
    f"{TRAIN} --learning.total-steps 0": (2, "learning.total_steps: expected at least 1, got 0"),
    f"{TRAIN} --checkpoint.keep 1": (2, "checkpoint.keep: expected at least 2, got 1"),
    f"{TRAIN} --replay.capacity-steps 10": (2, "replay.capacity_steps: expected at least 1280"),
    f"{TRAIN} --evaluation.target-return nan": (2, "evaluation.target_return: expected a finite"),
    f"{TRAIN} --env-servers 0": (2, "--env-servers: expected at least 1, got 0"),
    f"{TRAIN} --bind 127.0.0.1:99999": (2, "serving.bind: expected host:port with a port of 0 to"),
    f"{TRAIN} --bind 127.0.0.1": (2, "serving.bind: expected host:port with a port of 0 to 65535"),
    f"{TRAIN} --bind 0.0.0.0:8686": (2, "can be reached from other machines; expected serving.c"),
    f"{TRAIN} --workdir afile/run": (2, "--workdir: cannot write in afile/run (Not a directory)"),
    f"{TRAIN} --workdir /proc/run": (2, "--workdir: cannot write in /proc/run"),
    "learner cartpole_r2d2": (2, "expected --workdir, got none"),
    "learner cartpole_r2d2 --workdir afile/run": (2, "--workdir: cannot write in afile/run (Not a"),
    f"{LEARNER} --learning.num-devices 8": (2, "learning.num_devices: expected at most"),
    f"{LEARNER} --resume must": (74, "--resume must: expected a checkpoint in "),
    "learner cartpole_r2d2 --workdir w --bind 127.0.0.1:TAKEN --serving.insecure": (
        75,
        "the address is in use; stop",
    ),
    "env server": (2, "required: --learner"),
    "env server --learner 127.0.0.1 --num-envs 2": (2, "--learner: expected host:port with a port"),
    "env server --learner h:99999 --num-envs 2": (2, "--learner: expected host:port with a port"),
    "env server --learner h:1 --num-envs -3": (2, "expected --num-envs and --processes of at"),
    f"{ENV_SERVER} --alow-env x:*": (2, "unrecognized arguments: --alow-env"),
    f"{ENV_SERVER} --play nosuch": (2, "--play: [Errno 2] No such file or directory: 'nosuch'"),
    f"{ENV_SERVER} --sent-log folder.py": (2, "--sent-log: [Errno 21] Is a directory: 'folder.py'"),
    "seedrl evaluate": (2, "expected WORKDIR, got none"),
    "seedrl evaluate folder.py": (2, "expected the folder of a run with its config.json, got "),
    "seedrl evaluate nosuch": (2, "expected the folder of a run, but there is no nosuch"),
    "seedrl evaluate waiting": (2, "the run in waiting has not begun to train, so nothing is"),
    "seedrl evaluate afile": (2, "got afile (Not a directory)"),
    "seedrl evaluate untrained": (74, "expected a checkpoint in untrained/checkpoints, found none"),
    "seedrl digest folder.py": (74, "expected a checkpoint in folder.py/checkpoints, found none"),
    "seedrl replay-images folder.py": (74, "expected a checkpoint with its replay in folder.py"),
    "seedrl bench nosuch": (2, "unknown benchmark 'nosuch': expected pipeline, "),
    "check-env": (2, "expected ENVIRONMENT, got none"),
    "check-env CartPole-v9": (2, "cannot build CartPole-v9: VersionNotFound: Environment version"),
    "check-env math": (2, "Name an environment of your own as package.module:factory"),
    "check-env nosuch.env:make": (2, "No module named 'nosuch'; install it where the env server"),
    "check-env my-env:Base": (2, "did you mean my_env:Base"),
    "check-env env.py:Base": (2, "name the module, not its file: env:"),
    "check-env math:sqrt": (2, "cannot build math:sqrt: TypeError: "),
    "check-env CartPole-v1 --arguments '{'": (2, "expected a JSON object in environment.arguments"),
    "check-env CartPole-v1 --steps many": (2, "--steps: expected INT, got 'many' (see"),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with files to stumble over."""
    monkeypatch.chdir(tmp_path)
    for name, text in _FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "untrained").mkdir()
    (tmp_path / "waiting").mkdir()
    (tmp_path / "waiting" / "status.json").touch()
    for name in ("binary.py", "binary.json"):
        (tmp_path / name).write_bytes(b"\xff\x00\xfe")
    saved = config_io.to_json(config_io.load("cartpole_r2d2"))
    (tmp_path / "untrained" / "config.json").write_text(saved)
    (tmp_path / "newer.json").write_text(saved.replace('"seed": 0', '"seed": 0, "future": 3'))
    (tmp_path / "typed.json").write_text(saved.replace('"seed": 0', '"seed": "zero"'))
    own = config_io.to_json(config_io.load(tmp_path / "own.py"))
    (tmp_path / "own.json").write_text(own.replace('"number": 3', '"number": 0'))
    foreign = saved.replace("seedrl.agents.r2d2:R2D2Config", "other.agents:Agent")
    (tmp_path / "foreign.json").write_text(foreign)
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("command", "code", "text"), [(c, *e) for c, e in CASES.items()])
def test_a_mistake_is_one_line_and_an_exit_code(
    command: str, code: int, text: str, capfd: pytest.CaptureFixture[str]
) -> None:
    name = next(name for name in _PROGRAMS if command.startswith(name))
    prog, main = _PROGRAMS[name]
    with socket.create_server(("127.0.0.1", 0)) as taken, own_process.restored():
        command = command.replace("TAKEN", str(taken.getsockname()[1]))
        assert main(shlex.split(command.removeprefix(name))) == code
    out, err = capfd.readouterr()
    assert out == "" and "Traceback" not in err
    line = err.removesuffix("\n")
    assert line.startswith(f"{prog}: error: ") and line.isprintable() and text in line
