"""A run that this program has started, as a child process. `seedrl.train` builds it."""

import atexit
import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from seedrl import config_io, run_files
from seedrl.config import Config
from seedrl.errors import ConfigError
from seedrl.exit_codes import ExitCode
from seedrl.programs.flags import opposite_of
from seedrl.timing import POLL_SECONDS

if TYPE_CHECKING:
    from seedrl.policy import Policy

__all__ = ["Run", "RunError", "start"]

_JSON = "environment.arguments"  # a field whose value is a JSON object, not a section of fields


class RunError(RuntimeError):
    """Error of a failed run; the message is the run's error line.

    Attributes:
      exit_code: of `seedrl train` (`seedrl.exit_codes.ExitCode`); -n if signal n killed it.
    """

    def __init__(self, line: str, exit_code: int) -> None:
        super().__init__(line)
        self.exit_code = exit_code


class Run:
    """Handle of a run in a child process. `seedrl.train` returns it.

        with seedrl.train("cartpole_ppo") as run:    # leaving the block saves and ends the run
            for metrics in run:                      # each line of metrics.jsonl as it is written
                if metrics["kind"] == "evaluation":
                    print(metrics["env_steps"], metrics["mean_return"])

    The run is also saved and ended when this program ends, and by Ctrl-C (or an interrupted
    notebook cell) while the program waits for the run. If a signal such as SIGTERM or SIGKILL kills
    the program, the run continues.

    Attributes:
      workdir: directory of the run.
    """

    def __init__(self, words: Sequence[str], workdir: Path, folder: Path) -> None:
        """Starts `seedrl train` with these words. Owns `folder`, for the command's output."""
        self.workdir = workdir
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._output = folder / "output.txt"
        self._is_stopped = False
        # What this program can import the run can import too, after the current folder.
        folders = dict.fromkeys([*(folder or os.getcwd() for folder in sys.path), os.getcwd()])
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "learner.cli.main", "train", *words],
                stdin=subprocess.DEVNULL,  # what is typed is for this program
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)},
                # A notebook interrupts its whole process group, whichever cell is running.
                start_new_session=True,
            )
        # Also keeps a run whose handle the caller drops.
        atexit.register(self.stop)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yields the lines of metrics.jsonl, from the file's start until the run has ended.

        Each is a dict, and `kind` is its kind (docs/metrics.md). Lines of earlier sessions of the
        run come first. Raises RunError at the end if the run has failed.
        """
        position = 0
        while True:
            # Asked before reading: the lines before the end are then all in the file.
            has_ended = self._process.poll() is not None
            lines, position = self._read(position)
            yield from lines
            if has_ended:
                break
            if not lines:
                self._wait(POLL_SECONDS)
        self._result()

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """All lines of metrics.jsonl so far: `pandas.DataFrame(run.metrics)`."""
        return self._read(0)[0]

    def wait(self) -> ExitCode:
        """Waits for the end of the run. Raises RunError if it has failed.

        Returns OK, or TARGET_MISSED if the run has a target return and has not confirmed it.
        """
        self._wait(None)
        return self._result()

    def stop(self) -> None:
        """Saves and ends the run, and returns when both are done.

        Raises RunError if the run has failed.
        """
        # One signal: a second one would end the run without saving.
        if not self._is_stopped and self._process.poll() is None:
            self._is_stopped = True
            self._process.terminate()
        self._process.wait()
        self._result()

    def policy(self, **options: Any) -> "Policy":
        """The run's newest policy: `seedrl.load_policy(workdir, **options)`, own code allowed."""
        from seedrl.policy import load

        # What the run's own configuration names is the caller's code. `load` reports a missing one.
        with contextlib.suppress(FileNotFoundError):
            saved = run_files.read_regular(self.workdir / run_files.CONFIG).decode()
            options = {"allow": config_io.to_allow(saved), **options}
        return load(self.workdir, **options)

    def _wait(self, seconds: float | None) -> None:
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            pass
        except KeyboardInterrupt:
            self.stop()
            raise

    def _read(self, position: int) -> tuple[list[dict[str, Any]], int]:
        # The whole lines from that position on, and the position after them.
        try:
            with run_files.open_regular(self.workdir / run_files.METRICS) as file:
                file.seek(position)
                data = file.read()
        except FileNotFoundError:  # the run has not begun
            return [], position
        data = data[: data.rfind(b"\n") + 1]
        lines = []
        for line in data.splitlines():
            # A killed session leaves half a line, and the next one starts on a new line.
            with contextlib.suppress(ValueError):
                lines.append(json.loads(line))
        return lines, position + len(data)

    def _result(self) -> ExitCode:
        code = self._process.returncode
        # A signal before the command has handlers for it: nothing had begun.
        if self._is_stopped and code == -signal.SIGTERM:
            code = ExitCode.KILLED
        atexit.unregister(self.stop)
        is_well = code in (ExitCode.OK, ExitCode.TARGET_MISSED)
        if not is_well and not (self._is_stopped and code == ExitCode.KILLED):
            raise _error(self._output.read_text(errors="replace"), code)
        return ExitCode(code)


