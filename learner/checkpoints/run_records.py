"""What the directories of runs record of them, read from files alone: their writers may be dead.

A folder may be anybody's: values of a wrong type count as missing, and nothing but regular files is
opened.
"""

import contextlib
import itertools
import json
import math
import shlex
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from learner.processes.locks import is_locked
from learner.processes.stop import ENV_SERVERS_FAILED
from learner.report.json_lines import LineReader, number, parsed, replace_file
from learner.report.status import ERROR, FAILED, FRESH_SECONDS, STOPPED, EvaluationStatus
from seedrl import checkpoints, run_files
from seedrl.errors import CheckpointError
from seedrl.programs.flags import flag_of
from seedrl.run_files import read_regular
from seedrl.wire.contract import printable

State = Literal["running", "finished", "interrupted", "failed"]

_MOST_ROUNDS = 100_000  # of a run; the file may be anybody's
KILLED_WHILE_ENDING = "it was killed at its end, maybe before it had saved"

_LONGEST_TEXT = 500
_COUNTS = ("episodes", "env_steps", "ended_env_steps", "updates")


class RunRecord(NamedTuple):
    """A run."""

    folder: Path
    config: str  # name of its configuration; the environment's if that is not known
    seed: int | None  # None without a config
    # `finished`: its steps are taken or its target is confirmed; `interrupted`: by a signal, or it
    # died without a word; `failed`: by an error.
    state: State
    reason: str  # in words, as far as it is known
    env_steps: int
    last: float | None  # mean return of the newest round of evaluation
    best: float | None


def read_run(folder: Path, *, now: float | None = None) -> RunRecord:
    """What is known of a run; files that are missing or torn tell nothing."""
    # `now`: Unix time, by default the present.
    shown, config = _json(folder / run_files.STATUS), _json(folder / run_files.CONFIG).get("config")
    config = config if isinstance(config, dict) else {}
    environment = config.get("environment")
    name = environment.get("id") if isinstance(environment, dict) else ""
    rounds = [played.score for played in played_rounds(folder / run_files.METRICS)]
    returns = [played.mean_return for played in rounds]
    updated = number(shown, "time_seconds") or 0.0
    silent_seconds = (time.time() if now is None else now) - updated
    is_alive = silent_seconds < FRESH_SECONDS
    # The lock of a learner of this machine shows more: it is held while the process exists, also
    # by one that is stopped or gets no CPU.
    if shown.get("host") == socket.gethostname() and (locked := is_locked(folder)) is not None:
        is_alive = locked
    state, reason = _state(shown, is_alive=is_alive)
    if state == "running" and silent_seconds >= FRESH_SECONDS:
        reason += f", without a sign of life for {silent_seconds:,.0f} s"
    env_steps = number(shown, "env_steps")
    if env_steps is None:
        env_steps = rounds[-1].ended_env_steps if rounds else 0  # a lower bound
    return RunRecord(
        folder=folder,
        config=printable(str(shown.get("config") or name or ""), _LONGEST_TEXT),
        seed=config["seed"] if isinstance(config.get("seed"), int) else None,
        state=state,
        reason=printable(reason, _LONGEST_TEXT),
        env_steps=int(env_steps),
        last=returns[-1] if returns else None,
        best=max(returns, default=None),
    )


def commands_of(folder: Path) -> list[str]:
    """The command lines of a run's sessions, oldest first; none if they cannot be read."""
    # Without its end the last line is of a start that a full disk has refused.
    with contextlib.suppress(OSError):
        return read_regular(folder / run_files.COMMANDS).decode(errors="replace").split("\n")[:-1]
    return []


def words_given(command: str, *names: str) -> list[str]:
    """The words of a command line that set one of these flags: each flag with its values."""
    found: list[str] = []
    with contextlib.suppress(ValueError):  # half a line, which a full disk leaves
        is_named = False
        for word in shlex.split(command):
            if word.startswith("--"):
                is_named = flag_of(word) in names
            found += [word] if is_named else []
    return found


class Round(NamedTuple):
    """A round of evaluation that is part of a run."""

    score: EvaluationStatus
    seconds: float  # time of the run when its score was known


