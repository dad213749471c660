"""What a run does before anything moves, what its main thread does meanwhile, and its end."""

import collections
import contextlib
import dataclasses
import functools
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import numpy as np
import pytest

from learner.build import StartFrom
from learner.checkpoints.restoring import Initial, initial_of
from learner.checkpoints.run_folder import Resume, RunFolder
from learner.multihost.agreement import Hosts
from learner.multihost.joining import own_folder
from learner.multihost.peers import Peers
from learner.processes.stop import StopRequest
from learner.reports import Reports
from learner.runtime.worker import Deaths
from learner.train import TrainLoop, _start_from, _wait_for_env_server, train
from seedrl import checkpoints, config_io
from seedrl.agents.r2d2 import R2D2Config
from seedrl.checkpoints import Checkpoint, encode_spec
from seedrl.config import Config, LoggingConfig
from seedrl.config_io import to_json
from seedrl.errors import CheckpointError, ConfigError, UserError
from seedrl.exit_codes import ExitCode
from seedrl.fields import with_fields
from seedrl.networks.config import QNetworkConfig
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec
from tests import own_process
from tests.learner.multihost.linked import at_once, linked
from tests.learner.report.event_files import first_steps


@pytest.fixture
def process() -> Iterator[None]:
    """Puts back what a run changes of its process."""
    with own_process.restored():
        yield


@pytest.mark.parametrize(("resumed", "seconds", "frames"), [(True, 30.0, 404.0), (False, 0.0, 4.0)])
def test_time_and_counts_of_a_run_continue_when_it_is_resumed(
    tmp_path: Path, resumed: bool, seconds: float, frames: float
) -> None:
    meta = {"env_steps": 100, "totals": {"frames": 400.0, "elapsed_seconds": 30.0}}
    checkpoint = Checkpoint(1, tmp_path, meta) if resumed else None
    folder = RunFolder(tmp_path)
    with (
        contextlib.closing(folder),
        Reports(config_io.load("cartpole_r2d2"), "mine", folder, checkpoint) as reports,
    ):
        reports.metrics.count("frames", 4)
        values = reports.metrics.flush(env_steps=110, updates=2)
    assert values["elapsed_seconds"] >= seconds
    assert values["frames"] == frames
    (events,) = (tmp_path / "tb").iterdir()
    assert first_steps(events) == [101 if resumed else 0]


@pytest.mark.parametrize(
    ("resume", "num_devices", "field"),
    [("auto", 16, "learning.num_devices"), ("must", 0, "--resume auto")],
)
@pytest.mark.usefixtures("process")
def test_a_run_that_cannot_start_lets_others_have_its_folder(
    tmp_path: Path, resume: Resume, num_devices: int, field: str
) -> None:
    config = config_io.load("cartpole_r2d2")
    learning = dataclasses.replace(config.learning, num_devices=num_devices)
    config = dataclasses.replace(config, learning=learning)
    with pytest.raises(UserError) as caught:
        train(config, workdir=tmp_path, resume=resume)
    assert field in str(caught.value)
    RunFolder(tmp_path).close()


class OtherQNetworkConfig(QNetworkConfig):
    """Has the arrays of the Q-network, and another meaning."""


@pytest.mark.usefixtures("process")
def test_a_run_of_another_agent_is_left_as_it_is(tmp_path: Path) -> None:
    config = config_io.load("cartpole_r2d2")
    checkpoints.save(tmp_path / "checkpoints", 3, {}, {"config": to_json(config)}, keep=2)
    before = sorted(path.name for path in tmp_path.iterdir())
    replay = dataclasses.replace(config.replay, min_steps=10_000)
    agent = R2D2Config(network=OtherQNetworkConfig())
    other = dataclasses.replace(config, agent=agent, replay=replay)
    with pytest.raises(ConfigError) as caught:
        train(other, workdir=tmp_path)
    assert "agent.network.type" in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", *before]


@pytest.mark.usefixtures("process")
def test_what_the_checkpoint_does_not_hold_is_refused_before_the_run_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_io.load("cartpole_r2d2")
    spec = encode_spec(EnvSpec(ArraySpec((4,), "float32"), DiscreteSpec(2)))
    meta = {"config": to_json(config), "env_steps": 1, "totals": {}, "env_spec": spec}
    checkpoints.save(tmp_path / "checkpoints", 3, {}, meta, keep=2)
    monkeypatch.setattr("learner.train.Reports", mock.Mock(side_effect=AssertionError))
    with pytest.raises(CheckpointError) as caught:
        train(config, workdir=tmp_path)
    assert "params/" in str(caught.value)


