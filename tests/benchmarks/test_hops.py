"""What counts as entered, and that the watched configuration is one that trains."""

import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from learner.acting.loop import EpisodeTracker
from seedrl.config import check
from tests.benchmarks import hops
from tests.benchmarks.hops import Watch, configuration

_EVERY_PASS = range(1, hops._ROUNDS_OF_PASS * hops._PASSES, hops._ROUNDS_OF_PASS)


def _watched(work: Any, rounds: Iterable[int]) -> Watch:
    """What is found if `work` runs in each of these rounds."""
    watch = Watch()

    def run() -> None:
        for number in rounds:
            watch._rounds = number
            sys.setprofile(watch)  # type: ignore[arg-type]
            work()
            sys.setprofile(None)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return watch


def test_methods_and_constructors_of_ours_enter_their_class_and_module() -> None:
    def work() -> None:
        EpisodeTracker(3)
        Path("elsewhere").exists()

    found = _watched(work, _EVERY_PASS).hops
    assert found.modules == ["learner.acting.loop"]
    assert found.classes == ["learner.acting.loop.EpisodeTracker"]


def test_nothing_counts_before_the_first_round_or_after_the_last() -> None:
    for rounds in ([0], [*_EVERY_PASS[1:], hops._ROUNDS_OF_PASS * hops._PASSES + 1]):
        assert _watched(lambda: EpisodeTracker(3), rounds).hops == ([], [])


def test_what_happens_in_some_passes_only_does_not_count() -> None:
    assert _watched(lambda: EpisodeTracker(3), _EVERY_PASS[:-1]).hops == ([], [])


def test_what_the_clock_calls_does_not_count_however_often_it_does() -> None:
    def noted() -> None:
        EpisodeTracker(3)

    # As if it were acting's own.
    noted.__code__ = noted.__code__.replace(co_qualname="Acting._poll")
    assert _watched(noted, _EVERY_PASS).hops == ([], [])


def test_the_functions_that_are_known_by_name_are_there() -> None:
    from learner.acting.loop import Acting
    from learner.learning.loop import Learning
    from learner.session.lock_step import LockStep

    found = {LockStep.run_once.__qualname__, Learning._learn.__qualname__}
    assert found == {hops._ROUND, hops._UPDATE}
    assert (Acting._poll.__qualname__,) == hops._BY_CLOCK


def test_what_is_watched_is_a_configuration_that_may_train() -> None:
    check(configuration("unix:/tmp/nobody"))
