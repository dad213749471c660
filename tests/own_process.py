"""What a test changes of the process that it is in, put back for the tests that come after."""

import gc
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def restored() -> Iterator[None]:
    """Signal handlers, the switch interval and the garbage collector are as before at the end."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
    handlers, interval = [signal.getsignal(number) for number in numbers], sys.getswitchinterval()
    try:
        yield
    finally:
        gc.enable()
        sys.setswitchinterval(interval)
        for number, handler in zip(numbers, handlers, strict=True):
            signal.signal(number, handler)
