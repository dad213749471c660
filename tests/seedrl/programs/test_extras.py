"""What is not installed is named with the extra that brings it."""

import importlib.util
import tomllib
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from seedrl.programs import extras

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `pip install seedrl` leaves it."""

    def find_spec(name: str) -> ModuleSpec | None:
        return None if name in extras.EXTRA_OF else ModuleSpec(name, None)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)


@pytest.mark.usefixtures("bare")
def test_a_package_of_an_extra_is_named_with_what_to_install() -> None:
    line = extras.describe(ModuleNotFoundError("x", name="jax.numpy"))
    assert line is not None and "pip install 'seedrl[learner]'" in line and ".[learner]" in line
    assert extras.describe(ModuleNotFoundError("x", name="own_package")) is None
    with pytest.raises(extras.MissingPackageError):
        extras.require("learner")
    error = RuntimeError("MuJoCo is not installed")
    error.__cause__ = ModuleNotFoundError("x", name="mujoco")
    assert "seedrl[mujoco]" in str(extras.describe(error))


def test_what_is_installed_is_not_asked_for() -> None:
    extras.require("learner")
    # Something in it is missing, which is not for us to explain.
    assert extras.describe(ModuleNotFoundError("x", name="jax.no_such_module")) is None


@pytest.mark.parametrize("extra", sorted(set(extras.EXTRA_OF.values())))
def test_the_modules_of_an_extra_are_those_of_its_packages(extra: str) -> None:
    modules = {name for name, source in extras.EXTRA_OF.items() if source == extra}
    lines = [Requirement(line) for line in PROJECT["optional-dependencies"][extra]]
    packages = {line.name for line in lines}
    packages.discard("seedrl")  # with an extra of its own, which is looked at by itself
    if extra in ("box2d", "mujoco"):  # what gymnasium's extra of that name brings
        assert lines[0].extras == {extra}
        packages = {{"box2d": "Box2D"}.get(extra, extra)}
    imported = {"orbax-checkpoint": "orbax", "grpcio-health-checking": "grpc_health"}
    assert {imported.get(name, name.replace("-", "_")) for name in packages} == modules
