"""Configurations as files: loaded, saved without loss, and run only if that is allowed."""

import dataclasses
import json
import os
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from seedrl import config_io
from seedrl.config import Config, EnvironmentConfig
from seedrl.errors import ConfigError
from seedrl.fields import with_fields
from tests import started

# A configuration as a user writes it: with an agent of its own, beside a module of its own.
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
        agent=OwnAgent(table=(1, None, True, 0.5)),
    )
'''


def write_own(folder: Path, sibling: str) -> Path:
    """The path of such a configuration in `folder`, which imports a module named `sibling`."""
    (folder / f"{sibling}.py").write_text("LENGTH = 7\n")
    path = folder / "own.py"
    path.write_text(OWN_CONFIG.format(sibling=sibling))
    return path


CARTPOLE = config_io.load("cartpole_r2d2")
SAVED = config_io.to_json(CARTPOLE)


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(config_io, "_folders", [])
    monkeypatch.setattr(config_io, "_allowed_names", set())


def refused(text: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        config_io.from_json(text)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def change(*path: str, to: object) -> str:
    """The saved config of CartPole with another value."""
    tree: Any = json.loads(SAVED)
    node = tree
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = to
    return json.dumps(tree)


# Files.


def test_two_files_of_one_name_do_not_mix_and_import_from_beside_them(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        path = write_own(tmp_path / name, f"own_{name}")
        path.write_text(path.read_text().replace("own_env:make", name))
    configs = [config_io.load(tmp_path / name / "own.py") for name in ("one", "two")]
    assert [config.environment.id for config in configs] == ["one", "two"]
    assert configs[0].agent.unroll == 7
    assert config_io.import_folders() == (str(tmp_path / "one"), str(tmp_path / "two"))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("from seedrl.config import *\nLearningConfig(regime=3)", "is now learning.schedule"),
        # An error in an imported module is placed there.
        ("import helper_a", "helper_a.py:2: NameError"),
        ("import helper_b", "helper_b.py:3: JSONDecodeError"),
    ],
)
def test_a_file_that_cannot_work_is_one_line_with_its_place(
    tmp_path: Path, text: str, named: str
) -> None:
    (tmp_path / "helper_a.py").write_text("\ndef rate(): return missing\nRATE = rate()")
    (tmp_path / "helper_b.py").write_text("\nimport json\njson.loads('[')")
    path = tmp_path / "own.py"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        config_io.load(path)
    line = str(caught.value)
    assert named in line and line.startswith(str(tmp_path)) and "\n" not in line


def test_a_saved_config_is_a_regular_file_of_bounded_size(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    os.mkfifo(path)
    with pytest.raises(ConfigError):
        config_io.load(path)
    path.unlink()
    path.write_text(SAVED)
    assert config_io.load(path) == CARTPOLE
    path.write_text(SAVED + " " * 2**24)
    with pytest.raises(ConfigError):
        config_io.load(path)


@pytest.mark.parametrize("kind", ["file", "module"])
def test_a_thread_that_loads_waits_while_another_imports_the_same_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    gate = SimpleNamespace(begin=begun.set, wait=lambda: go_on.wait(30.0))
    monkeypatch.setitem(sys.modules, f"gate_{kind}", gate)
    path = write_own(tmp_path, f"own_sibling_of_{kind}")
    path = path.rename(tmp_path / f"threads_{kind}.py")
    path.write_text(f"import gate_{kind} as gate\ngate.begin(); gate.wait()\n{path.read_text()}")
    name = path if kind == "file" else path.stem
    (tmp_path / "config.json").write_text(
        change("config", "agent", to={"type": f"{name}:OwnAgent"})
    )
    config_io.allow(tmp_path)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(config_io.load, tmp_path / "config.json")
        assert begun.wait(30.0)
        second = pool.submit(config_io.load, tmp_path / "config.json")
        wait([second], timeout=0.2)  # it can only have failed by now
        go_on.set()
        assert first.result() == second.result()


# JSON.


@pytest.mark.parametrize("name", config_io.bundled_names())
def test_bundled_configs_survive_json(name: str) -> None:
    config = config_io.load(name)
    assert config_io.from_json(config_io.to_json(config)) == config


def test_another_process_can_reload_what_a_users_file_makes(tmp_path: Path) -> None:
    path = write_own(tmp_path, "own_sibling_c")
    config = config_io.load(path)
    text = config_io.to_json(config)
    assert json.loads(text)["config"]["agent"]["type"] == f"{path}:OwnAgent"
    assert config_io.from_json(text) == config
    for name in [name for name in sys.modules if str(tmp_path) in name or name == "own_sibling_c"]:
        del sys.modules[name]
    sys.path.remove(str(tmp_path))
    config_io._folders.clear()
    assert refused(text).endswith(f"add --allow {tmp_path}")
    assert str(tmp_path) not in sys.path
    config_io.allow(path)
    reloaded = config_io.from_json(text)
    assert reloaded.agent.sizes == (1, 2) and reloaded.agent.names == ((), ("a",))
    assert reloaded.agent.table == (1, None, True, 0.5)
    assert type(reloaded.agent).__qualname__ == "OwnAgent"


@dataclasses.dataclass(frozen=True)
class Typed:
    type: str = "gru"


@pytest.mark.parametrize(
    ("value", "field"),
    [((print,), "config.agent.0: "), (Typed(), "config.agent.type: "), ([3], "config.agent: ")],
)
def test_a_value_that_cannot_be_saved_is_named(value: object, field: str) -> None:
    config = Config(environment=EnvironmentConfig(id="x"), agent=value)
    with pytest.raises(ConfigError) as caught:
        config_io.to_json(config)
    assert str(caught.value).startswith(field)


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", "3", "null", '{"import_from": [], "config": 3}', None, 3, "[" * 100_000),
        *('{"import_from": 3, "config": {}}', '{"import_from": [3], "config": {}}'),
        '{"import_from": [], "config": {}}',
        change("config", "agent", "unrol", to=3),
        change("config", "environment", "arguments", to=json.loads("[" * 900 + "]" * 900)),
        *(change("config", "agent", "type", to=value) for value in (3, {"a": 1})),
        change("config", "agent", to={"type": "list", "items": []}),
        change("config", "environment", to=[]),
        change("config", "environment", "wrappers", to=[3]),
        change("config", "seed", to="zero"),
        change("config", "seed", to={"type": "list", "items": []}),
        change("config", "learning", to="x"),
    ],
)
def test_a_saved_config_of_wrong_types_or_shapes_is_one_line(text: Any) -> None:
    line = refused(text)
    place = re.search(r"config\.(agent|environment|seed|learning)", line)
    assert place or "saved" in line or line.startswith("config: ")


def test_a_field_of_an_earlier_version_is_refused_with_its_new_name() -> None:
    for section, old, new in (
        ("agent", "priority_mix", "agent.priority_eta"),
        ("learning", "replay_ratio", "replay.ratio"),
        ("learning", "regime", "learning.schedule"),
        ("launch", "restarts", "automatic"),
    ):
        assert f"{section}.{old} is now {new}" in refused(change("config", section, old, to=3))


def test_a_difference_names_each_field_and_class_without_importing_any() -> None:
    other = with_fields(CARTPOLE, {"agent.unroll": 100, "seed": 3})
    assert config_io.difference(SAVED, SAVED) == []
    assert config_io.difference(SAVED, config_io.to_json(other)) == [
        "agent.unroll: expected 20, got 100",
        "seed: expected 0, got 3",
    ]
    for name in ("other.agents:R2D2Config", "seedrl.agents.r2d2:Other", "/gone/own.py:R2D2Config"):
        moved = change("config", "agent", "type", to=name)
        assert [line.partition(":")[0] for line in config_io.difference(moved, SAVED)] == [
            "agent.type"
        ]
    files = [change("config", "agent", "type", to=f"/{a}/own.py:Own") for a in "ab"]
    assert config_io.difference(*files) == []


# Code.

MARKER = "import pathlib; pathlib.Path(__file__).with_name('has_run').touch()\n"


@pytest.mark.parametrize("kind", ["{folder}/evil.py:Agent", "evil:Agent"])
@pytest.mark.parametrize("imports", [[], ["{folder}"]])
def test_a_run_of_somebody_else_runs_no_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, imports: list[str]
) -> None:
    sys.modules.pop("evil", None)  # of another test
    (tmp_path / "evil.py").write_text(MARKER)
    document = json.loads(change("config", "agent", "type", to=kind.format(folder=tmp_path)))
    document["import_from"] = [path.format(folder=tmp_path) for path in imports]
    (tmp_path / "config.json").write_text(json.dumps(document))
    with pytest.raises(ConfigError) as caught:
        config_io.load(tmp_path / "config.json")
    assert not (tmp_path / "has_run").exists()
    is_found = kind.startswith("{") or bool(imports)
    assert (f"--allow {tmp_path}" in str(caught.value)) == is_found
    config_io.allow(tmp_path)
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "evil.py").write_text(MARKER)
    monkeypatch.syspath_prepend(tmp_path / "here")
    with pytest.raises(ConfigError):  # it has no such class
        config_io.load(tmp_path / "config.json")
    assert (tmp_path / "has_run").exists() and not (tmp_path / "here" / "has_run").exists()


def test_a_folder_that_may_be_a_runs_is_not_on_the_path_of_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text(SAVED)
    monkeypatch.chdir(tmp_path)
    assert str(tmp_path) in config_io.path_for_children().split(os.pathsep)
    config_io.load(tmp_path / "config.json")
    for own, folders in (("", []), (f"{os.pathsep}/own", ["/own"])):  # no empty entry: it is here
        monkeypatch.setenv("PYTHONPATH", own)
        assert config_io.folders_for_children() == folders
    (tmp_path / "mine.py").touch()
    config_io.allow("mine:make")
    assert str(tmp_path) in config_io.path_for_children().split(os.pathsep)


NOT_IMPORTED = """
import sys
from seedrl import config_io
from seedrl.errors import ConfigError
before = set(sys.modules)
for name in sys.argv[2:]:
    text = open(sys.argv[1]).read().replace("seedrl.agents.r2d2:R2D2Config", name)
    try:
        config_io.from_json(text)
    except ConfigError as error:
        assert str(error).startswith("config.agent: "), error
        print("refused")
print(sorted(name for name in set(sys.modules) - before if not name.startswith("seedrl.")))
"""


def test_no_module_is_imported_because_a_saved_config_names_it(tmp_path: Path) -> None:
    (tmp_path / "test_evil.py").write_text(MARKER)
    (tmp_path / "sitting_here.py").write_text(MARKER)
    (tmp_path / "config.json").write_text(SAVED)
    names = [
        *("unittest.__main__:X", "numpy.f2py.__main__:X", "antigravity:X", "sitting_here:X"),
        *("subprocess:Popen", "os:system", "seedrl.no_such:X", "seedrl.config:NoSuch", "X", ":X"),
        *("seedrl.config:dataclasses.Field", "pathlib:Path", "..a:X", "seedrl.:X"),
    ]
    done = started.python("-c", NOT_IMPORTED, "config.json", *names, cwd=tmp_path)
    assert done.stdout.splitlines() == [*["refused"] * len(names), "[]"], done.stderr
    assert not (tmp_path / "has_run").exists()


def test_factories_of_a_run_are_allowed_by_name_or_with_their_folder(tmp_path: Path) -> None:
    config_io.require_factories(["CartPole-v1", "envs_server.envs.catch:make"])
    (tmp_path / "recall.py").touch()
    names = ["recall:make", "subprocess:run"]
    # As in a run that was trained with that folder: a name alone would not be found elsewhere.
    config_io.from_json(change("import_from", to=[str(tmp_path)]))
    for expected in (f"--allow {tmp_path} subprocess:run", "--allow subprocess:run"):
        with pytest.raises(ConfigError) as caught:
            config_io.require_factories(names)
        assert str(caught.value).endswith(expected)
        config_io.allow(tmp_path)
    config_io.allow("subprocess:*")
    config_io.require_factories(names)


def test_the_arguments_of_allow_follow_from_a_saved_config(tmp_path: Path) -> None:
    assert config_io.to_allow(SAVED) == []
    assert config_io.to_allow(change("config", "agent", "type", to="p.q:Own")) == ["p.q:Own"]
    (tmp_path / "own_env.py").touch()
    text = config_io.to_json(config_io.load(write_own(tmp_path, "own_sibling_d")))
    assert config_io.to_allow(text) == [str(tmp_path), "a:b", "c:d"]


def test_a_configs_folder_comes_before_the_current_one_here_and_in_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside, current = tmp_path / "beside", tmp_path / "current"
    for folder in (beside, current):
        folder.mkdir()
        (folder / "twin_of_two.py").touch()
    (current / "only_here.py").touch()
    monkeypatch.chdir(current)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    # As in a learner: Python has put the current folder there, and then PYTHONPATH.
    sys.path[:] = [str(current), str(beside), "others"]
    config_io.import_from(beside)
    assert sys.path == [str(beside), str(current), "others"]
    path = config_io.path_for_children()
    assert path == os.pathsep.join(map(str, (beside, current, tmp_path)))
    # -S: this environment's own packages are not on the path.
    source = "import twin_of_two as t, only_here as o; print(t.__file__, o.__file__)"
    command = [sys.executable, "-P", "-S", "-c", source]
    found = subprocess.check_output(command, env={"PYTHONPATH": path}, text=True)
    assert found.split() == [f"{beside}/twin_of_two.py", f"{current}/only_here.py"]
