"""What a test changes of the process that it is in, put back for the tests that come after."""

import gc
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


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


@contextmanager
def imported_anew(package: str) -> Iterator[None]:
    """What is imported of a package inside is forgotten at the end, as what had been before."""
    before = _modules_of(package)
    for name in before:
        del sys.modules[name]
    try:
        yield
    finally:
        for name in _modules_of(package):
            del sys.modules[name]
        sys.modules.update(before)


def _modules_of(package: str) -> dict[str, ModuleType]:
    return {name: module for name, module in sys.modules.items() if name.split(".")[0] == package}
