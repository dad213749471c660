"""Loading configurations from files."""

import sys
from pathlib import Path

import pytest

from seedrl import config_file, config_modules
from seedrl.config_json import to_json
from seedrl.errors import ConfigError
from tests.seedrl.own_config import write_own


@pytest.fixture(autouse=True)
def _isolated_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(config_modules, "_folders", [])


def write(folder: Path, text: str) -> Path:
    path = folder / "config.py"
    path.write_text(text)
    return path


def test_a_bundled_config_is_loaded_by_name() -> None:
    assert config_file.load("cartpole_r2d2").environment.id == "CartPole-v1"
    assert config_modules.import_folders() == ()


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
    assert config_modules.import_folders() == (str(tmp_path),)


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


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("\ndef rate(): return missing\nRATE = rate()", "helper_{}.py:2: NameError"),
        ("x = 1\ndef f(:", "helper_{}.py:2: invalid syntax"),
        ("\nimport json\njson.loads('[')", "helper_{}.py:3: JSONDecodeError"),
    ],
)
def test_an_error_in_an_imported_module_is_placed_there(
    tmp_path: Path, source: str, message: str
) -> None:
    unique = f"{abs(hash(tmp_path)):x}"
    (tmp_path / f"helper_{unique}.py").write_text(source)
    path = write(tmp_path, f"import helper_{unique}\n")
    with pytest.raises(ConfigError) as caught:
        config_file.load(path)
    assert str(caught.value).startswith(f"{tmp_path}/{message.format(unique)}")


def test_the_config_that_a_run_has_saved_is_loaded_by_its_path(tmp_path: Path) -> None:
    config = config_file.load("cartpole_r2d2")
    path = tmp_path / "config.json"
    path.write_text(to_json(config))
    assert config_file.load(path) == config
    path.write_text("{}")
    with pytest.raises(ConfigError, match=f"{path}: expected a saved config in JSON"):
        config_file.load(path)
