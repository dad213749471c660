"""An experiment: a grid of runs as a TOML file, and N of their processes at a time until all are
done.

How far a run is, is read from the files of its folder: an experiment is resumed by starting it
again.
"""

import contextlib
import itertools
import re
import shlex
import signal
import sys
import threading
import tomllib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Literal, NamedTuple

from learner.checkpoints.run_records import commands_of, read_final_score, read_run
from learner.processes.env_servers import Child, child_environment
from learner.report.status import STOPPED
from seedrl import run_files
from seedrl.config import OWN_SERVING, Config
from seedrl.config_io import changes, to_allow, to_json
from seedrl.errors import ConfigError
from seedrl.exit_codes import ExitCode
from seedrl.run import leaves_of, words_of
from seedrl.run_files import read_regular
from seedrl.timing import POLL_SECONDS

_KEYS = {"configs": list, "seeds": list, "options": dict, "vary": dict}
# What the experiment itself gives each run.
_ITS_OWN = {"workdir": "--workdir", "seed": "seeds", "resume": "the same command again"}
# How a run ends that is done: a target that was missed is a result too.
_DONE = frozenset({ExitCode.OK, ExitCode.TARGET_MISSED})
# What may grow: a run of fewer steps is trained on.
_MAY_GROW = "--learning.total-steps"
# Starts of fields that do not make it another run.
_MAY_DIFFER = (
    *("learning.total_steps", "launch.", "logging.", "checkpoint."),
    *(f"serving.{name}" for name in OWN_SERVING),
)
_ENDING = f"{STOPPED} the end of the experiment"
# A command that continues a run without other options, as a run's summary names it.
_AS_IT_WAS = re.compile("seedrl resume (?!.* --(?!allow[ =]))")


# Words of `seedrl train` by run, without its folder. A run has the name of its folder: its
# configuration, what varies, and its seed.
Runs = dict[str, tuple[str, ...]]


def read_grid(path: Path) -> Runs:
    """The runs of a grid: all seeds of a configuration and its options, then the next.

    A configuration's path is relative to the file. Raises ConfigError, in one line.
    """
    try:
        return _planned(tomllib.loads(path.read_text()), path.parent)
    except (OSError, ValueError) as error:  # a ConfigError is a ValueError
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{path}: expected a grid, a TOML file: {reason}") from error


def _planned(grid: Mapping[str, Any], folder: Path) -> Runs:
    fixed, varied = _checked(grid)
    runs: Runs = {}
    for config, *values in itertools.product(grid["configs"], *varied.values()):
        own = dict(zip(varied, values, strict=True))
        flags = [word for option in (fixed | own).items() for word in words_of(*option)]
        # Absolute, so that the run is the same one from wherever the command is given.
        is_path = config.endswith((".py", ".json"))
        found = str((folder / config).resolve()) if is_path else config
        for seed in grid["seeds"]:
            words = [f"{option}={_text(value)}" for option, value in own.items()]
            name = "__".join([Path(config).stem, *words, f"seed={seed}"])
            if name in runs or len(name) > 200:
                raise ConfigError(
                    "vary: expected runs whose directories have different names of at most 200 "
                    f"characters, got {name}"
                )
            runs[name] = (found, "--seed", str(seed), *flags)
    return runs


