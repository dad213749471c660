"""Runs every command of README.md and docs: `python -m tests.tools.documented [DOCUMENT...]`.

Each document has a scratch folder of its own, in which its commands follow each other as they
stand. What trains is ended by Ctrl-C after its first evaluation, unless it has ended before;
`scratch.here` says what else is made smaller. One line for each command: its exit code, its
seconds, and the command as it ran. Ends with 1 if a code is not 0.
"""

import re
import signal
import sys
import tempfile
import urllib.request
from collections.abc import Callable
from pathlib import Path

from tests.tools.documented import scratch
from tests.tools.documented.commands import Command, commands
from tests.tools.documented.process import Process

# What is not ended by then has failed; a machine that does other work takes a while.
_MOST_SECONDS = 1200.0
# How long what trains may take to evaluate, and whatever is interrupted to end.
_TRAINING_SECONDS = 170.0
_GRACE_SECONDS = 120.0
_EVALUATION = re.compile(r'"kind": ?"evaluation"')


class Reader:
    """Goes through one document. Owns the processes that it starts.

    Attributes:
      num_failed: commands that did not end as they should.
    """

    def __init__(self, document: str, folder: Path, logs: Path) -> None:
        logs.mkdir()
        self._document = document
        self._folder, self._logs = folder, logs
        self._port = scratch.free_port()
        self._learner: tuple[str, Process] | None = None
        self._num_logs = 0
        self.num_failed = 0

    def follow(self, command: Command) -> None:
        """Runs the command, and ends it."""
        if reason := scratch.left_out(command):
            print(f"   -         {self._document}: {command.words}   (left out: {reason})")
            return
        words = scratch.here(command, self._port)
        process = self._start(words)
        if command.is_learner:
            self._learner = words, process
        elif command.is_env_server:
            self._beside_learner(words, process)
        elif command.is_training:
            self._report(words, process, self._until(process, self._evaluates()))
        elif command.argv[:2] == ["seedrl", "watch"]:
            self._report(words, process, self._until(process, lambda: _answers(process)))
        else:
            self._report(words, process, "")

    def close(self) -> None:
        """Ends what still runs."""
        if self._learner is not None:
            words, process = self._learner
            self._report(words, process, "no env server came")

    def _start(self, words: str) -> Process:
        self._num_logs += 1
        log = self._logs / f"{self._num_logs:02d}.log"
        return Process(words, self._folder, log, scratch.environment())

    def _evaluates(self) -> Callable[[], bool]:
        # Whether there is one more round of evaluation than now.
        before = self._num_evaluations()
        return lambda: self._num_evaluations() > before

    def _num_evaluations(self) -> int:
        logs = self._folder.rglob("events.jsonl")
        return sum(len(_EVALUATION.findall(log.read_text())) for log in logs)

    def _until(self, process: Process, is_enough: Callable[[], bool]) -> str:
        if process.wait(_TRAINING_SECONDS, is_enough):
            return ""
        was_enough = is_enough()
        process.interrupt()
        return "then Ctrl-C" if was_enough else "Ctrl-C when its time was over"

    def _beside_learner(self, words: str, process: Process) -> None:
        if self._learner is None:
            self._report(words, process, "without a learner")
            return
        (learner_words, learner), self._learner = self._learner, None
        evaluates = self._evaluates()
        how = self._until(learner, lambda: evaluates() or bool(process.code))
        self._report(learner_words, learner, how)
        # The env server of a learner that has been interrupted waits for the next one.
        if how:
            process.interrupt()
        self._report(words, process, how)

    def _report(self, words: str, process: Process, how: str) -> None:
        process.wait(_GRACE_SECONDS if how else _MOST_SECONDS)
        code, seconds = process.code, process.seconds
        process.close()
        shown = "hangs" if code is None else code
        remark = f"   ({how})" if how else ""
        warned = re.search(r"does not provide the extra.*", process.output())
        # A program without a handler, as the one in Node.js, dies of Ctrl-C.
        expected = {0, -signal.SIGINT} if how and words.startswith("node ") else {0}
        is_fine = code in expected and warned is None
        print(f"{shown:>5} {seconds:6.1f} s  {self._document}: {words}{remark}", flush=True)
        if not is_fine:
            self.num_failed += 1
            print("\n".join(f"        {line}" for line in process.output().splitlines()[-20:]))


def _answers(process: Process) -> bool:
    found = re.search(r"http://\S+/", process.output())
    if found is None:
        return False
    with urllib.request.urlopen(found[0], timeout=10) as page:
        return bool(page.status == 200)


def main() -> int:
    """1 if a command did not end as it should, 2 for a document that has none."""
    found = commands()
    documents = list(dict.fromkeys(command.file for command in found))
    chosen = sys.argv[1:] or documents
    if unknown := sorted(set(chosen) - set(documents)):
        print(f"no commands in {', '.join(unknown)}: expected {', '.join(documents)}")
        return 2
    num_failed = 0
    with tempfile.TemporaryDirectory(prefix="seedrl-documented-") as folder:
        for number, document in enumerate(chosen):
            place = scratch.prepare(document, Path(folder, f"document_{number}"))
            reader = Reader(document, place, logs=Path(folder, f"logs_{number}"))
            if before := scratch.BEFORE.get(document):
                reader.follow(Command(document, before))
            for command in found:
                if command.file == document:
                    reader.follow(command)
            reader.close()
            num_failed += reader.num_failed
    print(f"{num_failed} failed")
    return int(num_failed > 0)


if __name__ == "__main__":
    sys.exit(main())
