"""The mutation gate: how many of the planted bugs does the test suite find?

    python -m tests.mutation                 all mutants
    python -m tests.mutation --fast          one of each module that has a test of its own, and
                                             against these tests alone: about two minutes
    python -m tests.mutation NAME ...        these, equivalent ones too
    python -m tests.mutation --list          what there is

Ends with 0 if at least 95 per cent are killed, with 1 if not, with 2 if the tests do not pass
without a mutant.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.mutation import gate, harness
from tests.mutation.catalogue import MUTANTS
from tests.mutation.gate import Result, Verdict
from tests.mutation.mutant import Mutant

ROOT = Path(__file__).parents[2]
LEAST_SCORE = 0.95


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="mutants to try; all by default")
    parser.add_argument("--fast", action="store_true", help="one of each tested module")
    parser.add_argument("--list", action="store_true", help="print the mutants and end")
    parser.add_argument("--workers", type=int, default=2, help="mutants at a time")
    parser.add_argument(
        "--timeout-seconds", type=float, default=400.0, help="the longest that one mutant may take"
    )
    flags = parser.parse_args()
    chosen, tests = choose(flags.names), harness.tests()
    if flags.fast:
        chosen = gate.representatives(chosen, tests, harness.NOT_FAST)
        tests = [gate.own_test(mutant.file) for mutant in chosen]
    if flags.list:
        for mutant in chosen:
            print(f"{mutant.name} ({mutant.file}): {mutant.bug}")
        return 0
    start = time.monotonic()
    try:
        results = run(chosen, tests, flags.workers, flags.timeout_seconds)
    except gate.BrokenHarnessError as error:
        print(error, file=sys.stderr)
        return 2
    return report(results, time.monotonic() - start)


def choose(names: Sequence[str]) -> list[Mutant]:
    """The mutants of these names; without a name all that count."""
    known = {mutant.name: mutant for mutant in MUTANTS}
    unknown = sorted(set(names) - known.keys())
    if unknown:
        raise SystemExit(f"expected names of mutants (see --list), got {', '.join(unknown)}")
    if names:
        return [known[name] for name in names]
    return [mutant for mutant in MUTANTS if not mutant.equivalent]


def run(
    mutants: Sequence[Mutant], tests: Sequence[str], workers: int, timeout_seconds: float
) -> list[Result]:
    """Checks the tests without a mutant, then tries all; prints what happens as it does."""
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="mutants") as folder:
        copies = [gate.Copy(ROOT, Path(folder) / str(number)) for number in range(workers)]
        seconds = gate.check_unmutated(copies, tests, timeout_seconds)
        print(f"{len(tests)} test files pass without a mutant ({seconds:.0f} s)", flush=True)
        for result in gate.try_mutants(mutants, copies, tests, timeout_seconds):
            results.append(result)
            print(
                f"{result.verdict.value:9} {result.mutant.name:40} {result.seconds:5.0f} s  "
                f"{result.killer}",
                flush=True,
            )
    return results


def report(results: Sequence[Result], seconds: float) -> int:
    """Prints the score and what is to be done; the exit code."""
    for verdict in (Verdict.SURVIVED, Verdict.TIMED_OUT):
        for result in results:
            if result.verdict is verdict and not result.mutant.equivalent:
                mutant = result.mutant
                print(f"{verdict.value}: {mutant.name} ({mutant.file}): {mutant.bug}")
                print(f"    breaks: {mutant.breaks}")
    wrong = [r for r in results if r.mutant.equivalent and r.verdict is Verdict.KILLED]
    for result in wrong:
        print(f"killed, though called equivalent: {result.mutant.name}, by {result.killer}")
    equivalent = [mutant for mutant in MUTANTS if mutant.equivalent]
    for mutant in equivalent:
        print(f"equivalent, not counted: {mutant.name}: {mutant.equivalent}")
    share = gate.score(results)
    counts = {verdict: sum(r.verdict is verdict for r in results) for verdict in Verdict}
    print(
        f"mutation score {100 * share:.1f} %: {counts[Verdict.KILLED]} killed, "
        f"{counts[Verdict.SURVIVED]} survived, {counts[Verdict.TIMED_OUT]} timed out, "
        f"{len(equivalent)} equivalent; {seconds:.0f} s"
    )
    return 0 if share >= LEAST_SCORE and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
