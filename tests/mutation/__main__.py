"""The mutation gate: how many of the planted bugs does the test suite find?

    python -m tests.mutation                 all mutants
    python -m tests.mutation --fast          one of each module that has a test of its own, and
                                             only against these tests: about a minute
    python -m tests.mutation NAME ...        these

Ends with 0 if at least 95 per cent are killed, with 1 if not, with 2 if a test that killed one
fails without it, too.
"""

import argparse
import contextlib
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.mutation import gate
from tests.mutation.gate import Result, Verdict
from tests.mutation.mutant import Mutant, all_mutants

ROOT = Path(__file__).parents[2]
LEAST_SCORE = 0.95


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="mutants to try; all by default")
    parser.add_argument("--fast", action="store_true", help="one of each tested module")
    parser.add_argument("--workers", type=int, default=2, help="mutants at a time")
    parser.add_argument(
        "--timeout-seconds", type=float, default=400.0, help="the longest that one mutant may take"
    )
    flags = parser.parse_args()
    known = {mutant.name: mutant for mutant in all_mutants()}
    if unknown := sorted(set(flags.names) - known.keys()):
        parser.error(f"unknown: {', '.join(unknown)}; expected some of {', '.join(known)}")
    chosen, tests = [known[name] for name in flags.names or known], gate.tests()
    if flags.fast:
        first = {mutant.file: mutant for mutant in reversed(chosen) if mutant.name not in _NOT_FAST}
        chosen = [each for each in first.values() if gate.own_test(each.file) in tests]
        own = [gate.own_test(mutant.file) for mutant in chosen]
        tests = list(dict.fromkeys([*own, *_ALSO_FAST]))
    try:
        return report(run(chosen, tests, flags.workers, flags.timeout_seconds))
    except gate.BrokenHarnessError as error:
        print(error, file=sys.stderr)
        return 2


# What is one module has several test files; these are not named like it.
_ALSO_FAST = (
    "tests/seedrl/replay/test_queue.py",
    "tests/learner/test_synchronous.py",
    "tests/envs_server/test_lease.py",
)
# The tests of other modules find these.
_NOT_FAST = (
    "actions_of_the_first_group",
    "frames_before_the_transition_left_out",
    "last_observation_of_next_episode",
)


def run(
    mutants: Sequence[Mutant], tests: Sequence[str], workers: int, timeout_seconds: float
) -> list[Result]:
    """Tries all and prints each result as it comes, then checks that the killers pass otherwise."""
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="mutants") as folder, contextlib.ExitStack() as stack:
        copies = [gate.Copy(ROOT, Path(folder) / str(number)) for number in range(workers)]
        for copy in copies:
            stack.callback(copy.close)
        for result in gate.try_mutants(mutants, copies, tests, timeout_seconds):
            results.append(result)
            verdict, name = result.verdict.value, result.mutant.name
            print(f"{verdict:9} {name:40} {result.seconds:5.0f} s  {result.killer}", flush=True)
        killers = sorted({killer for result in results if (killer := result.killer)})
        start = time.monotonic()
        gate.check_unmutated(copies, killers, timeout_seconds)
        seconds = time.monotonic() - start
        print(f"{len(killers)} tests that killed pass without a mutant ({seconds:.0f} s)")
        # The suite compiles the same: of two that run one after the other the second is quicker.
        for copy in copies:
            copy.give_programs(ROOT / ".compile_cache")
    return results


def report(results: Sequence[Result]) -> int:
    """Prints those that lived and the score; the exit code."""
    lived = [result for result in results if result.verdict is not Verdict.KILLED]
    for verdict, mutant in ((result.verdict, result.mutant) for result in lived):
        print(f"{verdict.value}: {mutant.name} ({mutant.file}): {mutant.bug}")
    killed = len(results) - len(lived)
    print(f"mutation score {100 * killed / len(results):.1f} %: {killed} of {len(results)} killed")
    return 0 if killed >= LEAST_SCORE * len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
