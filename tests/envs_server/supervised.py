"""A supervisor of three processes that do as a test says, in place of env servers.

`python -m tests.envs_server.supervised FOLDER SETTINGS BODY`: SETTINGS are statements about
`supervisor`, the module, and `words`, more flags; BODY are those of each process, which end it with
an exit code and find

  number, start              which of the three it is, and how often that was started, from 1
  wait_for(number, starts)   waits until that number was started so often
  is_alive(file)             true if the process runs whose number is in the file
  over()                     notes that training is over
  folder, os, time, subprocess, signal
"""

import functools
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import envs_server.client  # noqa: F401 - as an env server's program does
from envs_server import supervisor
from envs_server.options import read_options
from seedrl.programs.outcome import exit_code


def is_alive(file: Path) -> bool:
    """True if the process runs whose number is in the file."""
    stat = Path(f"/proc/{file.read_text()}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _act(folder: Path, body: str, notes: Path) -> int:
    number = int(notes.name.removeprefix("env_server_"))
    starts = folder / f"{number}"
    with starts.open("a") as file:
        file.write("x")

    def wait_for(number: int, wanted: int) -> None:
        file = folder / f"{number}"
        while not file.exists() or len(file.read_text()) < wanted:
            time.sleep(0.005)

    names: dict[str, Any] = {
        **{"os": os, "time": time, "subprocess": subprocess, "signal": signal, "folder": folder},
        **{"number": number, "start": len(starts.read_text()), "wait_for": wait_for},
        "is_alive": is_alive,
        "over": lambda: notes.write_text("finished"),
    }
    exec(f"def act():\n{textwrap.indent(body, '    ')}", names)
    return int(names["act"]() or 0)


def main() -> int:
    """Supervises."""
    folder, settings, body = sys.argv[1:]
    names: dict[str, Any] = {"supervisor": supervisor, "words": []}
    exec(settings, names)
    words = ["--learner", "127.0.0.1:1", "--num-envs", "1", "--processes", "3"]
    options = read_options([*words, *names["words"]])
    act = functools.partial(_act, Path(folder), body)
    return exit_code(lambda: supervisor.supervise(options, act), prog="supervised")


if __name__ == "__main__":
    sys.exit(main())
