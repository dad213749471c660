"""A learner or an env server, of which one thread fails once a file is there.

    python -m tests.faults.dying_thread THREAD FILE learner cartpole_r2d2 --workdir W
    python -m tests.faults.dying_thread THREAD FILE envs_server --learner ADDRESS --num-envs 3

The thread leaves the names of all threads of the process in `FILE.threads`.
"""

import functools
import importlib
import os
import runpy
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

# What each thread runs again and again, or at its only piece of work, by the thread's name. Of
# threads that report there is also what is inside of their guard.
RUNS: Mapping[str, str] = {
    "main": "learner.progress_reporter:ProgressReporter.update",
    "acting": "learner.acting.loop:Acting.run_once",
    "learning": "learner.learning.loop:Learning.run_once",
    "deterministic": "learner.schedule:Deterministic._run_once",
    "synchronous": "learner.schedule:Synchronous._run_once",
    "compile": "learner.learning.loop:Learning.compile_update",
    "watch": "learner.serving.server:Service._hold_to_deadlines",
    "links": "learner.serving.server:LinkReader._read",
    "saver": "learner.checkpoints.saver:Saver._save",
    "status": "learner.report.events:Events.wait",
    "status's looks": "learner.reports:StatusWriter._look",
    "health": "learner.report.health:gauges",
    "env server": "envs_server.client:Lease._send",
    "hang limit": "envs_server.stop:HangLimit._look",
    "stop": "seedrl.wire.channel:LearnerConnection.cancel",
}


class InjectedError(Exception):
    """Nobody expects it."""


def _failing(thread: str, function: Callable[..., Any], file: Path) -> Callable[..., Any]:
    @functools.wraps(function)
    def fails(*arguments: Any, **named: Any) -> Any:
        if os.path.exists(file):
            names = "\n".join(thread.name for thread in threading.enumerate())
            file.with_suffix(".threads").write_text(names)
            raise InjectedError("what nobody expects")
        return function(*arguments, **named)

    return fails


def inject(thread: str, file: Path) -> None:
    """From now on what `thread` runs fails once `file` is there."""
    module, _, path = RUNS[thread].partition(":")
    owner: Any = importlib.import_module(module)
    *names, last = path.split(".")
    for name in names:
        owner = getattr(owner, name)
    setattr(owner, last, _failing(thread, getattr(owner, last), file))


if __name__ == "__main__":
    inject(sys.argv[1], Path(sys.argv[2]))
    module, *words = sys.argv[3:]
    sys.argv[1:] = words
    runpy.run_module(module, run_name="__main__", alter_sys=True)
