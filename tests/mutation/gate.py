"""Runs tests against mutants, in copies of the tree: a test suite that misses bugs is found out."""

import compileall
import contextlib
import enum
import json
import os
import py_compile
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

from tests.mutation.mutant import Mutant, mutated

ROOT = Path(__file__).parents[2]
# Not the command line, packaging and reports: no mutant touches them.
_FOLDERS = ("seedrl", "learner", "envs_server", "simulation")
_LEFT_OUT = ("cli", "extras", "processes", "programs", "report")
_SYSTEM = ("experience", "devices")
_NOT_COPIED = {"__pycache__", "build", "dist", "runs"}
_FAILURE = re.compile(r"^(?:FAILED|ERROR) ([\w/]+\.py.*?)(?: - .*)?$", re.MULTILINE)
_PASSED, _FAILED, _INTERRUPTED = 0, 1, 2


class Verdict(enum.Enum):
    """Fate of a mutant. One on which a test hangs without a deadline is not killed."""

    KILLED = "killed"
    SURVIVED = "survived"
    TIMED_OUT = "timed out"


class Result(NamedTuple):
    """Fate of a mutant, and the test that killed it (the end of the output if it names none)."""

    mutant: Mutant
    verdict: Verdict
    killer: str
    seconds: float


class _Run(NamedTuple):
    verdict: Verdict
    output: str


class BrokenHarnessError(RuntimeError):
    """The tests do not pass without a mutant, or cannot be run."""


class Copy:
    """A copy of the tree with a cache of compiled programs of its own. Used by one thread.

    Of its own, because jax reads what another process is just writing.
    """

    def __init__(self, root: Path, folder: Path):
        self.tree = folder / "tree"
        self._cache, self._output = folder / "cache", folder / "output"
        shutil.copytree(
            root,
            self.tree,
            ignore=lambda _, names: {n for n in names if n.startswith(".") or n in _NOT_COPIED},
        )
        # By default Python takes a file of the same size and second for unchanged.
        compileall.compile_dir(
            self.tree, quiet=1, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH
        )
        self._forker = subprocess.Popen(
            [sys.executable, "-m", "tests.mutation.forker"],
            cwd=self.tree,
            env={
                **os.environ,
                # Else what is installed takes two thirds of the start; the settings want one of it.
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
                "PYTHONPATH": str(self.tree),
                "PYTHONDONTWRITEBYTECODE": "",
                "JAX_COMPILATION_CACHE_DIR": str(self._cache),
                # A mutant that makes a test wait for ever is to be found out soon.
                "SEEDRL_PATIENCE_SECONDS": "20",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, tests: Sequence[str], timeout_seconds: float) -> _Run:
        """Runs tests in this order until the first failure."""
        arguments = ["-x", "-q", "--no-header", "--tb=line", "-rfE"]
        arguments += ["-p", "no:cacheprovider", "-p", "pytest_timeout", "--timeout=0", *tests]
        request, answers = self._forker.stdin, self._forker.stdout
        assert request is not None and answers is not None
        print(json.dumps([arguments, str(self._output)]), file=request, flush=True)
        process = int(answers.readline())
        # Its group has what the tests have started: all of it ends with them.
        late = threading.Timer(max(timeout_seconds, 0), os.killpg, (process, signal.SIGKILL))
        late.start()
        code = int(answers.readline())
        is_late = not late.is_alive()
        late.cancel()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)
        if is_late:
            # It may have been ended while it wrote a program.
            shutil.rmtree(self._cache, ignore_errors=True)
            return _Run(Verdict.TIMED_OUT, "")
        output = self._output.read_text(errors="replace")
        if code == _PASSED:
            return _Run(Verdict.SURVIVED, output)
        # A signal: the program has crashed, which nobody overlooks.
        if code in (_FAILED, _INTERRUPTED) or code < 0:
            return _Run(Verdict.KILLED, output)
        raise BrokenHarnessError(f"pytest ended with {code}:\n{output[-3000:]}")

    def close(self) -> None:
        """Ends its processes."""
        self._forker.communicate()

    def give_programs(self, cache: Path) -> None:
        """Adds what was compiled here to another cache, while nothing runs here."""
        if self._cache.exists():
            shutil.copytree(self._cache, cache, dirs_exist_ok=True)

    def try_mutant(self, mutant: Mutant, tests: Sequence[str], timeout_seconds: float) -> Result:
        """Runs tests with the mutant's bug in this copy until it is killed; takes it out again."""
        file = self.tree / mutant.file
        original = file.read_text()
        file.write_text(mutated(mutant, self.tree))
        start = time.monotonic()
        try:
            for tier in tiers(tests, mutant.file):
                run = self.run(tier, timeout_seconds - (time.monotonic() - start))
                if run.verdict is not Verdict.SURVIVED:
                    break
        finally:
            file.write_text(original)
        killer = _killer(run.output) if run.verdict is Verdict.KILLED else ""
        return Result(mutant, run.verdict, killer, time.monotonic() - start)


