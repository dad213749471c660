"""Reads the files of runs for an open page, and sends it the news."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from learner.extras.watch.run_reader import RunReader
from seedrl.run_files import find_runs
from seedrl.timing import POLL_SECONDS

# Between two searches for new runs, with which an idle page gets the time.
SEARCH_SECONDS = 2.0


def named_runs(folder: Path) -> dict[str, Path]:
    """Runs in a folder, or the run that it is, by the names that the page shows."""
    found = {path.relative_to(folder).as_posix(): path for path in find_runs(folder)}
    if "." in found:  # the folder is a run
        return {folder.resolve().name: folder}
    return found


class Feed:
    """What one page is sent as long as it is open. Owned by the stream of that page."""

    # `messages` runs in the event loop; the reading in a worker thread, one at a time, so that a
    # large file or a slow disk blocks no other page. A browser that lost its stream opens a new
    # one.

    def __init__(self, folder: Path, run: str | None):
        """`folder`: a run, or a folder of runs; `run`: the one to show."""
        self._folder, self._run = folder, run
        self._readers: dict[str, RunReader] = {}
        self._searched: float | None = None

    async def messages(self) -> AsyncIterator[str]:
        """JSON texts: first everything, then the news.

        A message is {"now": Unix time, "runs": {name: brief}, "selected": name, "detail": detail};
        see `View`. "names" has all runs, after a search for them.
        """
        while True:
            if (message := await asyncio.to_thread(self._read)) is not None:
                yield json.dumps(message, separators=(",", ":"))
            await asyncio.sleep(POLL_SECONDS)

    def _read(self) -> dict[str, Any] | None:
        is_first, names = self._searched is None, self._search()
        views = {name: reader.poll() for name, reader in self._readers.items()}
        if names is None and not any(view.brief or view.detail for view in views.values()):
            return None
        if self._run is None or (is_first and self._run not in views):
            changed = {name: reader.changed for name, reader in self._readers.items()}
            self._run = max(changed, key=changed.__getitem__, default=None)  # the one at work
        message: dict[str, Any] = {
            "now": time.time(),
            "runs": {name: view.brief for name, view in views.items() if view.brief},
        }
        if names is not None:
            message["names"] = names
        if self._run in views:
            message |= {"selected": self._run, "detail": views[self._run].detail}
        return message

    def _search(self) -> list[str] | None:
        """The names of all runs if it is time to search for them."""
        now = time.monotonic()
        if self._searched is not None and now - self._searched < SEARCH_SECONDS:
            return None
        self._searched = now
        self._readers = {  # known ones keep what they have read
            name: self._readers.get(name) or RunReader(path)
            for name, path in named_runs(self._folder).items()
        }
        return list(self._readers)
