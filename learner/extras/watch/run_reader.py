"""One run, read from the files in its folder."""

import contextlib
import os
import stat
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from learner.report.history import History
from learner.report.json_lines import LineReader, parsed
from seedrl.run_files import CONFIG, EVENTS, METRICS, ROLLOUTS, STATUS, VIDEOS, open_regular

# Nothing that a run writes is larger; a file that is, is not read.
_MOST_EVENTS = 1000
_MOST_VIDEOS = 24
_LONGEST_EVENT_BYTES = 2**15
_LARGEST_OBJECT_BYTES = 2**24

# Shown of runs that are not selected.
_CURVE = ("env_steps", "elapsed_seconds", "return/training")

Json = dict[str, Any]


class View(NamedTuple):
    """The news of a run, for the page to merge into what it has."""

    # `curve`, `rounds`, `columns` and `events` are rows to append, all else replaces its
    # predecessor. A part with `reset` is complete: the page drops what it had.

    # Of every run: facts, status (without env_servers), curve {name: [...]}, rounds.
    brief: Json
    # Of the selected run: columns {name: [...]}, latest, events, env_servers, config, videos,
    # sample (of a token policy).
    detail: Json


class RunReader:
    """Reads the news in a run's directory at each `poll`. The folder's files may be anybody's."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._metrics = LineReader(folder / METRICS)
        self._events = LineReader(folder / EVENTS, longest_line_bytes=_LONGEST_EVENT_BYTES)
        self._history = History()
        self._kept_events: deque[Json] = deque(maxlen=_MOST_EVENTS)
        self._status: Json = {}
        self._env_servers: list[Any] = []
        self._config: Json = {}
        self._sample: Json = {}
        self._seen: dict[str, str] = {}
        self._is_new = True  # until the first poll
        self._videos: list[Json] = []

    @property
    def changed(self) -> float:
        """Unix time at which the run's files were last written; 0 if there are none."""
        times = [0.0]
        for name in (METRICS, EVENTS, STATUS):
            with contextlib.suppress(OSError):
                times.append((self.folder / name).stat().st_mtime)
        return max(times)

    def poll(self) -> View:
        """The news since the last poll; at the first one everything."""
        brief: Json = {}
        detail: Json = {}
        lines, is_rewritten = self._metrics.read()
        happened, has_other_events = self._events.read()
        if is_rewritten:
            self._history.clear()
        if has_other_events:
            self._kept_events.clear()
        # None: rows that were sent are gone, and the page has to start again.
        if lines and (added := self._history.add(lines)) is not None:
            columns, brief["rounds"] = added
            brief["curve"], detail["columns"] = _of_curve(columns), columns
            detail["latest"] = self._history.latest
        elif lines:
            is_rewritten = True
        if happened:
            taken = [
                event for line in happened[-_MOST_EVENTS:] if "text" in (event := parsed(line))
            ]
            self._kept_events.extend(taken)
            detail["events"] = taken
        if (found := self._changed(STATUS)) is not None:
            servers = found.pop("env_servers", [])
            self._status, self._env_servers = found, servers if isinstance(servers, list) else []
            brief["status"], detail["env_servers"] = self._status, self._env_servers
        if (config := self._changed(CONFIG)) is not None:
            self._config = config
            brief["facts"], detail["config"] = facts(config), config
        if (sample := self._changed(ROLLOUTS)) is not None:
            self._sample = detail["sample"] = sample
        if (videos := recorded(self.folder)) != self._videos:
            self._videos = detail["videos"] = videos
        is_whole = self._is_new or is_rewritten or has_other_events
        self._is_new = False
        return self.snapshot() if is_whole else View(brief, detail)

    def snapshot(self) -> View:
        """Everything that the polls so far have found."""
        columns = self._history.columns()
        brief = {
            "reset": True,
            "facts": facts(self._config),
            "status": self._status,
            "curve": _of_curve(columns),
            "rounds": self._history.rounds,
        }
        detail = {
            "reset": True,
            "columns": columns,
            "latest": self._history.latest,
            "events": list(self._kept_events),
            "env_servers": self._env_servers,
            "config": self._config,
            "videos": self._videos,
            "sample": self._sample,
        }
        return View(brief, detail)

    def _changed(self, name: str) -> Json | None:
        """The object in a file that has been replaced since the last call; else None."""
        with contextlib.suppress(OSError), open_regular(self.folder / name) as file:
            found = os.fstat(file.fileno())
            # Both: a file that is replaced within one tick of the clock has another inode.
            stamp = f"{found.st_mtime_ns}-{found.st_ino}"
            if stamp == self._seen.get(name) or found.st_size > _LARGEST_OBJECT_BYTES:
                return None
            if value := parsed(file.read(_LARGEST_OBJECT_BYTES)):
                self._seen[name] = stamp
                return value
        return None


def recorded(folder: Path) -> list[Json]:
    """Videos that `seedrl record` wrote into a run's directory, by name: {"name", "changed"}."""
    videos: list[Json] = []
    # A link would show a file that is not the run's.
    with contextlib.suppress(OSError):
        if not (folder / VIDEOS).is_symlink():
            for path in sorted((folder / VIDEOS).glob("*.mp4"))[:_MOST_VIDEOS]:
                found = path.lstat()
                if stat.S_ISREG(found.st_mode):
                    videos.append({"name": path.name, "changed": found.st_mtime})
    return videos


def facts(config: Mapping[str, Any]) -> Json:
    """The part of a run's `config.json` that a list of runs shows."""

    def at(*path: str) -> Any:
        value: Any = config
        for name in ("config", *path):
            value = value.get(name) if isinstance(value, dict) else None
        return value

    return {
        "environment": at("environment", "id"),
        "agent": str(at("agent", "type") or "").rpartition(":")[2].removesuffix("Config"),
        "seed": at("seed"),
        "total_steps": at("learning", "total_steps"),
        "target_return": at("evaluation", "target_return"),
    }


def _of_curve(columns: Mapping[str, list[float | None]]) -> dict[str, list[float | None]]:
    return {name: columns[name] for name in _CURVE if name in columns}
