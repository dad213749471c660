"""Threads that die of what nobody catches."""

import threading

import pytest

from learner.runtime.worker import Death, Deaths


def die(error: Exception, name: str) -> None:
    def body() -> None:
        raise error

    thread = threading.Thread(target=body, name=name)
    thread.start()
    thread.join()


def test_the_first_death_is_known_and_every_one_is_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    first, second = OSError("a disk"), ValueError("a number")
    before = threading.excepthook
    with Deaths() as deaths:
        assert deaths.first is None
        die(first, "status")
        die(second, "sequences")
    assert deaths.first == Death("status", first)
    assert threading.excepthook is before
    said = capsys.readouterr().err
    assert "OSError: a disk" in said and "ValueError: a number" in said
