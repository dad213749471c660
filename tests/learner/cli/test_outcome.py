"""Exit codes."""

from collections.abc import Callable

import pytest

from learner.cli.outcome import exit_code
from seedrl.errors import (
    AddressInUseError,
    CheckpointError,
    ConfigError,
)
from seedrl.exit_codes import ExitCode


def raising(error: BaseException) -> Callable[[], int]:
    def command() -> int:
        raise error

    return command


def test_the_codes_are_those_that_are_documented() -> None:
    assert {code.name: code.value for code in ExitCode} == {
        "OK": 0,
        "TARGET_MISSED": 1,
        "USAGE": 2,
        "BROKEN_ENVIRONMENT": 3,
        "FAILING_ENVIRONMENT": 4,
        "INTERNAL": 70,
        "UNREADABLE_CHECKPOINT": 74,
        "STUCK": 75,
        "ADDRESS_IN_USE": 98,
        "KILLED": 143,
    }


def test_a_result_is_passed_on() -> None:
    assert exit_code(lambda: 75, prog="test") == 75


@pytest.mark.parametrize(
    ("kind", "builtin", "code"),
    [
        (ConfigError, ValueError, 2),
        (CheckpointError, OSError, 74),
        (AddressInUseError, OSError, 98),
    ],
)
def test_a_users_error_is_one_line_and_its_code(
    kind: type[Exception],
    builtin: type[Exception],
    code: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert issubclass(kind, builtin)
    assert exit_code(raising(kind("two\nlines")), prog="test") == code
    assert capsys.readouterr().err == "test: error: two lines\n"


def test_a_defect_shows_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(raising(ZeroDivisionError("oops")), prog="test") == 70
    error = capsys.readouterr().err
    assert "Traceback" in error and "ZeroDivisionError: oops" in error


def test_an_interrupt_is_not_a_defect(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(raising(KeyboardInterrupt()), prog="test") == 143
    assert capsys.readouterr().err == ""


def test_help_ends_as_it_wants() -> None:
    with pytest.raises(SystemExit):
        exit_code(raising(SystemExit(0)), prog="test")
