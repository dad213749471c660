"""`envs_server --processes 3`, whose processes do what a test says in the place of an env server.

`python -m tests.envs_server.processes.acting_for_many FOLDER SETTINGS BODY`: SETTINGS are
statements about `many`; BODY are those of each process, which return its exit code and find

  number, start              which of the three it is, and how often that was started, from 1
  say(text)                  writes a line to stdout, as a whole beside those of others
  wait_for(number, starts)   waits until that number was started so often
  over()                     says farewell, as who has heard that training is over; gives 0
  options, folder, os, time, np, Path
"""

import os
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from envs_server.__main__ import main
from envs_server.faults.crash_log import CrashLog
from envs_server.options import Options
from envs_server.processes import many


def served_by(folder: Path, body: str) -> Callable[[Options, Sequence[str]], int]:
    """What each process does; each of its starts is a word in the file of its number."""

    def say(text: object) -> None:
        os.write(1, f"{text}\n".encode())

    def wait_for(number: int, starts: int) -> None:
        # Who pauses when others have heard the end stays away.
        file = folder / f"{number}"
        while not file.exists() or len(file.read_text().split()) < starts:
            time.sleep(0.005)

    def serve(options: Options, words: Sequence[str]) -> int:
        assert options.sent_log is not None
        number = int(options.sent_log.stem.removeprefix("env_server_"))
        starts = folder / f"{number}"
        with starts.open("a") as file:
            file.write(os.environ.get("SEEDRL_ENV_SERVER_ENDED", "-") + " ")
        log = CrashLog(many.crash_log_of(options.sent_log))

        def over() -> int:
            log.say_farewell()
            return 0

        names: dict[str, Any] = {
            **{"os": os, "time": time, "np": np, "Path": Path, "folder": folder},
            **{"number": number, "start": len(starts.read_text().split()), "options": options},
            **{"say": say, "wait_for": wait_for, "over": over},
        }
        exec(f"def act():\n{textwrap.indent(body, '    ')}", names)
        code: int = names["act"]()
        return code

    return serve


if __name__ == "__main__":
    exec(sys.argv[2])
    many.serve = served_by(Path(sys.argv[1]), sys.argv[3])  # type: ignore[assignment]
    main(["--learner", "127.0.0.1:1", "--num-envs", "1", "--processes", "3"])
