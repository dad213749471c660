"""Configurations as JSON: nothing is lost, and what does not fit is named."""

import json
import sys
from pathlib import Path

import pytest

from seedrl import config_file, config_json, config_modules
from seedrl.config import Config, EnvironmentConfig
from seedrl.errors import ConfigError
from tests.seedrl.own_config import write_own


@pytest.fixture(autouse=True)
def _isolated_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(config_modules, "_folders", [])
    monkeypatch.setattr(config_modules, "_allowed_folders", set())
    monkeypatch.setattr(config_modules, "_allowed_names", set())


@pytest.mark.parametrize("name", config_file.bundled_names())
def test_bundled_configs_survive_json(name: str) -> None:
    config = config_file.load(name)
    assert config_json.from_json(config_json.to_json(config)) == config


def test_an_agent_defined_in_the_config_file_survives_json(tmp_path: Path) -> None:
    path = write_own(tmp_path, "own_sibling_b")
    config = config_file.load(path)
    text = config_json.to_json(config)
    assert json.loads(text)["config"]["agent"]["type"] == f"{path}:OwnAgent"
    assert config_json.from_json(text) == config


def test_another_process_can_reload_what_was_saved(tmp_path: Path) -> None:
    config = config_file.load(write_own(tmp_path, "own_sibling_c"))
    text = config_json.to_json(config)
    for name in [name for name in sys.modules if str(tmp_path) in name or name == "own_sibling_c"]:
        del sys.modules[name]
    sys.path.remove(str(tmp_path))
    config_modules._folders.clear()
    own = tmp_path / "own.py"
    with pytest.raises(ConfigError, match=f"{own} is code .* add --allow {tmp_path}$"):
        config_json.from_json(text)
    assert str(tmp_path) not in sys.path
    config_modules.allow(own)
    reloaded = config_json.from_json(text)
    assert reloaded.agent.sizes == (1, 2) and reloaded.agent.names == ((), ("a",))
    assert reloaded.agent.table == {"type": [1, None, True, 0.5]}
    assert type(reloaded.agent).__qualname__ == "OwnAgent"


def test_a_value_that_cannot_be_saved_is_named() -> None:
    config = Config(environment=EnvironmentConfig(id="x", wrappers=(print,)), agent=None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"config\.environment\.wrappers\.0: .*builtin_function"):
        config_json.to_json(config)


def change(text: str, *path: str, to: object) -> str:
    tree = json.loads(text)
    node = tree
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = to
    return json.dumps(tree)


def test_an_unknown_saved_field_is_refused_by_name() -> None:
    text = config_json.to_json(config_file.load("cartpole_r2d2"))
    changed = change(text, "config", "agent", "unrol", to=3)
    with pytest.raises(ConfigError, match=r"config\.agent\.unrol: .*did you mean unroll\?"):
        config_json.from_json(changed)


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
    text = config_json.to_json(config_file.load("cartpole_r2d2"))
    with pytest.raises(ConfigError, match=f"config.agent: {message}"):
        config_json.from_json(change(text, "config", "agent", "type", to=name))


MARKER = "import pathlib; pathlib.Path(__file__).with_name('has_run').touch()\n"


@pytest.mark.parametrize("kind", ["{folder}/evil.py:Agent", "evil:Agent"])
@pytest.mark.parametrize("imports", [[], ["{folder}"]])
def test_a_run_of_somebody_else_runs_no_code(tmp_path: Path, kind: str, imports: list[str]) -> None:
    (tmp_path / "evil.py").write_text(MARKER)
    text = config_json.to_json(config_file.load("cartpole_r2d2"))
    text = change(text, "config", "agent", "type", to=kind.format(folder=tmp_path))
    text = change(text, "import_from", to=[path.format(folder=tmp_path) for path in imports])
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(
        ConfigError, match=r"config\.agent: cannot import its class .*evil"
    ) as refused:
        config_json.of_run(tmp_path)
    assert not (tmp_path / "has_run").exists()
    assert (f"--allow {tmp_path}" in str(refused.value)) == (kind.startswith("{") or bool(imports))
    config_modules.allow(tmp_path)
    with pytest.raises(ConfigError):  # it has no such class
        config_json.of_run(tmp_path)
    assert (tmp_path / "has_run").exists() == (kind.startswith("{") or bool(imports))


