"""A learner or an env server, of which one thread fails once a file is there.

python -m tests.faults.dying_thread THREAD FILE learner cartpole_r2d2 --workdir W
python -m tests.faults.dying_thread THREAD FILE envs_server --learner ADDRESS --num-envs 3
"""

import functools
import importlib
import os
import runpy
import sys
from pathlib import Path
from typing import Any, NamedTuple

from seedrl.exit_codes import ExitCode


class Fate(NamedTuple):
    """A thread, and how its process ends when the thread has failed.

    Attributes:
      runs: what it runs again and again, or at its only piece of work. Of threads that report there
        is also what is inside of their guard.
      code: the exit code of the process.
      goes_on: True if it ends so only after SIGTERM.
      is_saved: True if the state that the learner had then is saved.
      config: of the learner in which the thread is there.
    """

    runs: str
    code: ExitCode = ExitCode.INTERNAL
    goes_on: bool = False
    is_saved: bool = True
    config: str = "r2d2"


LEARNER = {
    "main": Fate("learner.reports:ProgressReporter.update"),
    "acting": Fate("learner.acting.loop:Acting.run_once", is_saved=False),
    "learning": Fate("learner.learning.loop:Learning.run_once", is_saved=False),
    "synchronous": Fate("learner.schedule:Alternating._run_once", is_saved=False, config="ppo"),
    "compile": Fate("learner.learning.loop:Learning.compile_update", is_saved=False),
    "watch": Fate("learner.serving.server:Service._look"),
    "links": Fate("learner.serving.server:LinkReader._read"),
    "saver": Fate("learner.checkpointing:Checkpointer._save", goes_on=True, is_saved=False),
    "status": Fate("learner.report.events:Events.wait"),
    "status's looks": Fate("learner.reports:Reports._look", code=ExitCode.OK, goes_on=True),
    "health": Fate("learner.report.health:gauges", code=ExitCode.OK, goes_on=True),
}
ENV_SERVER = {
    "env server": Fate("envs_server.client:Lease._step"),
    "hang limit": Fate("envs_server.stop:HangLimit._look"),
    "stop": Fate("seedrl.wire.channel:LearnerConnection.cancel"),
}


class InjectedError(Exception):
    """Nobody expects it."""


def found(fate: Fate) -> tuple[Any, str, Any]:
    """What has the function that a thread runs, its name there, and itself."""
    module, _, path = fate.runs.partition(":")
    *names, last = path.split(".")
    owner = functools.reduce(getattr, names, importlib.import_module(module))
    return owner, last, getattr(owner, last)


def inject(thread: str, file: Path) -> None:
    """From now on what `thread` runs fails once `file` is there."""
    owner, last, function = found({**LEARNER, **ENV_SERVER}[thread])

    @functools.wraps(function)
    def fails(*arguments: Any, **named: Any) -> Any:
        if os.path.exists(file):
            raise InjectedError("what nobody expects")
        return function(*arguments, **named)

    setattr(owner, last, fails)


if __name__ == "__main__":
    inject(sys.argv[1], Path(sys.argv[2]))
    module, *words = sys.argv[3:]
    sys.argv[1:] = words
    runpy.run_module(module, run_name="__main__", alter_sys=True)
