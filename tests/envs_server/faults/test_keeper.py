"""An env server whose environments take more memory than it may have."""

import logging
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from envs_server.faults import keeper as module
from envs_server.faults.keeper import Keeper
from envs_server.faults.quarantine import Quarantine
from seedrl.exit_codes import ExitCode


class EndedError(Exception):
    """The process would be gone, or another."""


def ended(*arguments: Any) -> NoReturn:
    raise EndedError(*arguments)


@pytest.mark.parametrize("has_worked", [False, True])
def test_what_takes_too_much_memory_to_build_ends_the_process(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, has_worked: bool
) -> None:
    caplog.set_level(logging.ERROR)
    quarantine, lease = Quarantine(1), SimpleNamespace(is_serving=False)
    quarantine.has_worked = has_worked
    keeper = Keeper(quarantine, start_again=ended)
    keeper.keeps(lease, SimpleNamespace())  # type: ignore[arg-type]
    monkeypatch.setattr(module.os, "_exit", ended)
    assert not keeper._end_what_grows(20_000)  # nothing is built
    keeper.watch.begin(None, 600.0)
    with pytest.raises(EndedError) as caught:
        keeper._end_what_grows(20_000)
    # What was built before may have leaked: with another process it is tried again.
    assert caught.value.args == ((quarantine.remember(),) if has_worked else (ExitCode.USAGE,))
    line = "building the environments takes more than 20000 MiB (--max-memory-mib)"
    assert caplog.messages == [
        line + "; the env server begins again" if has_worked else f"ends: {line}"
    ]
    lease.is_serving = True
    assert not keeper._end_what_grows(20_000)  # without a limit of its own
