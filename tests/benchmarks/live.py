"""Does `--balance auto` follow an environment that becomes slow, and quick again?

A run that learning binds starts with two env servers. Its environment's step takes 0 ms, then 50,
then 0. Within 30 s each time it has to be as fast as the best of a few fixed numbers of env
servers, which are measured in the same way. `python -m tests.benchmarks.forced "balance auto"`.
"""

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.paced_environment import set_pace
from tests.benchmarks.started_runs import Observed, running
from tests.system.processes import events

NAME = "balance auto"
_PACES = (0, 50, 0)
_FIXED = (2, 12)  # numbers of env servers
_MOST = 16
_FOLLOW_SECONDS = 30.0  # in which the run has to follow
_PHASE_SECONDS = 45.0
_LEAST = 0.95
_MOST_MOVES, _MINUTE = 3, 60.0
_SLOTS = 16
_WINDOW = 5  # points, once a second
# Learning does 8 steps in 40 ms: 200 steps/s, as many as 10 env servers of 50 ms.
_WORDS = (
    *("--replay.ratio", "4", "--learning.batch-sequences", "32"),
    *("--agent.update-ms", "40"),
)


def fixed(number: int, seconds: float, folder: Path) -> dict[int, float]:
    """Steps/s of a run with a fixed number of env servers, by the environment's milliseconds."""
    words = [*_WORDS, "--env-servers", str(number), "--envs", str(_SLOTS * number // _MOST)]
    found = {}
    with running(words, {"others": 0}, folder) as run:
        run.wait_until_learning()
        for pace in sorted(set(_PACES)):
            set_pace(folder, others=pace)
            found[pace] = run.over(seconds)["steps_per_second"]
    return found


def followed(folder: Path) -> list[list[tuple[float, int]]]:
    """Of each pace of the live run: seconds and environment steps, once a second."""
    words = [*_WORDS, "--env-servers", str(_FIXED[0]), "--envs", str(_SLOTS)]
    words += ["--balance", "auto", "--most-env-servers", str(_MOST)]
    with running(words, {"others": _PACES[0]}, folder) as run:
        run.wait_until_learning()
        time.sleep(10.0)
        phases = []
        for pace in _PACES:
            set_pace(folder, others=pace)
            phases.append(list(_points(run)))
    return phases


def _points(run: Observed) -> Iterator[tuple[float, int]]:
    end = time.monotonic() + _PHASE_SECONDS
    while time.monotonic() < end:
        status = run.now()
        yield status["time_seconds"], status["env_steps"]
        time.sleep(1.0)


def measured(seconds: float, folder: Path) -> dict[str, Any]:
    """Runs all of it."""
    static = {number: fixed(number, seconds, folder / str(number)) for number in _FIXED}
    phases = followed(folder / "auto")
    moves = events(folder / "auto" / "run", "balance")
    return {"static": static, "phases": phases, "moves": moves}


def rate(points: Sequence[tuple[float, int]]) -> float:
    (start, before), (end, after) = points[0], points[-1]
    return (after - before) / max(end - start, 1e-9)


def longest_below(points: Sequence[tuple[float, int]], least: float) -> float:
    """The longest time without a break in which the rate over a few points is below `least`."""
    longest, since = 0.0, None
    for number in range(_WINDOW, len(points)):
        now = points[number][0]
        is_below = rate(points[number - _WINDOW : number + 1]) < least
        since = (points[number - _WINDOW][0] if since is None else since) if is_below else None
        longest = max(longest, now - since if since is not None else 0.0)
    return longest


def most_in_a_minute(moves: Sequence[Mapping[str, Any]]) -> int:
    """Moves and those that were undone, in the fullest minute."""
    times = [
        move["time_seconds"]
        for move in moves
        if move["fields"]["measured"] is None or not move["fields"]["is_kept"]
    ]
    return max((sum(0 <= at - start < _MINUTE for at in times) for start in times), default=0)


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """What happened, and what was promised."""
    static: Mapping[int, Mapping[int, float]] = found["static"]
    for number, rates in static.items():
        shown = ", ".join(f"{value:.0f} steps/s at {pace} ms" for pace, value in rates.items())
        yield f"{number:3} env servers: {shown}"
    for move in found["moves"]:
        yield f"  {move['text']}"
    for number, (pace, points) in enumerate(zip(_PACES, found["phases"], strict=True)):
        best = max(rates[pace] for rates in static.values())
        start = points[0][0]
        late = [point for point in points if point[0] - start >= _FOLLOW_SECONDS]
        share = rate(late) / best
        text = f"phase {number + 1}, {pace} ms, after 30 s: {share:.2f} of the best fixed setting"
        yield promised(share >= _LEAST, f"{text} (at least {_LEAST})")
    most = most_in_a_minute(found["moves"])
    yield promised(most <= _MOST_MOVES, f"{most} moves in a minute (at most {_MOST_MOVES})")
    every = list(itertools.chain(*found["phases"]))
    seconds = longest_below(every, _LEAST * rate(found["phases"][0]))
    text = f"below {_LEAST} of the start for {seconds:.0f} s (at most {_FOLLOW_SECONDS:.0f})"
    yield promised(seconds <= _FOLLOW_SECONDS, text)


def promised(is_met: bool, text: str) -> str:
    """A line about a promise."""
    return f"{'met' if is_met else 'MISSED'}: {text}"
