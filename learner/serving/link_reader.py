"""One thread that reads all links."""

import selectors
import threading

from learner.threads.worker import Worker
from seedrl.wire.env_server_connection import Receiver
from seedrl.wire.framing import receive_from_env_server
from seedrl.wire.local_link import Link

_STOP_SECONDS = 5.0
# How soon a stop is noticed where nothing arrives.
_POLL_SECONDS = 0.05


class LinkReader:
    """Brings to connections what arrives over their links. `add` may be called by any thread.

    One thread for all: with one for each, acting would stand in line with all of them for the
    interpreter, several times in a step.
    """

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._worker = Worker("links", self._read, threading.Event())
        self._worker.start()

    @property
    def failure(self) -> BaseException | None:
        """What the thread has died of; then no link is read any more."""
        return self._worker.failure

    def add(self, link: Link, connection: Receiver) -> None:
        """Reads `link` until it or `connection` ends, then closes both. Not after `stop`."""
        self._selector.register(link, selectors.EVENT_READ, (link, connection))

    def stop(self) -> None:
        """Ends the thread, and the links and connections that are open. May be called twice."""
        if self._worker.stop(_STOP_SECONDS) and self._selector.get_map() is not None:
            for key in list(self._selector.get_map().values()):
                self._drop(*key.data)
            self._selector.close()

    def _read(self) -> None:
        for key, _ in self._selector.select(_POLL_SECONDS):
            self._receive(*key.data)

    def _receive(self, link: Link, connection: Receiver) -> None:
        try:
            messages = link.receive_at_once()
        except Exception as error:  # one link's must not be the end of the others
            connection.fail(error)
            messages = None
        if messages is not None and all(
            map(connection.receive, map(receive_from_env_server, messages))
        ):
            return
        self._drop(link, connection)

    def _drop(self, link: Link, connection: Receiver) -> None:
        self._selector.unregister(link)
        try:
            connection.close()
        finally:
            link.close()