def test_factories_of_a_run_are_allowed_by_name_or_with_their_folder(tmp_path: Path) -> None:
    config_json.require_factories(["CartPole-v1", "envs_server.envs.catch:make"])
    (tmp_path / "recall.py").touch()
    names = ["recall:make", "subprocess:run"]
    with pytest.raises(ConfigError, match="add --allow recall:make subprocess:run$"):
        config_json.require_factories(names)
    config_modules.allow(tmp_path)
    with pytest.raises(ConfigError, match="add --allow subprocess:run$"):
        config_json.require_factories(names)
    config_modules.allow("subprocess:*")
    config_json.require_factories(names)


def test_what_a_run_needs_to_be_allowed_is_known(tmp_path: Path) -> None:
    assert config_json.to_allow(config_json.to_json(config_file.load("cartpole_r2d2"))) == []
    (tmp_path / "own_env.py").touch()
    text = config_json.to_json(config_file.load(write_own(tmp_path, "own_sibling_d")))
    assert config_json.to_allow(text) == [str(tmp_path), "a:b", "c:d"]


def test_a_package_that_misses_a_file_is_not_a_folder_without_a_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_weights.py").write_text("open('/no/such/weights')")
    text = config_json.to_json(config_file.load("cartpole_r2d2"))
    text = change(text, "config", "agent", "type", to="own_weights:Agent")
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(FileNotFoundError, match="/no/such/weights"):
        config_json.of_run(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"import_from": [], "config": 3}'])
def test_text_that_is_no_saved_config_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expected a saved"):
        config_json.from_json(text)


def test_a_config_with_the_field_names_of_an_earlier_version_says_what_to_change() -> None:
    document = json.loads(config_json.to_json(config_file.load("cartpole_r2d2")))
    learning = document["config"]["learning"]
    del learning["schedule"]
    learning |= {"lock_step": False, "replay_ratio": 4.0}
    agent = document["config"]["agent"]
    agent["priority_mix"] = agent.pop("priority_eta")
    with pytest.raises(ConfigError) as refused:
        config_json.from_json(json.dumps(document))
    for old, new in (
        ("agent.priority_mix", "agent.priority_eta"),
        ("learning.replay_ratio", "replay.ratio"),
        ("learning.lock_step", "learning.schedule"),
    ):
        assert f"{old} is now {new}" in str(refused.value)
    agent["priority_eta"] = agent.pop("priority_mix")
    learning["schedule"] = "asynchronous"
    document["config"]["replay"]["ratio"] = learning.pop("replay_ratio")
    del learning["lock_step"]
    assert config_json.from_json(json.dumps(document)) == config_file.load("cartpole_r2d2")


def test_the_classes_of_an_agent_are_known_without_importing_them() -> None:
    text = config_json.to_json(config_file.load("cartpole_r2d2"))
    moved = text.replace("seedrl.agents.r2d2:R2D2Config", "/gone/config.py:Own")
    network = "seedrl.networks.config:QNetworkConfig"
    expected = {"agent.type": "/gone/config.py:Own", "agent.network.type": network}
    assert config_json.agent_classes(moved) == expected
    assert config_json.is_same_class("/gone/v1.py:Own", "/here/v2.py:Own")
    assert not config_json.is_same_class("/gone/config.py:Own", "config:Own")
    assert not config_json.is_same_class("/gone/config.py:Own", "/gone/config.py:Other")
    assert not config_json.is_same_class("own.agents:Config", "other.agents:Config")
