"""An env server whose environments hang, or take more memory than it may have."""

import contextlib
import logging
import math
import threading
from types import SimpleNamespace
from typing import Any, NoReturn
from unittest import mock

import pytest

from envs_server.errors import EnvironmentFailedError
from envs_server.faults import keeper as module
from envs_server.faults.keeper import End, Keeper
from envs_server.faults.quarantine import Quarantine
from envs_server.faults.watchdog import Begun
from envs_server.group import EnvGroup
from seedrl.exit_codes import ExitCode


class EndedError(Exception):
    """The process would be gone, or another."""


def ended(*arguments: Any) -> NoReturn:
    raise EndedError(*arguments)


@pytest.mark.parametrize("has_served", [False, True])
def test_what_takes_too_much_memory_to_build_ends_the_process(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, has_served: bool
) -> None:
    caplog.set_level(logging.ERROR)
    quarantine, lease = Quarantine(1), SimpleNamespace(is_serving=False)
    keeper = Keeper(quarantine, start_again=ended)
    if has_served:
        keeper.keeps(SimpleNamespace(is_serving=True), SimpleNamespace())  # type: ignore[arg-type]
    keeper.keeps(lease, SimpleNamespace())  # type: ignore[arg-type]
    monkeypatch.setattr(module.os, "_exit", ended)
    assert not keeper._end_what_grows(20_000)  # nothing is built
    keeper.watch.begin(None, 600.0)
    with pytest.raises(EndedError) as caught:
        keeper._end_what_grows(20_000)
    # What was built before may have leaked: with another process it is tried again.
    assert caught.value.args == ((quarantine.remember(),) if has_served else (ExitCode.USAGE,))
    line = "building the environments takes more than 20000 MiB (--max-memory-mib)"
    assert caplog.messages == [
        line + "; the env server begins again" if has_served else f"ends: {line}"
    ]
    lease.is_serving = True
    assert not keeper._end_what_grows(20_000)  # without a limit of its own


def test_a_process_that_has_served_nobody_is_not_replaced_for_what_is_too_large_to_build(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing has leaked in it, whatever the process before has known."""
    keeper = Keeper(Quarantine(1, remembered='{"has_worked": true}'), start_again=ended)
    keeper.keeps(SimpleNamespace(is_serving=False), SimpleNamespace())  # type: ignore[arg-type]
    monkeypatch.setattr(module.os, "_exit", ended)
    keeper.watch.begin(None, 600.0)
    with pytest.raises(EndedError) as caught:
        keeper._end_what_grows(20_000)
    assert caught.value.args == (ExitCode.USAGE,)


def _keeper(*, is_stopping: bool, num_envs: int = 2) -> Keeper:
    """One that knows whether it is asked to stop; its watchdog has ended."""
    keeper = Keeper(Quarantine(num_envs), start_again=ended, max_memory_mib=2**30)
    stop: Any = SimpleNamespace(is_requested=is_stopping)
    with contextlib.closing(keeper.watch_over(stop)):
        return keeper


def _hang(keeper: Keeper) -> tuple[Any, ...]:
    """What the keeper does of an environment that hangs."""
    group = mock.Mock(spec=EnvGroup)
    group.overdue.return_value = EnvironmentFailedError("environment 1 hangs", 1)
    with pytest.raises(EndedError) as caught:
        keeper._end_what_hangs(Begun(threading.get_ident(), group, -math.inf, 1.0))
    return caught.value.args


_HANGS = "environment 1 hangs (failure 1 within an hour)"


@pytest.mark.parametrize(
    ("is_stopping", "end", "code", "last"),
    [
        (True, None, ExitCode.OK, "stopped"),
        (False, End(ExitCode.OK, "training is over"), ExitCode.OK, "ends: training is over"),
        (True, End(ExitCode.USAGE, "refused"), ExitCode.USAGE, "ends: refused"),
    ],
)
def test_what_hangs_in_a_process_that_is_to_end_ends_it_as_it_was_to(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    is_stopping: bool,
    end: End | None,
    code: ExitCode,
    last: str,
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(module.os, "_exit", ended)
    keeper = _keeper(is_stopping=is_stopping)
    if end is not None:
        keeper.is_to_end(end)
    caplog.clear()
    assert _hang(keeper) == (code,)
    assert caplog.messages == [_HANGS, last]


@pytest.mark.parametrize("code", [ExitCode.OK, ExitCode.USAGE])
def test_a_farewell_is_said_before_the_environments_are_closed(
    code: ExitCode, caplog: pytest.LogCaptureFixture
) -> None:
    """One that hangs or dies at that keeps nobody from knowing that training is over."""
    caplog.set_level(logging.INFO)
    said: list[str] = []
    Keeper(Quarantine(1), farewell=lambda: said.append("farewell")).is_to_end(End(code, "why"))
    assert said == ["farewell"] * (code == ExitCode.OK)
    assert caplog.messages == ["ends: why"] * (code == ExitCode.OK)


def test_what_hangs_in_a_process_that_is_to_go_on_has_it_begin_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    keeper = _keeper(is_stopping=False)
    assert _hang(keeper) == (keeper.quarantine.remember(),)
    assert caplog.messages == [f"{_HANGS}; the env server begins again"]


def test_one_that_films_does_not_begin_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its films would be numbered like those that are there."""
    monkeypatch.setattr(module.os, "_exit", ended)
    keeper = Keeper(Quarantine(2), start_again=ended, films=True)
    assert _hang(keeper) == (ExitCode.FAILED_FILMS,)
    keeper._grown_mib = 2**31
    with pytest.raises(EndedError) as caught:
        keeper.begin_again_if_grown()
    assert caught.value.args == (ExitCode.FAILED_FILMS,)


def test_a_process_that_has_grown_begins_again_unless_it_is_asked_to_stop() -> None:
    for is_stopping in (True, False):
        keeper = _keeper(is_stopping=is_stopping)
        keeper._grown_mib = 2**31
        with contextlib.nullcontext() if is_stopping else pytest.raises(EndedError):
            keeper.begin_again_if_grown()
