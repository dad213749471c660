"""What a user may get wrong on a command line or in a file: each is one line and an exit code.

Environments with a defect are in `tests/envs_server/test_bad_environments.py`; what only running
processes can show is in `tests/system/test_errors.py`.
"""

import functools
import shlex
import socket
import tempfile
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
    "class.py": "from seedrl.agents.ppo import PpoConfig\n" + _SPOILT.format("agent=PpoConfig"),
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
HOST = f"{LEARNER} --process-count 2 --process-index 0 --coordinator a:1 "
ENV_SERVER = "env server --learner h:1 --num-envs 2 "

# Command -> what the line names, with exit code 2.
USAGE: dict[str, str] = {
    "seedrl trian": "train?",
    "seedrl train": "CONFIG",
    "seedrl train pong": "did you mean pong_ppo or pong_r2d2?",
    "seedrl train nosuch.py": "nosuch.py",
    "seedrl train untrained": "seedrl resume untrained continues it",
    "seedrl train cartpole_r2d2 --workdir empty.py": "it is a file",
    "seedrl train folder.py": "folder.py",
    "seedrl train binary.py": "/binary.py: SyntaxError",
    "seedrl train binary.json": "/binary.json",
    "seedrl train empty.json": "/empty.json",
    "seedrl train list.json": "/list.json",
    "seedrl train newer.json": "future",
    "seedrl train foreign.json": "--allow other.agents:Agent",
    "seedrl train typed.json": "config.seed: expected a whole number, got 'zero'",
    "seedrl train empty.py": "/empty.py",
    "seedrl train none.py": "/none.py: expected a Config",
    "seedrl train syntax.py": "/syntax.py:1",
    "seedrl train divides.py": "/divides.py:2: ZeroDivisionError",
    "seedrl train exits.py": "/exits.py:2: SystemExit",
    "seedrl train imports.py": "/imports.py:1: ModuleNotFoundError",
    "seedrl train field.py": "/field.py:2: TypeError",
    "seedrl train seed.py": "/seed.py: seed: expected a whole number, got '7'",
    "seedrl train environment.py": "environment: expected EnvironmentConfig",
    "seedrl train agent.py": "agent: expected",
    "seedrl train replay.py": "replay: expected",
    "seedrl train class.py": "agent: expected an instance of a frozen dataclass, got <class",
    "seedrl train own_range.py": "/own_range.py:16: agent.epsilon: expected 0 to 1, got 2.0",
    "seedrl train own_lost.py": "/own_lost.py",
    "seedrl train own.py --agent.epsilon 3": "agent.epsilon: expected 0 to 1, got 3.0",
    "seedrl train own.py --agent.number 0": "no number",
    "seedrl train own.json --allow .": "/own.json: config.agent: AssertionError: no number",
    "seedrl train 'mein Lauf ü/konfig ß.py'": "/mein Lauf ü/konfig ß.py: expected a Config",
    f"{TRAIN} --agent.learning-rat 1": "did you mean --agent.learning-rate or",
    f"{TRAIN} --lr 1": "did you mean --agent.learning-rate?",
    f"{TRAIN} --learn.total 1": "did you mean --learning.total-steps?",
    f"{TRAIN} --max-sec 1": "did you mean --learning.max-seconds?",
    f"{TRAIN} --agent.priority-mix 1": "agent.priority_mix is now agent.priority_eta",
    f"{TRAIN} --launch.restarts 3": "launch.restarts is now automatic",
    f"{TRAIN} --agent.network.torso-sizes 64,64": "torso-sizes: expected INT, several",
    f"{TRAIN} --checkpoint.no_replay=true": "--checkpoint.no-replay: ",
    f"{TRAIN} --envs 2 --serving.training-slots=3": "--serving.training-slots",
    "seedrl launch cartpole_ppo --on ray --groups 2 --launch.groups=3": "--groups",
    f"{TRAIN} --seed abc": "--seed",
    f"{TRAIN} --seed 99999999999": "seed: expected 0 to 2147483647, got 99999999999",
    f"{TRAIN} --agent.network.torso cnn": "--agent.network.torso",
    f"{TRAIN} --agent.unroll": "--agent.unroll: ",
    f"{TRAIN} --agent.value-scaling right": "--agent.no-value-scaling turns it off",
    f"{TRAIN} right --agent.value-scaling": "unknown option right",
    f"{TRAIN} --agent.network.core-size 0": "network.core_size",
    f"{TRAIN} --workdir {'x' * 300}": "too long",
    f"{TRAIN} --resume maybe": "--resume",
    f"{TRAIN} --init-from-partial": "--init-from-partial",
    f"{TRAIN} --environment.arguments '{{gravity: 3}}'": "expected a JSON object such as",
    f"{TRAIN} --environment.arguments [1]": "environment.arguments",
    f"{TRAIN} --environment.id ''": "environment.id",
    f"{TRAIN} --serving.training-slots -1": "serving.training_slots",
    f"{TRAIN} --learning.total-steps 0": "learning.total_steps",
    f"{TRAIN} --checkpoint.keep 1": "checkpoint.keep",
    f"{TRAIN} --replay.capacity-steps 10": "replay.capacity_steps",
    f"{TRAIN} --evaluation.target-return nan": "--evaluation.target-return",
    f"{TRAIN} --env-servers 0": "launch.env_servers",
    f"{TRAIN} --groups 1001": "launch.groups",
    f"{TRAIN} --env-servers 3 --launch.envs-per-server 1": "launch.envs_per_server",
    f"{TRAIN} --bind 127.0.0.1:99999": "serving.bind",
    f"{TRAIN} --bind 127.0.0.1": "unix:/path, got '127.0.0.1'",
    f"{TRAIN} --bind localhost:0": "serving.bind",
    f"{TRAIN} --bind 0.0.0.0:8686": "serving.bind",
    f"{TRAIN} --workdir afile/run": "--workdir",
    f"{TRAIN} --workdir ''": "--workdir: expected PATH",
    f"{TRAIN} --workdir /proc/run": "--workdir",
    f"{TRAIN} --workdir w\udce4": "--workdir: expected a path in UTF-8",
    "learner cartpole_r2d2": "--workdir",
    "learner cartpole_r2d2 --workdir afile/run": "--workdir",
    f"{LEARNER} --bind unix:afile/socket --serving.insecure": "serving.bind",
    # Of the four devices that tests have.
    f"{LEARNER} --learning.num-devices 8": "learning.num_devices",
    f"{LEARNER} --learning.num-devices 2 --serving.inference-devices 3": "learning.num_devices",
    f"{LEARNER} --serving.inference-devices 4": "serving.inference_devices",
    f"{LEARNER} --learning.batch-sequences 6": "learning.batch_sequences",
    f"{LEARNER} --serving.training-slots 3": "at least one for each of the 4 learning devices",
    f"{LEARNER} --learning.num-devices 1 --serving.inference-devices 3 "
    "--serving.training-slots 2": "at least one for each of the 3 inference devices",
    f"{LEARNER} --process-count 2 --process-index 0": "--coordinator",
    f"{LEARNER} --process-count 2 --coordinator a:1": "--process-index",
    f"{LEARNER} --process-count 2 --process-index 2 --coordinator a:1": "--process-index",
    f"{LEARNER} --process-count 2 --process-index -1 --coordinator a:1": "--process-index",
    f"{LEARNER} --process-count 2 --process-index 0 --coordinator a": "--coordinator",
    f"{LEARNER} --process-count 2 --process-index 0 --coordinator a:0": "--coordinator",
    f"{LEARNER} --process-count 2 --process-index 0 --coordinator :7": "--coordinator",
    f"{LEARNER} --process-count 0": "--process-count",
    HOST: "serving.token_file",
    f"{HOST} --serving.token-file afile": "16 to 1024",
    f"{HOST} --checkpoint.replay": "checkpoint.replay: expected false with --process-count",
    HOST.replace("cartpole_r2d2", "pendulum_ppo"): "--process-count: learning.schedule",
    f"{LEARNER} --coordinator a:1": "--process-count",
    "env server": "--learner",
    "env server --learner 127.0.0.1 --num-envs 2": "--learner",
    "env server --learner h:99999 --num-envs 2": "--learner",
    # Without a port gRPC would take 443, and wait for ever.
    "env server --learner h:0 --num-envs 2": "h:0",
    "env server --learner h:1 --num-envs x": "--num-envs",
    "env server --learner h:1 --num-envs -3": "--num-envs",
    f"env server --learner h:1 --num-envs {10**20}": "--num-envs",
    f"{ENV_SERVER} --alow-env x:*": "--alow-env",
    f"{ENV_SERVER} --group 3": "--group",
    f"{ENV_SERVER} --processes 0": "--processes",
    f"{ENV_SERVER} --groups 1001": "--groups",
    f"{ENV_SERVER} --token-file f": "--token-file",
    f"{ENV_SERVER} --certificate f": "--certificate",
    "seedrl evaluate": "RUN",
    "seedrl evaluate folder.py": "folder.py",
    "seedrl evaluate nosuch": "nosuch",
    "seedrl evaluate untrained --allow ''": "--allow: expected directories or names",
    "seedrl evaluate waiting": "waiting",
    "seedrl evaluate afile": "afile",
    "seedrl evaluate untrained --best --update 7": "--update",
    "seedrl evaluate untrained --episodes 0": "--episodes",
    "seedrl evaluate untrained --seed -1": "--seed",
    "seedrl evaluate untrained --seed 99999999999": "--seed: expected 0 to 2147483647",
    "seedrl evaluate untrained --best --save": "--save",
    "seedrl evaluate scored --save": "--save",
    "seedrl record untrained --episodes 0": "--episodes",
    "seedrl record tokens": "seedrl watch tokens",
    "seedrl export untrained --best --update 3": "--update",
    "seedrl export untrained --output a --safetensors b": "--safetensors",
    "seedrl pretrain reverse_grpo --workdir afile/warm": "--workdir: cannot write in",
    "seedrl pretrain tokens.json": "--allow subprocess:run",
    "seedrl pretrain reverse_grpo --dialogues empty.json": "expected at least one dialogue",
    "seedrl pretrain reverse_grpo --dialogues list.json": "list.json, line 1: ",
    "seedrl balance nosuch": "nosuch",
    "seedrl balance pendulum_ppo": "learning.schedule",
    "seedrl balance reverse_grpo": "agent",
    "seedrl balance cartpole_r2d2 --slower-ms 3": "--slower-ms",
    "seedrl balance cartpole_r2d2 --most-env-servers 1": "--most-env-servers",
    "seedrl balance cartpole_r2d2 --seconds 0": "--seconds",
    "seedrl balance cartpole_r2d2 --environments 8": "--environments",
    "seedrl balance cartpole_r2d2 --step-ms -1": "--step-ms",
    "seedrl balance cartpole_r2d2 --accelerator 0": "--accelerator",
    "seedrl balance cartpole_r2d2 --output nosuch/a.png": "--output",
    "seedrl balance cartpole_r2d2 --output /proc/a.png": "--output: cannot write in /proc",
    "seedrl tune cartpole_r2d2 --output /proc/a.json": "--output: cannot write in /proc",
    "seedrl tune nosuch": "nosuch",
    "seedrl tune cartpole_r2d2 --total-seconds 0": "--total-seconds",
    "seedrl tune cartpole_r2d2 --most-env-servers 0": "--most-env-servers",
    "seedrl tune pendulum_ppo": "learning.schedule",
    **{f"seedrl {name} coded": "os:system" for name in ("tune", "bounds", "balance")},
    **{
        f"seedrl {name} cartpole_r2d2 --launch.env-servers 0": "launch.env_servers"
        for name in ("tune", "bounds", "balance")
    },
    f"{TRAIN} --profile nosuch.json": "--profile",
    f"{TRAIN} --balance always": "--balance",
    f"{TRAIN} --balance auto --launch.envs-per-server 66": "launch.envs_per_server",
    f"{TRAIN} --balance auto --most-env-servers 0": "--most-env-servers",
    "seedrl train pendulum_ppo --balance auto": "learning.schedule",
    "seedrl train reverse_grpo --balance auto": "agent",
    "seedrl bounds nosuch": "nosuch",
    "seedrl bounds waiting": "waiting",
    "seedrl bounds cartpole_r2d2 --rounds 0": "--rounds",
    "seedrl bounds cartpole_r2d2 --seconds 0": "--seconds",
    "seedrl bounds cartpole_r2d2 --serving.training-slots 0": "serving.training_slots",
    "seedrl bench nosuch": "nosuch",
    "seedrl bench --rounds 0": "--rounds",
    "seedrl bench --seconds 0": "--seconds",
    "seedrl bench --output nosuch/bench.json": "--output",
    "seedrl certificates new --days 0": "--days",
    "seedrl certificates new --host möglich.example": "--host",
    "seedrl certificates new --host learner.example:8686": "--host",
    "seedrl compare": "RUN",
    "seedrl compare nosuch": "nosuch",
    "seedrl compare folder.py": "folder.py",
    "seedrl experiment nosuch.toml": "nosuch.toml",
    "seedrl launch cartpole_r2d2": "--on",
    "seedrl launch cartpole_r2d2 --on slurm": "--on",
    "seedrl launch cartpole_r2d2 --on ray --learner-cpus 0": "--learner-cpus",
    "seedrl launch cartpole_r2d2 --on ray --learner-gpus 1.5": "--learner-gpus",
    "seedrl launch cartpole_r2d2 --on ray --learner-gpus -1": "--learner-gpus",
    "seedrl launch cartpole_r2d2 --on ray --learner-tpus -1": "--learner-tpus",
    "seedrl launch cartpole_r2d2 --on ray --wait-seconds 0": "--wait-seconds",
    "seedrl launch cartpole_r2d2 --on ray --serving.bind 127.0.0.1:1": "serving.bind",
    "seedrl runs nosuch": "nosuch",
    "seedrl watch nosuch": "nosuch",
    "seedrl watch folder.py --port 65536": "--port",
    "seedrl watch folder.py --bind 0.0.0.0": "--bind",
    "check-env": "ENVIRONMENT",
    "check-env CartPole-v9": "cannot build CartPole-v9: VersionNotFound: Environment version",
    "check-env math": "Name an environment of your own as package.module:factory",
    "check-env nosuch.env:make": "No module named 'nosuch'; install it where the env server",
    "check-env my-env:Base": "did you mean my_env:Base",
    "check-env env.py:Base": "name the module, not its file: env:",
    "check-env math:sqrt": "cannot build math:sqrt: TypeError: ",
    "check-env math:sqrt --arguments '{\"x\": 1}'": "cannot build math:sqrt with {'x': 1}: Type",
    "check-env collections:Counter": "from collections:Counter, got an object of type Counter",
    "check-env CartPole-v1 --arguments '{'": "environment.arguments",
    "check-env mine:make --environment.arguments {}": "did you mean --arguments?",
    "check-env CartPole-v1 --steps many": "--steps",
    "check-env CartPole-v1 --max-abs-reward -5": "--max-abs-reward",
}
# The same with another exit code.
OTHERS: dict[str, tuple[int, str]] = {
    f"{LEARNER} --resume must": (74, "start the run again by --resume auto"),
    "learner cartpole_r2d2 --workdir w --bind 127.0.0.1:TAKEN --serving.insecure": (
        75,
        "127.0.0.1",
    ),
    "seedrl watch untrained --port TAKEN": (75, "port "),
    "seedrl evaluate untrained": (74, "untrained/checkpoints"),
    "seedrl evaluate untrained --best": (74, "untrained/checkpoints"),
    "seedrl checkpoints folder.py": (74, "folder.py, which"),
    "seedrl digest folder.py": (74, "folder.py/checkpoints"),
}
CASES = [*((command, 2, name) for command, name in USAGE.items())]
CASES += [(command, *case) for command, case in OTHERS.items()]


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
    saved, own = _saved()
    (tmp_path / "untrained" / "config.json").write_text(saved)
    # A folder is in the place of the file.
    (tmp_path / "scored" / "final_score.json").mkdir(parents=True)
    (tmp_path / "scored" / "config.json").write_text(saved)
    (tmp_path / "coded").mkdir()
    (tmp_path / "coded" / "config.json").write_text(saved.replace("CartPole-v1", "os:system"))
    (tmp_path / "newer.json").write_text(saved.replace('"seed": 0', '"seed": 0, "future": 3'))
    (tmp_path / "typed.json").write_text(saved.replace('"seed": 0', '"seed": "zero"'))
    own = own.replace("FOLDER", str(tmp_path)).replace('"number": 3', '"number": 0')
    (tmp_path / "own.json").write_text(own)
    tokens = config_io.to_json(config_io.load("reverse_grpo"))
    (tmp_path / "tokens").mkdir()
    (tmp_path / "tokens" / "config.json").write_text(tokens)
    tokens = tokens.replace("envs_server.envs.token_tasks:reverse", "subprocess:run")
    (tmp_path / "tokens.json").write_text(tokens)
    foreign = saved.replace("seedrl.agents.r2d2:R2D2Config", "other.agents:Agent")
    (tmp_path / "foreign.json").write_text(foreign)
    return tmp_path


@functools.cache
def _saved() -> tuple[str, str]:
    """Saved configurations, made once: of CartPole, and of `own.py` in a folder FOLDER."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "own.py")
        path.write_text(_FILES["own.py"])
        own = config_io.to_json(config_io.load(path)).replace(folder, "FOLDER")
    return config_io.to_json(config_io.load("cartpole_r2d2")), own


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("command", "code", "text"), CASES)
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
