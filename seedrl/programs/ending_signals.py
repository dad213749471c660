"""Which signals ask a program to end."""

import signal


def ending_signals() -> list[signal.Signals]:
    """SIGTERM, SIGINT, and SIGHUP: the terminal is gone, and what was learned is to be saved.

    Not SIGHUP where it is ignored: `nohup` starts a program that way, which is to outlive its
    terminal.
    """
    numbers = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