def _killer(output: str) -> str:
    found = _FAILURE.search(output)
    return found[1] if found else " ".join(output.split()[-20:])


def tests() -> list[str]:
    """The tests that all mutants are tried against, as paths from the root."""
    tree = ROOT / "tests"
    found = [path for folder in _FOLDERS for path in sorted((tree / folder).rglob("test_*.py"))]
    found = [path for path in found if not set(path.parts).intersection(_LEFT_OUT)]
    found += [tree / "system" / f"test_{name}.py" for name in _SYSTEM]
    return [str(path.relative_to(ROOT)) for path in found]


def own_test(file: str) -> str:
    """Where the test of a module lies, if it has one of its own."""
    path = Path(file)
    return f"tests/{path.parent}/test_{path.name}"


def tiers(tests: Sequence[str], file: str) -> list[list[str]]:
    """`tests` with the likeliest to notice a bug in `file` first.

    Its own test, those nearest in the tree, and then all others, first those of the whole system.
    What is not collected need not be imported: an early kill is a quick one.
    """
    folder = Path(file).parent

    def num_shared(test: str) -> int:
        there = Path(test).parent.relative_to("tests")
        return len(Path(os.path.commonpath([folder, there])).parts)

    def is_of_system(test: str) -> bool:
        return Path(test).parts[1] in ("system", "simulation")

    own = [test for test in tests if test == own_test(file)]
    others = [test for test in tests if test not in own]
    # Of those that are equally near, first those that lie less deep.
    near = sorted(filter(num_shared, others), key=lambda test: (-num_shared(test), test.count("/")))
    far = sorted((test for test in others if test not in near), key=is_of_system, reverse=True)
    return [tier for tier in (own, near, far) if tier]


def check_unmutated(copies: Sequence[Copy], tests: Sequence[str], timeout_seconds: float) -> None:
    """Runs tests, shared out over the copies; BrokenHarnessError if one fails without a mutant."""
    with ThreadPoolExecutor(len(copies)) as pool:
        # Without a test pytest would run the whole suite. Sorted: a file is imported by one copy.
        size = -(-len(tests) // len(copies))
        shares = [share for n in range(len(copies)) if (share := tests[n * size : (n + 1) * size])]
        for run in pool.map(lambda copy, share: copy.run(share, timeout_seconds), copies, shares):
            if run.verdict is not Verdict.SURVIVED:
                raise BrokenHarnessError(
                    f"expected the tests to pass without a mutant, got {run.verdict.value} by "
                    f"{_killer(run.output)}:\n{run.output[-3000:]}"
                )


def try_mutants(
    mutants: Sequence[Mutant], copies: Sequence[Copy], tests: Sequence[str], timeout_seconds: float
) -> Iterator[Result]:
    """Tries every mutant, one in each copy at a time; results in the order in which they come."""
    free: queue.SimpleQueue[Copy] = queue.SimpleQueue()
    for copy in copies:
        free.put(copy)

    def attempt(mutant: Mutant) -> Result:
        copy = free.get()
        try:
            return copy.try_mutant(mutant, tests, timeout_seconds)
        finally:
            free.put(copy)

    with ThreadPoolExecutor(len(copies)) as pool:
        for done in as_completed([pool.submit(attempt, mutant) for mutant in mutants]):
            yield done.result()
