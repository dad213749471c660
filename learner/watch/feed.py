"""One look at the files for all pages that are open, and what is new for each of them."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from learner.watch.run_reader import RunReader, View, find_runs

_logger = logging.getLogger(__name__)

# How often the files are looked at: what has changed is on the page well within a second.
POLL_SECONDS = 0.25
# How often folders are searched for new runs, and an idle page is sent the time.
SEARCH_SECONDS = 2.0
# How long a run is looked at often after something was new.
LIVELY_SECONDS = 10.0
# A page that is this far behind starts again: its browser connects by itself.
MOST_WAITING = 240


class _Page:
    """A page that is open: the run it looks at, and the messages it has not been sent yet."""

    def __init__(self, run: str | None):
        self.run = run
        self.waiting: asyncio.Queue[str | None] = asyncio.Queue(MOST_WAITING)

    def end(self) -> None:
        """What waits is not sent: its browser connects again, and gets all that there is."""
        while not self.waiting.empty():
            self.waiting.get_nowait()
        self.waiting.put_nowait(None)


class Feed:
    """Sends every page what it shows, as long as it is open. Owned by the event loop.

    While no page is open, nothing is read, but where `run` is asked.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time):
        """`folder`: a run, or a folder of runs; `clock`: Unix time."""
        self._folder = folder
        self._clock = clock
        self._readers: dict[str, RunReader] = {}
        self._lively: dict[str, float] = {}  # until when, by name
        self._pages: set[_Page] = set()
        self._searched = -float("inf")
        self._polling: asyncio.Task[None] | None = None

    def run(self, name: str) -> RunReader | None:
        """The reader of a run by its name."""
        self.look()  # pages hear of the runs that it finds
        return self._readers.get(name)

    async def messages(self, run: str | None) -> AsyncIterator[str]:
        """JSON texts for a page that looks at `run`: first all that there is, then what is new.

        A message is {"now": Unix time, "runs": {name: brief}, "selected": name, "detail": detail};
        see `View`. "names" has the runs that are there, when they have been searched for.
        """
        self.look()
        page = _Page(run if run in self._readers else self._newest())
        views = {name: reader.snapshot() for name, reader in self._readers.items()}
        self._pages.add(page)
        if self._polling is None:
            self._polling = asyncio.create_task(self._poll())
        try:
            yield self._message(page, views, names=list(views))
            while (message := await page.waiting.get()) is not None:
                yield message
        finally:
            self._pages.discard(page)
            if not self._pages and self._polling is not None:
                self._polling.cancel()
                self._polling = None

    def look(self) -> None:
        """Reads what is new, and hands it to the pages."""
        names = self._search()
        # Of many runs most have ended: those are looked at when folders are.
        looked_at = {page.run for page in self._pages}
        views = {
            name: self._polled(name, reader)
            for name, reader in self._readers.items()
            if names is not None or name in self._lively or name in looked_at
        }
        if names is None and not any(view.brief or view.detail for view in views.values()):
            return
        for page in self._pages:
            if page.waiting.full():
                page.end()
            else:
                page.waiting.put_nowait(self._message(page, views, names))

    def _polled(self, name: str, reader: RunReader) -> View:
        view = reader.poll()
        if view.brief or view.detail:
            self._lively[name] = time.monotonic() + LIVELY_SECONDS
        elif self._lively.get(name, 0.0) < time.monotonic():
            self._lively.pop(name, None)
        return view

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS)
            try:
                self.look()
            except Exception:
                _logger.exception("the files of runs could not be looked at")
                for page in self._pages:  # some of what was read has not reached them
                    page.end()

    def _search(self) -> list[str] | None:
        """Finds runs, now and then; returns the names of all."""
        now = time.monotonic()
        if now - self._searched < SEARCH_SECONDS:
            return None
        self._searched = now
        found = find_runs(self._folder)
        self._readers = {
            name: self._readers.get(name) or RunReader(path) for name, path in found.items()
        }
        return list(self._readers)

    def _newest(self) -> str | None:
        """The run that was written last."""
        return max(self._readers, key=lambda name: self._readers[name].changed, default=None)

    def _message(self, page: _Page, views: dict[str, View], names: list[str] | None) -> str:
        message: dict[str, Any] = {
            "now": self._clock(),
            "runs": {name: view.brief for name, view in views.items() if view.brief},
        }
        if names is not None:
            message["names"] = names
        if page.run is None:
            page.run = self._newest()
        if page.run in views:
            message["selected"] = page.run
            message["detail"] = views[page.run].detail
            if names is not None:
                message["films"] = self._readers[page.run].films()
        return json.dumps(message, separators=(",", ":"))