@pytest.mark.usefixtures("process")
def test_scores_of_another_environment_end_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("learner.train.require_fit", lambda *_: None)
    config = with_fields(config_io.load("cartpole_r2d2"), {"evaluation.patience_rounds": 1})
    meta = {"config": to_json(config), "env_steps": 9, "totals": {}}
    checkpoints.save(tmp_path / "checkpoints", 3, {}, meta, keep=2)
    played = {"kind": "evaluation", "episodes": 1, "ended_env_steps": 9, "updates": 3}
    rounds = [{**played, "env_steps": 8, "mean_return": mean} for mean in (500.0, 400.0)]
    (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in rounds))
    with contextlib.closing(RunFolder(tmp_path)) as folder:
        for arguments, is_over in (("{}", True), ('{"sutton_barto_reward": true}', False)):
            mine = with_fields(config, {"environment.arguments": arguments})
            start = _start_from(
                mine, tmp_path, folder, Hosts(), StopRequest(), "auto", None, is_partial=False
            )
            assert isinstance(start, ExitCode) == is_over
            assert folder.is_other_environment == (not is_over)


def test_who_waits_for_env_servers_hears_of_a_thread_that_cannot_bring_any() -> None:
    deaths, looks, death = Deaths(), iter([None, None]), OSError("no more sockets")

    def look(timeout: float) -> None:
        next(looks)
        deaths.first = "links", death

    hub: Any = SimpleNamespace(wait_for_spec=look)
    with pytest.raises(RuntimeError) as caught:
        _wait_for_env_server(hub, Hosts(), StopRequest(), deaths.raise_first)
    assert caught.value.__cause__ is death
    assert next(looks) is None


@pytest.mark.parametrize(("count", "code"), [(1, ExitCode.OK), (2, ExitCode.KILLED)])
@pytest.mark.usefixtures("process")
def test_a_host_that_is_stopped_before_training_is_to_be_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, code: ExitCode
) -> None:
    """A code of 0 told the scheduler that its part was done; the others waited for it forever."""
    stop = StopRequest()
    stop.set("SIGTERM")
    monkeypatch.setattr("learner.train._start_from", lambda *_: StartFrom())
    with linked(count) as peers:
        hosts = contextlib.nullcontext(Hosts(peers[0]))
        monkeypatch.setattr("learner.train.joined", lambda *_: hosts)
        assert train(config_io.load("cartpole_r2d2"), workdir=tmp_path, stop=stop) == code


def test_hosts_start_from_one_checkpoint_of_another_run_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"

    def save(step: int) -> None:
        params = {"params": {"bias": np.full(1, step, np.float32)}}
        checkpoints.save(other / "checkpoints", step, params, {}, keep=2)

    def found_and_replaced(*where: Any) -> Initial:
        found = initial_of(*where)
        save(found[0].step + 1)
        return found

    save(3)
    monkeypatch.setattr("learner.train.initial_of", found_and_replaced)
    monkeypatch.setattr("learner.train.plan_geometry", mock.Mock())
    config, run = config_io.load("cartpole_r2d2"), tmp_path / "run"

    def start(own: Peers) -> tuple[int, bool]:
        with contextlib.closing(RunFolder(own_folder(run, own.topology))) as folder:
            hosts = Hosts(own)
            found = _start_from(config, run, folder, hosts, StopRequest(), "never", other, False)
            assert isinstance(found, StartFrom) and found.initial
            return found.initial[0].step, folder.is_begun_anew

    with linked(2) as peers:
        found = at_once([functools.partial(start, own) for own in peers])
    assert found == [(3, True)] * 2


# --- the loop that supervises a session ---


def config_of(*, report_seconds: float = 0.0) -> Config:
    config = config_io.load("cartpole_r2d2")
    return dataclasses.replace(
        config,
        learning=dataclasses.replace(config.learning, total_steps=5),
        logging=LoggingConfig(interval_seconds=report_seconds, stuck_seconds=60.0),
    )


class _Unshown(Reports):
    """Reports without files, terminal and thread."""

    def __init__(self, run: "SupervisedRun") -> None:
        self._run_of, self.values = run, {}
        self.events = cast(Any, SimpleNamespace(report=lambda *_, **__: None, elapsed_seconds=0.0))
        self.metrics = cast(Any, SimpleNamespace())
        self.metrics.write = lambda: None
        self.metrics.flush = lambda env_steps, updates: {"env_steps": env_steps}
        self.metrics.record = lambda kind, **_: run.calls.append(f"record {kind}")

    def end(self, reason: str, remark: str = "") -> None:
        self._run_of.ends.append(reason)
        super().end(reason, remark)


