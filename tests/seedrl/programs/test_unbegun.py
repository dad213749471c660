"""A signal to a run that has not begun."""

import signal

import pytest

from seedrl.programs.ending_signals import ending_signals
from seedrl.programs.unbegun import ending_unbegun


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_run_that_has_not_begun_ends_with_one_line(
    number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    codes: list[int] = []
    before = signal.getsignal(number)
    with ending_unbegun("seedrl train 'my config.py'", leave=codes.append):
        signal.raise_signal(number)
    assert codes == [0] and signal.getsignal(number) == before
    assert capfd.readouterr().err == (
        f"the run ends: a signal asked for it: {number.name}, before it had begun: nothing was "
        "learned or saved; this starts it again: seedrl train 'my config.py'\n"
    )


def test_what_outlives_its_terminal_by_wish_does() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        assert ending_signals() == [signal.SIGTERM, signal.SIGINT]
        with ending_unbegun("seedrl train x", leave=lambda code: pytest.fail("it has ended")):
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert signal.SIGHUP in ending_signals()
