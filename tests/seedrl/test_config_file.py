"""Loading, saving and comparing configurations."""

import dataclasses
import json
import sys
from pathlib import Path

import pytest

from seedrl import config_file
from seedrl.config import Config, EnvironmentConfig
from seedrl.errors import ConfigError

OWN_CONFIG = '''
from dataclasses import dataclass
from {sibling} import LENGTH
from seedrl.config import Config, EnvironmentConfig

@dataclass(frozen=True, kw_only=True)
class OwnAgent:
    """An agent of a user.

    Attributes:
      unroll: trained steps.
    """

    unroll: int = LENGTH
    sizes: tuple[int, ...] = (1, 2)
    names: tuple[tuple[str, ...], ...] = ((), ("a",))
    table: object = None

def config():
    return Config(
        environment=EnvironmentConfig(id="own_env:make", wrappers=("a:b", "c:d")),
        agent=OwnAgent(table={{"type": [1, None, True, 0.5]}}),
    )
'''


@pytest.fixture(autouse=True)
def _isolated_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(config_file, "_folders", [])


def write_own(folder: Path, sibling: str) -> Path:
    (folder / f"{sibling}.py").write_text("LENGTH = 7\n")
    path = folder / "own.py"
    path.write_text(OWN_CONFIG.format(sibling=sibling))
    return path


def write(folder: Path, text: str) -> Path:
    path = folder / "config.py"
    path.write_text(text)
    return path


def test_a_bundled_config_is_loaded_by_name() -> None:
    assert config_file.load("cartpole_r2d2").environment.id == "CartPole-v1"
    assert config_file.import_folders() == ()


def test_an_installed_wheel_has_its_configs_inside_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "seedrl"
    (package / "configs").mkdir(parents=True)
    monkeypatch.setattr(config_file.seedrl, "__file__", str(package / "__init__.py"))
    assert config_file.bundled_folder() == package / "configs"
    (package / "configs").rmdir()
    assert config_file.bundled_folder() == tmp_path / "configs"


def test_a_users_file_imports_from_its_own_folder(tmp_path: Path) -> None:
    config = config_file.load(write_own(tmp_path, "own_sibling_a"))
    assert config.agent.unroll == 7
    assert config_file.import_folders() == (str(tmp_path),)


def test_two_files_of_the_same_name_do_not_mix(tmp_path: Path) -> None:
    source = (
        "from seedrl.config import *\n"
        "def config(): return Config(environment=EnvironmentConfig(id='{}'), agent=None)\n"
    )
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write(tmp_path / name, source.format(name))
    ids = [
        config_file.load(tmp_path / name / "config.py").environment.id for name in ("one", "two")
    ]
    assert ids == ["one", "two"]


def test_an_unknown_name_gets_a_suggestion_and_the_list() -> None:
    with pytest.raises(ConfigError, match="did you mean cartpole_r2d2") as caught:
        config_file.load("cartpole_r2d3")
    for name in config_file.bundled_names():
        assert name in str(caught.value)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ConfigError, match=r"there is no nowhere/own\.py"):
        config_file.load("nowhere/own.py")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = (\n", r"config\.py:1: '\(' was never closed"),
        ("\nimport no_such_module_at_all\n", r"config\.py:2: ModuleNotFoundError"),
        ("x = 1\n", r"expected a function `config\(\)`"),
        ("def config():\n  return 3\n", "expected a Config from config"),
        ("def config():\n  return undefined\n", r"config\.py:2: NameError: name 'undefined'"),
        (
            "from seedrl.config import *\ndef config():\n  return ServingConfig(slots=3)\n",
            r"config\.py:3: TypeError: .*unexpected keyword argument 'slots'",
        ),
    ],
)
def test_a_file_that_cannot_work_is_one_line_with_its_place(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        config_file.load(write(tmp_path, text))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", config_file.bundled_names())
def test_bundled_configs_survive_json(name: str) -> None:
    config = config_file.load(name)
    assert config_file.from_json(config_file.to_json(config)) == config


def test_an_agent_defined_in_the_config_file_survives_json(tmp_path: Path) -> None:
    path = write_own(tmp_path, "own_sibling_b")
    config = config_file.load(path)
    text = config_file.to_json(config)
    assert json.loads(text)["config"]["agent"]["type"] == f"{path}:OwnAgent"
    assert config_file.from_json(text) == config


def test_another_process_can_reload_what_was_saved(tmp_path: Path) -> None:
    config = config_file.load(write_own(tmp_path, "own_sibling_c"))
    text = config_file.to_json(config)
    for name in [name for name in sys.modules if str(tmp_path) in name or name == "own_sibling_c"]:
        del sys.modules[name]
    sys.path.remove(str(tmp_path))
    reloaded = config_file.from_json(text)
    assert reloaded.agent.sizes == (1, 2) and reloaded.agent.names == ((), ("a",))
    assert reloaded.agent.table == {"type": [1, None, True, 0.5]}
    assert type(reloaded.agent).__qualname__ == "OwnAgent"


def test_a_value_that_cannot_be_saved_is_named() -> None:
    config = Config(environment=EnvironmentConfig(id="x", wrappers=(print,)), agent=None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"config\.environment\.wrappers\.0: .*builtin_function"):
        config_file.to_json(config)


def change(text: str, *path: str, to: object) -> str:
    tree = json.loads(text)
    node = tree
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = to
    return json.dumps(tree)


def test_an_unknown_saved_field_is_refused_by_name() -> None:
    text = config_file.to_json(config_file.load("cartpole_r2d2"))
    changed = change(text, "config", "agent", "unrol", to=3)
    with pytest.raises(ConfigError, match=r"config\.agent\.unrol: .*did you mean unroll\?"):
        config_file.from_json(changed)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_package:Agent", "cannot import its class no_such_package:Agent"),
        ("seedrl.config:NoSuch", "cannot import its class"),
        ("os:system", "expected os:system to be a dataclass"),
        ("pathlib:Path", "expected pathlib:Path to be a dataclass"),
    ],
)
def test_a_saved_class_must_be_a_dataclass_that_can_be_imported(name: str, message: str) -> None:
    text = config_file.to_json(config_file.load("cartpole_r2d2"))
    with pytest.raises(ConfigError, match=f"config.agent: {message}"):
        config_file.from_json(change(text, "config", "agent", "type", to=name))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"import_from": [], "config": 3}'])
def test_text_that_is_no_saved_config_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expected a saved"):
        config_file.from_json(text)


def test_a_difference_names_each_field() -> None:
    config = config_file.load("cartpole_r2d2")
    other = dataclasses.replace(
        config,
        seed=3,
        agent=dataclasses.replace(config.agent, unroll=100),
    )
    assert config_file.difference(config, config) == []
    assert config_file.difference(config, other) == [
        f"agent.unroll: expected {config.agent.unroll}, got 100",
        "seed: expected 0, got 3",
    ]


def test_a_difference_of_classes_lists_the_fields_of_both() -> None:
    @dataclasses.dataclass(frozen=True)
    class Other:
        gamma: float = 0.5

    config = Config(environment=EnvironmentConfig(id="x"), agent=EnvironmentConfig(id="y"))
    other = dataclasses.replace(config, agent=Other())
    lines = config_file.difference(config, other)
    assert lines[0] == "agent.type: expected EnvironmentConfig, got Other"
    assert "agent.id: expected 'y', got nothing" in lines
    assert lines[-1] == "agent.gamma: expected nothing, got 0.5"
