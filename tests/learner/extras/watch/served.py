"""The page of some runs over a real port."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

from learner.extras.watch.application import listen, web_server
from tests.patience import SECONDS


@contextlib.contextmanager
def served(folder: Path, token: str = "") -> Iterator[str]:
    """The address where the runs below `folder` are shown."""
    with listen("127.0.0.1", 0) as listening:
        server = web_server(folder, token)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
        server.should_exit = True
        thread.join(SECONDS)
        assert not thread.is_alive()