def played_rounds(path: Path) -> list[Round]:
    """The rounds of evaluation of all sessions of a run, oldest first."""
    rounds: list[Round] = []
    for line in _lines(path, b"evaluation", b"session"):
        if line["kind"] == "session":
            # A session lacks what the one before it had not saved when it was killed. Rounds before
            # `--resume never` are of another attempt, and some of another environment.
            is_apart = line.get("is_begun_anew") or line.get("is_other_environment")
            steps = -1.0 if is_apart else number(line, "env_steps")
            rounds = [each for each in rounds if steps is None or each.score.env_steps <= steps]
        elif len(rounds) < _MOST_ROUNDS and (played := _round(line)) is not None:
            rounds.append(played)
    return rounds


def rounds_since_best(rounds: Sequence[EvaluationStatus]) -> int:
    """Rounds of evaluation after the one with the best mean return, without confirmations."""
    best, number = -math.inf, 0
    for played in rounds:
        number += not played.is_confirmation
        if played.mean_return > best:
            best, number = played.mean_return, 0
    return number


def _round(line: dict[str, Any]) -> Round | None:
    # An old version's line has no `ended_env_steps`: its `env_steps` are not the parameters'.
    mean_return, counts = number(line, "mean_return"), [number(line, name) for name in _COUNTS]
    if mean_return is None or None in counts:
        return None
    score = EvaluationStatus(
        mean_return=mean_return,
        is_confirmation=bool(line.get("is_confirmation")),
        **{name: int(count or 0) for name, count in zip(_COUNTS, counts, strict=True)},
    )
    return Round(score, number(line, "elapsed_seconds") or 0.0)


class FinalScore(NamedTuple):
    """A round that was played after a run, by its last parameters."""

    # A score that decided on something, such as which parameters are the best or whether the run
    # may end, is too high on average; this one did not.

    mean: float
    episodes: int
    updates: int  # of the run when it was played; confirmed parameters may be of fewer
    exploration: float  # of all its slots; 0 is greedy


def write_final_score(folder: Path, score: FinalScore) -> None:
    """Keeps it in the directory of the run. Raises OSError."""
    replace_file(folder / run_files.FINAL_SCORE, json.dumps(score._asdict()) + "\n")


def read_final_score(folder: Path) -> FinalScore | None:
    """What is kept in the directory of a run; None without, or if it has a newer checkpoint."""
    kept = _json(folder / run_files.FINAL_SCORE)
    mean, episodes, updates, exploration = (number(kept, name) for name in FinalScore._fields)
    if mean is None or episodes is None or updates is None or exploration is None:
        return None
    # Trained on since, the run has other parameters than those that were scored.
    score = FinalScore(mean, int(episodes), int(updates), exploration)
    return score if _newest_update(folder) in (None, updates) else None


def _newest_update(folder: Path) -> float | None:
    # Of those that `checkpoints.choose` takes: a learner that was killed has counted updates in its
    # status that it had not saved.
    best = checkpoints.best_directory(folder)
    for directory in (best.parent, best):
        with contextlib.suppress(CheckpointError):  # a link
            if found := checkpoints.listed(directory):
                return found[-1][0]
    return number(_json(folder / run_files.STATUS), "updates")  # of a copy without checkpoints


def _state(shown: dict[str, Any], *, is_alive: bool) -> tuple[State, str]:
    reason = str(shown.get("reason", ""))
    # Only a learner that has closed its reports writes that.
    if shown.get("state") != "finished":
        if is_alive:
            return "running", str(shown.get("state", ""))
        if shown.get("state") == "stopping":  # by a second signal, say; the first gave the reason
            return "interrupted", f"{KILLED_WHILE_ENDING} ({reason})"
        return "interrupted", "its process was killed, or its machine stopped"
    if reason in FAILED or reason.startswith((f"{ERROR}: ", ENV_SERVERS_FAILED)):
        return "failed", reason
    return ("interrupted" if reason.startswith(STOPPED) else "finished"), reason


def _lines(path: Path, *kinds: bytes) -> Iterator[dict[str, Any]]:
    """The lines of these kinds in a file of metrics, oldest first; none if it is not there."""
    wanted = tuple(b'"kind": "%b"' % kind for kind in kinds)  # as `JsonLines` writes it
    for text in itertools.chain.from_iterable(LineReader(path).rest()):
        # Most lines are of intervals, long, and not worth parsing.
        if any(kind in text[:200] for kind in wanted) and (line := parsed(text)):
            yield line


def _json(path: Path) -> dict[str, Any]:
    try:
        return parsed(read_regular(path))
    except OSError:
        return {}