class SupervisedRun:
    """A session of fakes that takes a step at every look, and the loop that supervises it.

    Attributes:
      calls: what was done, in order.
      ends: why the run ends, as status says.
      at_step: what happens at the start of a step, by its number.
      answer: to a request for a snapshot while it runs.
      broken: what the ledger does not explain.
    """

    is_compiling, num_updates = False, 0

    def __init__(self, config: Config) -> None:
        self.calls: list[str] = []
        self.at_step: dict[int, Callable[[], None]] = {}
        self.ends: list[str] = []
        self.broken: list[str] = []
        self.answer: Future[Any] = Future()
        self.failure: Exception | None = None
        self.failed = SimpleNamespace(wait=self._step, is_set=lambda: self.failure is not None)
        self.acting = SimpleNamespace(
            training_steps=0,
            rounds=collections.deque(),
            best_score=None,
            unended_steps=lambda role: 0,
        )
        self.learning = SimpleNamespace(
            updates=7,
            num_applied=0,
            num_skipped=0,
            num_stale=0,
            request_snapshot=lambda with_replay: self.answer,
            snapshot=lambda with_replay: SimpleNamespace(name="at the end"),
        )
        self.evaluator = SimpleNamespace(confirmed=None, is_confirming=False)
        self.watchdog = SimpleNamespace(watch=lambda *_: None)
        self.system = SimpleNamespace(hosts=Hosts(), channel=None)
        self.system.geometry = SimpleNamespace(evaluation_slots=0)
        service = SimpleNamespace(
            stop=lambda: self.calls.append("stop serving"),
            finish=lambda reason: self.calls.append(f"finish serving: {reason}"),
        )
        self.stop_request, self.deaths = StopRequest(), Deaths()
        self.loop = TrainLoop(
            config,
            cast(Any, self),
            stop=self.stop_request,
            deaths=self.deaths,
            service=cast(Any, service),
            folder=RunFolder(Path("/nowhere"), held=-1),
            reports=_Unshown(self),
        )
        self.checkpointer: Any = self.loop.checkpointer
        self.checkpointer.is_due = lambda: False
        self.checkpointer._start = lambda snapshot: self.calls.append(f"save {snapshot.name}")
        self.checkpointer.wait = lambda: self.calls.append("saved")

    def _step(self, timeout: float) -> None:
        self.acting.training_steps += 1
        self.at_step.get(self.acting.training_steps, lambda: None)()

    def stop(self) -> None:
        self.calls.append("stop threads")

    def raise_failure(self) -> None:
        if self.failure is not None:
            raise self.failure

    def set_gauges(self) -> None:
        pass

    def accounts(self) -> dict[str, float]:
        return {}

    def residues(self, *, at_rest: bool = False) -> list[str]:
        return self.broken


def test_who_is_told_to_stop_saves_and_asks_env_servers_to_come_back() -> None:
    run = SupervisedRun(config_of())
    run.at_step[2] = run.stop_request.set
    run.loop.run()
    run.loop.end()
    assert run.acting.training_steps == 2
    assert {"save at the end", "stop serving", "saved", "record ledger"} <= {*run.calls}


@pytest.mark.parametrize("is_out_of_time", [False, True])
def test_a_target_that_the_last_batch_confirms_is_why_the_run_ended(is_out_of_time: bool) -> None:
    run = SupervisedRun(config := config_of())
    if is_out_of_time:
        run.loop._config = with_fields(config, {"learning.max_seconds": 1.0})
        run.at_step[1] = lambda: setattr(run.loop._reports.events, "elapsed_seconds", 2.0)
    score = SimpleNamespace(mean=500.0, returns=(500.0,))
    run.checkpointer._last_snapshot = lambda: SimpleNamespace(name="at the end")
    run.stop = lambda: setattr(run.evaluator, "confirmed", score)  # type: ignore[method-assign]
    run.loop.run()
    run.loop.end()
    assert len(run.ends) == 2 and run.ends[1] == "target 475 confirmed: 500.0 over 1 episodes"


def test_hosts_that_end_before_an_update_leave_jax_once_all_is_saved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the first host's process ended first, jax aborted the others."""
    run = SupervisedRun(config_of())
    monkeypatch.setattr("learner.train.leave_jax", lambda: run.calls.append("leave jax"))
    run.system.hosts.end = ["stopped", "by SIGTERM"]
    run.loop.run()
    run.loop.end()
    assert run.calls[-3:] == ["saved", "leave jax", "record ledger"]


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
    """An update of 40 s was 40 s without a report."""
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
