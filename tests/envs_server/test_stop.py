"""A wish to stop that cannot be passed on."""

import queue
from unittest import mock

import pytest

from envs_server.stop import Stop
from seedrl.exit_codes import ExitCode
from tests.patience import SECONDS


def test_a_wish_to_stop_that_nobody_could_hear_ends_the_process(
    capsys: pytest.CaptureFixture[str],
) -> None:
    left: queue.SimpleQueue[int] = queue.SimpleQueue()
    stop = Stop(left.put)

    def fail() -> None:
        raise RuntimeError("no such call")

    stop.on_request(fail)
    stop.request()
    assert left.get(timeout=SECONDS) == ExitCode.INTERNAL
    assert stop.is_requested
    assert "RuntimeError: no such call" in capsys.readouterr().err


def test_a_process_that_nobody_hears_ends_too(monkeypatch: pytest.MonkeyPatch) -> None:
    left: queue.SimpleQueue[int] = queue.SimpleQueue()
    stop = Stop(left.put)
    stop.on_request(mock.Mock(side_effect=RuntimeError("no such call")))
    monkeypatch.setattr("sys.stderr", mock.Mock(write=mock.Mock(side_effect=BrokenPipeError)))
    stop.request()
    assert left.get(timeout=SECONDS) == ExitCode.INTERNAL
