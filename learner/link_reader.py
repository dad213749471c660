"""One thread that reads all links."""

import selectors
import socket
import threading

from learner.stream import Stream
from seedrl.wire.framing import WireError, receive_from_env_server
from seedrl.wire.link import Link


class LinkReader:
    """Brings to streams what comes over their links. `add` and `stop` may be called by any thread.

    One thread for all: with one for each, acting would stand in line with all of them for the
    interpreter, several times in a step.
    """

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._is_stopping, self._stop = socket.socketpair()
        self._selector.register(self._is_stopping, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="links", daemon=True)
        self._thread.start()

    def add(self, link: Link, stream: Stream) -> None:
        """Reads `link` for `stream` until either ends, and then closes both."""
        self._selector.register(link, selectors.EVENT_READ, (link, stream))

    def stop(self) -> None:
        """Ends the thread, and whatever links and streams are still open."""
        self._stop.close()
        self._thread.join()

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.data is None:
                    self._close()
                    return
                self._receive(*key.data)

    def _close(self) -> None:
        self._selector.unregister(self._is_stopping)
        self._is_stopping.close()
        for key in list(self._selector.get_map().values()):
            self._drop(*key.data)
        self._selector.close()

    def _receive(self, link: Link, stream: Stream) -> None:
        try:
            messages = link.receive_at_once()
        except WireError as error:
            stream.receive(error)
            messages = None
        if messages is not None and all(
            map(stream.receive, map(receive_from_env_server, messages))
        ):
            return
        self._drop(link, stream)

    def _drop(self, link: Link, stream: Stream) -> None:
        self._selector.unregister(link)
        stream.close()
        link.close()
