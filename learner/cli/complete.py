"""`seedrl complete`: completes a command line for bash, and for zsh with bashcompinit.

A user types `complete -o default -C "seedrl complete" seedrl` once, or has it in ~/.bashrc.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence

from learner.cli.main import COMMANDS
from seedrl import config_io
from seedrl.exit_codes import ExitCode

_TAKE_CONFIG = (
    "train",
    "pretrain",
    "configs",
    "balance",
    "tune",
    "bounds",
    "launch",
)


def run(argv: Sequence[str]) -> int:
    """Prints the words that may stand at the cursor: bash passes the line by its variables."""
    line = os.environ.get("COMP_LINE", "")
    line = line[: int(os.environ.get("COMP_POINT", len(line)))]
    _, *before = line.split() or [""]
    current = "" if line.endswith(" ") or not before else before.pop()
    for word in words_after(before, current):
        if word.startswith(current):
            print(word)
    return ExitCode.OK


def words_after(before: Sequence[str], current: str) -> Iterable[str]:
    """The commands, the bundled configurations or the options that may follow; else nothing."""
    if not before:
        return COMMANDS
    if current.startswith("-") and before[0] in COMMANDS:  # not this one, without end
        # What help lists. A process of its own, because a command may become another program, which
        # has the variable too: nothing is imported from the current folder, which may be anybody's.
        command = [sys.executable, "-m", "learner.cli.main", *before[:2], "--help-all"]
        safe = {**os.environ, "PYTHONSAFEPATH": "1"}
        shown = subprocess.run(command, env=safe, capture_output=True, text=True).stdout
        return re.findall(r"^  (--\S+)", shown, re.MULTILINE)
    if len(before) == 1 and before[0] in _TAKE_CONFIG:
        return config_io.bundled_names()
    return ()
