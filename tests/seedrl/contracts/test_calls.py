"""Whose mistake an exception is, and where it was made."""

import dataclasses
import functools
import inspect
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from seedrl.contracts.calls import call, named
from seedrl.errors import CheckpointError, ConfigError
from seedrl.rl.exploration import epsilons

_FILE = __file__


def _line_of(function: Any, text: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(number for number, line in enumerate(lines) if text in line)


def _multiply(weights: Any) -> Any:
    return jnp.ones((2, 3)) @ weights


def _scan(weights: Any) -> Any:
    return jax.lax.scan(lambda carry, row: (carry, _multiply(row)), 0, weights)


def test_what_own_code_raises_is_one_line_with_the_innermost_place_in_it() -> None:
    with pytest.raises(ConfigError) as caught:
        call("agent.act (Mine)", jax.jit(_scan), jnp.ones((5, 4, 2)))
    text = str(caught.value)
    assert text.startswith("agent.act (Mine): TypeError: dot_general requires contracting dim")
    assert text.endswith(f"({_FILE}:{_line_of(_multiply, '@')})")
    assert text.isprintable()


def test_a_function_that_cannot_be_called_so_is_named_by_its_first_line() -> None:
    first = _line_of(_multiply, "def")
    with pytest.raises(ConfigError, match=r"TypeError: .*takes 1 positional argument but 2 were"):
        call("agent.act (Mine)", functools.partial(_multiply, 1), 2)
    assert named(functools.partial(_multiply, 1)) == f"_multiply, {_FILE}:{first}"


def test_a_long_text_is_cut() -> None:
    def fail() -> None:
        raise KeyError("x" * 1000)

    with pytest.raises(ConfigError) as caught:
        call("agent.act", fail)
    assert len(str(caught.value)) < 400 + len(_FILE)


def test_a_defect_of_ours_stays_one() -> None:
    with pytest.raises(TypeError):
        call("agent.exploration", epsilons, "three")
    assert named(epsilons) == "epsilons"


def test_what_an_own_class_has_made_of_our_functions_is_its_mistake() -> None:
    class Mine:
        pass

    with pytest.raises(ConfigError, match=rf"TypeError: .*{_FILE}:{_line_of(Mine, 'class')}\)"):
        call("agent.exploration (Mine)", epsilons, "three", own=Mine())


def test_a_field_may_hold_a_class() -> None:
    @dataclasses.dataclass
    class Ours:
        kind: type

    Ours.__module__ = "seedrl.ours"
    with pytest.raises(TypeError):
        call("agent.exploration", epsilons, "three", own=Ours(dataclasses.make_dataclass("K", "x")))


def test_an_error_that_is_said_in_a_line_already_stays_as_it_is() -> None:
    error = CheckpointError("no room")

    def fail() -> None:
        raise error

    with pytest.raises(CheckpointError) as caught:
        call("agent.init", fail)
    assert caught.value is error
