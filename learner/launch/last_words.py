"""What the end of an env server means, from its exit code and the last lines of its log."""

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from seedrl.exit_codes import ExitCode
from seedrl.programs.outcome import FAREWELL, FINISHED

# How one ends that it would be in vain to start again, if it says so itself.
_VERBS: dict[int, str] = {ExitCode.USAGE: "cannot run", ExitCode.FAILED_FILMS: "failed"}
# What an env server writes before each of its lines: when, and which process.
_LOG_PREFIX = re.compile(r"^\S+ \S+ env server \d+: ")
# What it writes last if it ends by its own decision: it serves no more, or has never begun to.
_LAST_LINE = re.compile(rf"{FAREWELL}|python -m envs_server: error: ")


class LastWords(NamedTuple):
    """Why an env server has ended.

    Attributes:
      kind: `finished`: it has heard that the run is over; `in vain`: it would end so again;
        `died`: of anything else.
      reason: in its own words.
      verb: between its name and the reason, if it is in vain.
    """

    kind: Literal["finished", "in vain", "died"]
    reason: str
    verb: str = ""


def telling_line(lines: Sequence[str]) -> str:
    """The line of an env server's last ones that tells why it has ended; "" if there is none.

    It is the last, unless it has said that it heard of the run's end: environments that are closed
    thereupon may say more.
    """
    finished = FAREWELL + FINISHED
    said = (line for line in lines if _LOG_PREFIX.sub("", line).startswith(finished))
    return next(said, lines[-1] if lines else "")


def last_words(code: int, line: str) -> LastWords:
    """What that exit code means after that line; see `telling_line`."""
    line = _LOG_PREFIX.sub("", line)
    farewell = _LAST_LINE.match(line)
    reason = line[farewell.end() :] if farewell else line
    # Whatever the code: an environment may end the process while it is closed.
    if farewell and reason.startswith(FINISHED):
        return LastWords("finished", reason)
    if code in _VERBS and farewell:
        return LastWords("in vain", reason, _VERBS[code])
    return LastWords("died", reason)
