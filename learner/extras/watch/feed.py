"""Reads the files of runs once for all pages that are open, and sends each page the news."""

import asyncio
import json
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from learner.extras.watch.run_reader import RunReader, View
from seedrl.run_files import find_runs
from seedrl.timing import POLL_SECONDS

_logger = logging.getLogger(__name__)

# Between two searches for new runs, with which an idle page gets the time.
SEARCH_SECONDS = 2.0
# A page that is this far behind is closed: its browser connects again.
MOST_WAITING = 240


class _Page:
    """An open page: the run that it shows, and the messages that it has not been sent yet."""

    def __init__(self, run: str | None):
        self.run = run
        self.is_new = True
        self.waiting: asyncio.Queue[str | None] = asyncio.Queue(MOST_WAITING)

    def end(self) -> None:
        """Drops its messages: its browser connects again, and gets everything."""
        while not self.waiting.empty():
            self.waiting.get_nowait()
        self.waiting.put_nowait(None)


Views = dict[str, View]


class Feed:
    """Sends every page its messages, as long as it is open.

    A task of the event loop looks at the files while a page is open. The reading itself runs in a
    worker thread, so that a large file or a slow disk blocks no page.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time):
        """`folder`: a run, or a folder of runs; `clock`: Unix time."""
        self._folder = folder
        self._clock = clock
        # The event loop's own.
        self._pages: set[_Page] = set()
        self._polling: asyncio.Task[None] | None = None
        # Guards what the worker thread uses: a task that is cancelled leaves its thread running,
        # and the next task may start another one.
        self._lock = threading.Lock()
        self._readers: dict[str, RunReader] = {}
        self._searched = -float("inf")

    async def messages(self, run: str | None) -> AsyncIterator[str]:
        """JSON texts for a page that shows `run`: first everything, then the news.

        A message is {"now": Unix time, "runs": {name: brief}, "selected": name, "detail": detail};
        see `View`. "names" has all runs, after a search for them.
        """
        page = _Page(run)
        self._pages.add(page)
        if self._polling is None:
            self._polling = asyncio.create_task(self._poll())
        try:
            while (message := await page.waiting.get()) is not None:
                yield message
        finally:
            self._pages.discard(page)
            if not self._pages and self._polling is not None:
                self._polling.cancel()
                self._polling = None

    async def _poll(self) -> None:
        while True:
            try:
                await self.look()
            except Exception:
                _logger.exception("cannot read the files of runs")
                for page in self._pages:  # some of the news has not reached them
                    page.end()
            await asyncio.sleep(POLL_SECONDS)

    async def look(self) -> None:
        """Reads the news, and hands it to the pages."""
        # A page that is opened during the reading waits for the next look.
        pages = list(self._pages)
        found = await asyncio.to_thread(self._read, any(page.is_new for page in pages))
        news, snapshots, names, newest = found
        for page in pages:
            if page.is_new:
                page.is_new = False
                page.run = page.run if page.run in snapshots else newest
                page.waiting.put_nowait(self._message(page, snapshots, names))
            elif names is None and not any(view.brief or view.detail for view in news.values()):
                continue
            elif page.waiting.full():
                page.end()
            else:
                page.run = page.run or newest
                page.waiting.put_nowait(self._message(page, news, names))

    def _message(self, page: _Page, views: Views, names: list[str] | None) -> str:
        message: dict[str, Any] = {
            "now": self._clock(),
            "runs": {name: view.brief for name, view in views.items() if view.brief},
        }
        if names is not None:
            message["names"] = names
        if page.run in views:
            message["selected"] = page.run
            message["detail"] = views[page.run].detail
        return json.dumps(message, separators=(",", ":"))

    # Below, a worker thread reads.

    def _read(self, has_new: bool) -> tuple[Views, Views, list[str] | None, str | None]:
        """News by run; all by run, if a page is new; all names, after a search; the newest."""
        with self._lock:
            names = self._search(is_wanted=has_new)
            readers = self._readers
            return (
                {name: reader.poll() for name, reader in readers.items()},
                {name: reader.snapshot() for name, reader in readers.items()} if has_new else {},
                names,
                max(readers, key=lambda name: readers[name].changed, default=None),
            )

    def _search(self, *, is_wanted: bool) -> list[str] | None:
        """Searches for runs if that is wanted or due; returns the names of all."""
        now = time.monotonic()
        if not is_wanted and now - self._searched < SEARCH_SECONDS:
            return None
        self._searched = now
        found = {self._name_of(path): path for path in find_runs(self._folder)}
        self._readers = {
            name: self._readers.get(name) or RunReader(path) for name, path in found.items()
        }
        return list(self._readers)

    def _name_of(self, run: Path) -> str:
        return (
            run.relative_to(self._folder).as_posix() if run != self._folder else run.resolve().name
        )