def _checked(grid: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    # The options that all runs have, and those that vary.
    for key, value in grid.items():
        if not isinstance(value, _KEYS.get(key, ())):
            raise ConfigError(
                f"{key}: expected lists `configs` and `seeds`, tables `options` and `vary`, got "
                f"{value!r}"
            )
    for key, kind, items in (("configs", str, "names"), ("seeds", int, "whole numbers")):
        if not grid.get(key) or not all(type(value) is kind for value in grid[key]):
            got = f"{grid[key]!r:.80}" if key in grid else "nothing"
            raise ConfigError(f"{key}: expected a list of {items}, got {got}")
    fixed, varied = (dict(leaves_of(grid.get(table, {}))) for table in ("options", "vary"))
    for name in (*fixed, *varied):
        if name in _ITS_OWN:
            raise ConfigError(f"{name}: each run has its own; see {_ITS_OWN[name]}")
    for name, values in varied.items():
        if not isinstance(values, list) or not values:
            raise ConfigError(f"vary.{name}: expected a list of values, got {values!r}")
    return fixed, varied


def _text(value: Any) -> str:
    # Fit for the name of a folder.
    values = value if isinstance(value, list) else [value]
    return re.sub(r"[^\w.+,-]+", "_", "x".join(map(str, values)))


class Outcome(NamedTuple):
    """How far a run has come, and why it has not finished."""

    state: Literal["finished", "failed", "interrupted", "not started"]
    reason: str = ""


class Experiment:
    """Owns the processes that train and score runs, each watched by a thread of its own.

    A run that fails is kept, and ends no other. The kernel kills the processes if this one is
    killed; the same experiment continues from their newest checkpoints.
    """

    def __init__(self, folder: Path, runs: Runs, *, number: int, episodes: int) -> None:
        """`number`: of processes at a time. `episodes`: of final scores."""
        self._folder, self._runs, self._number = folder, runs, number
        self._episodes = episodes
        self._is_ending = threading.Event()
        # Guards `_children`: a process that is started while the experiment ends must be told too.
        self._lock = threading.Lock()
        self._children: dict[str, Child] = {}
        # Each entry is replaced by the thread that works on its run.
        self.outcomes = {name: Outcome("not started") for name in runs}

    def work(self, is_stopped: Callable[[], bool]) -> int:
        """Works until all runs are done, or have saved because it is stopped: an `ExitCode`."""
        with ThreadPoolExecutor(self._number, "run") as pool:
            working = [pool.submit(self._work_on, name) for name in self._runs]
            # In turns, because a signal only sets a flag.
            while wait(working, timeout=POLL_SECONDS).not_done:
                if is_stopped() and not self._is_ending.is_set():
                    self._end()
        for each in working:
            each.result()
        states = {outcome.state for outcome in self.outcomes.values()}
        bad = {"failed"} if self._is_ending.is_set() else {"failed", "interrupted"}
        return ExitCode.FAULTS if bad & states else ExitCode.OK

    def _work_on(self, run: str) -> None:
        # In a thread of the pool: as far as that is left to do.
        folder = self._folder / run
        if self._is_ending.is_set():
            return
        outcome = None
        if not has_trained(folder, self._runs[run]):
            outcome = self._train(run, folder)
        if outcome is None and not has_score(folder, self._episodes):
            outcome = self._score(run, folder)
        self.outcomes[run] = outcome = outcome or Outcome("finished")
        reason = f": {outcome.reason} ({self._log(run)})" if outcome.reason else ""
        _say(f"{run}: {outcome.state}{reason}")

    def _train(self, run: str, folder: Path) -> Outcome | None:
        # How that ended; None if well.
        _say(f"{run}: trains")
        code = self._run(run, ["train", *self._runs[run], "--workdir", str(folder)])
        if code not in _DONE and not (self._is_ending.is_set() and code == ExitCode.KILLED):
            return Outcome("failed", f"ended with {code}: {_last_line(self._log(run))}")
        # A signal before it has begun leaves no command, and ends it with 0, too.
        if self._is_ending.is_set() or command_of(folder) is None:
            return Outcome("interrupted", _ENDING)
        reason = read_run(folder).reason
        return Outcome("interrupted", reason) if reason.startswith(STOPPED) else None

    def _score(self, run: str, folder: Path) -> Outcome | None:
        _say(f"{run}: plays the episodes of its final score")
        words = ["evaluate", str(folder), "--episodes", str(self._episodes)]
        # All runs alike, whatever their own evaluations explore.
        words += ["--deterministic", "--save"]
        code = self._run(run, words + _allowing(folder))
        if self._is_ending.is_set():
            return Outcome("interrupted", _ENDING)
        if code != ExitCode.OK:
            last = _last_line(self._log(run))
            return Outcome("failed", f"its evaluation ended with {code}: {last}")
        return None

    def _run(self, run: str, words: Sequence[str]) -> int:
        ended: SimpleQueue[int] = SimpleQueue()
        self._log(run).parent.mkdir(exist_ok=True)
        # Appended: an earlier try's output may explain this one.
        with self._log(run).open("ab") as log, self._lock:
            if self._is_ending.is_set():
                return ExitCode.KILLED
            # A process for each run: one that fails, or whose memory grows, harms no other.
            command = [sys.executable, "-P", "-m", "learner.cli.main", *words]
            self._children[run] = Child(command, child_environment(), on_exit=ended.put, output=log)
        code = ended.get()
        with self._lock:
            del self._children[run]
        return code

    def _end(self) -> None:
        # Lets all runs save; nothing is started any more.
        with self._lock:
            self._is_ending.set()
            for child in self._children.values():
                child.send(signal.SIGTERM)
        _say("ending after a save; the same command resumes")

    def _log(self, run: str) -> Path:
        return self._folder / "logs" / f"{run}.log"


def has_trained(folder: Path, planned: Sequence[str]) -> bool:
    """True if the folder holds the run of these words, and it has finished."""
    command = command_of(folder)
    is_same = command is not None and _words(command) == [*planned]
    return is_same and read_run(folder).state == "finished"


def has_score(folder: Path, episodes: int) -> bool:
    """True if the run has a final score, of greedy play over `episodes` or more."""
    kept = read_final_score(folder)
    return kept is not None and kept.episodes >= episodes and not kept.exploration


def check_same(folder: Path, planned: Sequence[str], config: Config) -> None:
    """Raises ConfigError if the folder holds another run than planned; only its steps may grow.

    `config`: of these words, by its file as it is now.
    """
    command = command_of(folder)
    if command is None:
        return
    if _without(_words(command), _MAY_GROW) != _without([*planned], _MAY_GROW):
        raise ConfigError(
            f"{folder}: expected the run `seedrl train {shlex.join(planned)}`, found "
            f"`{command}`; choose another --workdir, or remove that directory"
        )
    with contextlib.suppress(FileNotFoundError):
        saved = read_regular(folder / run_files.CONFIG).decode()
        for field, (before, now) in changes(saved, to_json(config)).items():
            # A field that its version did not have is what it was by default.
            if before != "nothing" and not field.startswith(_MAY_DIFFER):
                raise ConfigError(
                    f"{folder}: expected {field} {now}, as in the config file, found {before}; "
                    "choose another --workdir, or remove that directory"
                )


def command_of(folder: Path) -> str | None:
    """What the run was last started with; None if it has not begun."""
    begun = [line for line in commands_of(folder) if not _AS_IT_WAS.match(line)]
    return begun[-1] if begun else None


def _words(command: str) -> list[str]:
    # Of `seedrl train`, as a grid plans them.
    return _without(_without(shlex.split(command)[2:], "--workdir"), "--resume")


def _without(words: list[str], flag: str) -> list[str]:
    # Each flag of a grid is followed by its value.
    if flag not in words:
        return words
    place = words.index(flag)
    return words[:place] + words[place + 2 :]


def _allowing(run: Path) -> list[str]:
    # It is this experiment that has trained the run: what that needed is allowed.
    try:
        words = to_allow(read_regular(run / run_files.CONFIG).decode())
    except (OSError, ValueError, KeyError, TypeError):
        return []  # the evaluation reports what is wrong
    return ["--allow", *words] if words else []


def _last_line(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 2**16))
        lines = file.read().decode(errors="replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _say(line: str) -> None:
    # With its end in one write: several threads print.
    print(f"{line}\n", end="", file=sys.stderr, flush=True)