def _error(output: str, code: int) -> RunError:
    lines = [line.strip() for line in output.splitlines()]
    ended = f"the run has ended with {code}, without an error line"
    # Of a traceback too: `ValueError: ...`.
    found = [line for line in lines if "error: " in line.lower()]
    error = RunError(found[-1] if found else ended, code)
    if code == ExitCode.INTERNAL:
        error.add_note(output)
    return error


def start(
    config: str | Path | Config, workdir: str | Path | None, options: Mapping[str, Any]
) -> Run:
    """See `seedrl.train`."""
    # First: a Config that is refused leaves nothing behind.
    text = _text(config) if isinstance(config, Config) else None
    if workdir is None:
        # With a random end: a second may begin several runs.
        name = "config" if text else Path(str(config)).stem
        now = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        workdir = Path("runs") / f"{name}__{now}-{secrets.token_hex(3)}"
    absolute = Path(workdir).absolute()
    folder = Path(tempfile.mkdtemp(prefix="seedrl-"))
    if text is not None:
        # Under the name of a run's own file it would be read as anybody's, for whom no port is
        # opened.
        config = folder / "saved.json"
        config.write_text(text)
        options = {"allow": config_io.to_allow(text), **options}
    flags = [word for item in leaves_of(options) for word in words_of(*item)]
    return Run([str(config), *flags, "--workdir", str(absolute)], absolute, folder)


def _text(config: Config) -> str:
    names = [name for name in config_io.to_allow(config_io.to_json(config)) if ":" in name]
    for name in names:
        if name.startswith("__main__:"):
            raise ConfigError(
                f"config: expected {name} in a module, which the run's process can import, got it "
                "in a script or notebook; move it to a file of its own"
            )
    # Modules in the current folder are found by whoever plays the run from elsewhere.
    config_io.import_factories(names)
    return config_io.to_json(config)


def leaves_of(table: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Options of a nested table by their names: `replay.ratio` for {"replay": {"ratio": 4}}."""
    # With or without quotes: `replay.ratio = 4` makes a table in TOML.
    for key, value in table.items():
        name = (f"{path}.{key}" if path else key).replace("_", "-")
        if isinstance(value, Mapping) and name != _JSON:
            yield from leaves_of(value, name)
        else:
            yield name, value


def words_of(name: str, value: Any) -> list[str]:
    """An option as words of a command line; the inverse of `parse_words`."""
    if isinstance(value, bool):
        return [f"--{name}" if value else opposite_of(f"--{name}")]
    if isinstance(value, Mapping):
        value = json.dumps(value)
    values = value if isinstance(value, list | tuple) else [value]
    # One line, as a run records its command: it is compared with that.
    return [f"--{name}", *(str(each).replace("\n", " ") for each in values)]
