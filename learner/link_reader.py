"""One thread that reads all links."""

import logging
import selectors
import socket
import threading

from learner.stream import Stream
from seedrl.wire.framing import receive_from_env_server
from seedrl.wire.link import Link

_STOP_SECONDS = 5.0

_logger = logging.getLogger(__name__)


class LinkReader:
    """Brings to streams what comes over their links. `add` may be called by any thread.

    One thread for all: with one for each, acting would stand in line with all of them for the
    interpreter, several times in a step.

    Attributes:
      failure: what the thread has died of; then no link is read any more.
    """

    def __init__(self) -> None:
        self.failure: BaseException | None = None
        self._selector = selectors.DefaultSelector()
        # Closing one end wakes the thread at the other.
        self._stop_end, self._stopped_end = socket.socketpair()
        self._selector.register(self._stopped_end, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="links", daemon=True)
        self._thread.start()

    def add(self, link: Link, stream: Stream) -> None:
        """Reads `link` for `stream` until either ends, and then closes both. Not after `stop`."""
        self._selector.register(link, selectors.EVENT_READ, (link, stream))

    def stop(self) -> None:
        """Ends the thread, and whatever links and streams are still open."""
        self._stop_end.close()
        self._thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        try:
            self._read()
        except BaseException as error:
            _logger.exception("reading links failed")
            self.failure = error

    def _read(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.data is None:
                    self._close()
                    return
                self._receive(*key.data)

    def _close(self) -> None:
        self._selector.unregister(self._stopped_end)
        self._stopped_end.close()
        for key in list(self._selector.get_map().values()):
            self._drop(*key.data)
        self._selector.close()

    def _receive(self, link: Link, stream: Stream) -> None:
        try:
            messages = link.receive_at_once()
        except Exception as error:  # one link's must not be the end of the others
            stream.fail(error)
            messages = None
        if messages is not None and all(
            map(stream.receive, map(receive_from_env_server, messages))
        ):
            return
        self._drop(link, stream)

    def _drop(self, link: Link, stream: Stream) -> None:
        self._selector.unregister(link)
        try:
            stream.close()
        finally:
            link.close()
