"""What the main thread does beside a session, and in which order a run ends."""

import threading
from types import SimpleNamespace
from unittest import mock

import pytest

from seedrl.errors import UserError
from seedrl.exit_codes import ExitCode
from tests.learner.supervised_run import SupervisedRun, config_of


def test_who_is_told_to_stop_saves_and_asks_env_servers_to_come_back() -> None:
    run = SupervisedRun(config_of())
    run.at_step[2] = run.stop_request.set
    run.loop.run()
    run.loop.end()
    assert run.acting.training_steps == 2
    assert {"save at the end", "stop serving", "saved", "record ledger"} <= {*run.calls}


def test_nothing_is_learned_or_saved_from_experience_that_may_be_mixed_up() -> None:
    run = SupervisedRun(config_of())
    run.at_step[2] = lambda: run.broken.append("ledger: 3 rows too many")
    run.loop.run()
    assert run.acting.training_steps == 2
    with pytest.raises(RuntimeError, match="ledger: 3 rows too many"):
        run.loop.end()
    assert "stop threads" in run.calls and "save at the end" not in run.calls


def test_a_thread_of_the_session_that_died_ends_the_run_and_is_raised() -> None:
    run = SupervisedRun(config_of())
    run.at_step[1] = lambda: setattr(run, "failure", MemoryError())
    run.loop.run()
    assert run.acting.training_steps == 1
    with pytest.raises(MemoryError):
        run.loop.end()
    # The state may be half of an update's.
    assert "save at the end" not in run.calls and run.calls[-1] == "saved"


def test_a_thread_that_nobody_watches_ends_the_run_saved_and_is_raised(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = SupervisedRun(config_of())

    def die() -> None:
        raise OSError("a defect")

    def start() -> None:
        thread = threading.Thread(target=die, name="status")
        thread.start()
        thread.join()

    run.at_step[1] = start
    with run.deaths:
        run.loop.run()
    assert run.acting.training_steps == 1
    with pytest.raises(RuntimeError, match="status"):
        run.loop.end()
    assert "save at the end" in run.calls
    assert "OSError: a defect" in capsys.readouterr().err


def test_a_run_that_is_not_finite_any_more_ends_saved_and_with_a_code_of_its_own() -> None:
    run = SupervisedRun(config_of())
    run.learning.num_applied, run.learning.num_skipped = 3, 999
    run.at_step[2] = lambda: setattr(run.learning, "num_applied", 4)
    run.at_step[3] = lambda: setattr(run.learning, "num_skipped", 1998)
    run.at_step[4] = lambda: setattr(run.learning, "num_skipped", 1999)
    run.loop.run()
    assert run.acting.training_steps == 4
    with pytest.raises(UserError) as caught:
        run.loop.end()
    assert caught.value.exit_code == ExitCode.USAGE
    assert "learning.max_skipped_updates" in str(caught.value) and "1,000" in str(caught.value)
    assert run.ends == ["too many updates in a row were not finite"]
    assert run.calls[-3:] == ["stop serving", "saved", "record ledger"]
    assert "save at the end" in run.calls


def test_what_could_not_be_saved_is_raised_after_everything_else() -> None:
    run = SupervisedRun(config_of())
    run.checkpointer.failure = OSError("disk full")
    run.loop.run()
    with pytest.raises(OSError) as caught:
        run.loop.end()
    assert caught.value is run.checkpointer.failure
    assert run.calls[-1] == "record ledger"


@pytest.mark.parametrize("is_stopped", [True, False])
def test_a_run_reports_while_a_snapshot_is_waited_for_and_may_end(is_stopped: bool) -> None:
    """Issue: an update of 40 s was 40 s without a report."""
    run = SupervisedRun(config_of(report_seconds=1e-9))
    run.checkpointer.is_due = lambda: True
    dies = lambda: setattr(run, "failure", RuntimeError("learning died"))  # noqa: E731
    run.at_step[3] = run.stop_request.set if is_stopped else dies
    run.loop.run()
    assert (run.acting.training_steps, run.calls) == (3, [])
    assert run.loop._reports.values["env_steps"] == 3


def test_a_snapshot_is_saved_when_it_is_there_once() -> None:
    run = SupervisedRun(config_of(report_seconds=1e9))
    run.checkpointer.is_due = iter([True, *[False] * 9]).__next__
    run.at_step[2] = lambda: run.answer.set_result(SimpleNamespace(name="while it runs"))
    run.at_step[4] = run.stop_request.set
    run.loop.run()
    assert (run.acting.training_steps, run.calls) == (4, ["save while it runs"])


def test_a_main_thread_that_fails_has_saved_before_it_says_so() -> None:
    run = SupervisedRun(config_of())

    class DefectError(Exception):
        pass

    run.loop.progress.update = mock.Mock(side_effect=DefectError)  # type: ignore[method-assign]
    for step in (run.loop.run, run.loop.end):
        with pytest.raises(DefectError):
            step()
    assert run.calls.index("stop threads") < run.calls.index("save at the end")
    assert run.calls[-1] == "saved"
