"""A learner may name what the env server's patterns admit, and nothing else."""

import os
import sys
import time
from pathlib import Path

import gymnasium
import pytest

from envs_server.build import read_recipe
from envs_server.envs import catch
from envs_server.factories import load_factory, load_vector_factory
from envs_server.failures import BuildError
from seedrl.wire.seedrl_pb2 import Environment


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of a user's, which leaves a trace when it is imported."""
    name = "a_users_plugin"
    (tmp_path / f"{name}.py").write_text(
        "from os import system\n"
        "from envs_server.envs.catch import make as borrowed\n"
        "def build(): return 'built'\n"
        "def make(): return 'one'\n"
        "from time import sleep as make_vec\n"
        "number = 3\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, name, raising=False)
    return name


def test_what_no_pattern_admits_is_not_even_imported(plugin: str) -> None:
    for name in (
        f"{plugin}:build",
        "os:system",
        "envs_server.client:Client",
    ):
        with pytest.raises(BuildError) as refusal:
            load_factory(name, ("another:*", "*:other"))
        assert f"--allow-env '{name}'" in str(refusal.value)
    assert plugin not in sys.modules


@pytest.mark.parametrize("pattern", ["{}:build", "{}:*", "a_users_*", "*"])
def test_patterns_admit_whole_names(plugin: str, pattern: str) -> None:
    assert load_factory(f"{plugin}:build", ("x", pattern.format(plugin)))() == "built"


def test_an_allowed_module_does_not_lend_out_what_it_imported(plugin: str) -> None:
    with pytest.raises(BuildError, match="posix:system"):
        load_factory(f"{plugin}:system", (f"{plugin}:*",))
    assert load_factory(f"{plugin}:borrowed", (f"{plugin}:*",)) is catch.make
    with pytest.raises(BuildError, match="time:sleep"):
        load_vector_factory(f"{plugin}:make", (f"{plugin}:*",))


def test_a_name_that_is_listed_is_allowed_wherever_it_was_defined(plugin: str) -> None:
    assert load_factory(f"{plugin}:system", (f"{plugin}:system",)) is os.system
    with pytest.raises(BuildError):
        load_factory(f"{plugin}:system", (f"{plugin}:syste?", "posix:other"))
    assert load_vector_factory(f"{plugin}:make", (f"{plugin}:make",)) is time.sleep
    name = "gymnasium.wrappers:FlattenObservation"
    assert load_factory(name, (name,)) is gymnasium.wrappers.FlattenObservation


def test_all_that_is_missing_is_named_at_once(plugin: str) -> None:
    environment = Environment(id=f"{plugin}:make", wrappers=["w:a", "w:b", "w:a"])
    with pytest.raises(BuildError) as refusal:
        read_recipe(environment, ("w:b",))
    assert f"--allow-env '{plugin}:make' 'w:a'" in str(refusal.value)
    assert plugin not in sys.modules


@pytest.mark.parametrize(
    "name",
    [
        *("{}:CartPole-v1", "{}:build.__globals__", "{}:a:b", "../{}:build", "my-env:make"),
        *("{}:number", "{}:missing", "{}.sub:build"),
    ],
)
def test_what_is_no_factory_is_refused_in_one_line(plugin: str, name: str) -> None:
    with pytest.raises(BuildError) as refusal:
        load_factory(name.format(plugin), ("*",))
    assert "\n" not in str(refusal.value)
