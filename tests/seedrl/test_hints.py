"""What is not installed is named with the extra that brings it."""

import importlib.util
from importlib.machinery import ModuleSpec

import pytest

from seedrl import errors, hints


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `pip install seedrl` leaves it."""

    def find_spec(name: str) -> ModuleSpec | None:
        return None if name in hints.EXTRA_OF else ModuleSpec(name, None)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)


@pytest.mark.usefixtures("bare")
def test_a_package_of_an_extra_is_named_with_what_to_install() -> None:
    line = hints.missing_extra(ModuleNotFoundError("x", name="jax.numpy"))
    assert line is not None and "pip install 'seedrl[learner]'" in line and ".[learner]" in line
    assert hints.missing_extra(ModuleNotFoundError("x", name="own_package")) is None
    with pytest.raises(errors.ConfigError):
        hints.require_extra("learner")
    error = RuntimeError("MuJoCo is not installed")
    error.__cause__ = ModuleNotFoundError("x", name="mujoco")
    assert "seedrl[mujoco]" in str(hints.missing_extra(error))


def test_an_error_that_is_its_own_cause_is_followed_once() -> None:
    error = RuntimeError("raised from itself")
    error.__cause__ = error
    assert hints.missing_extra(error) is None


def test_code_of_no_file_has_no_place() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        exec(compile("1 / 0", "", "exec"), {"__name__": "generated"})
    assert hints.own_place(caught.value).startswith(f"{__file__}:")


def test_what_is_installed_is_not_asked_for() -> None:
    hints.require_extra("learner")
    # Something in it is missing, which is not for us to explain.
    assert hints.missing_extra(ModuleNotFoundError("x", name="jax.no_such_module")) is None
