"""What a run does before anything moves."""

import dataclasses
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from learner.saving.run_folder import Resume, RunFolder
from learner.session.run import _metrics, train
from seedrl import config_file
from seedrl.checkpoints import Checkpoint
from seedrl.errors import UserError


@pytest.fixture
def process() -> Iterator[None]:
    """Puts back what a run changes of its process."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
    handlers, interval = [signal.getsignal(number) for number in numbers], sys.getswitchinterval()
    yield
    sys.setswitchinterval(interval)
    for number, handler in zip(numbers, handlers, strict=True):
        signal.signal(number, handler)


@pytest.mark.parametrize("keeps_freed_memory", [True, False])
@pytest.mark.usefixtures("process")
def test_the_config_says_whether_freed_memory_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keeps_freed_memory: bool
) -> None:
    class TunedError(Exception):
        """Nothing after it is of interest here."""

    def tune_process(**settings: bool) -> None:
        raise TunedError(settings)

    monkeypatch.setattr("learner.session.run.tune_process", tune_process)
    config = config_file.load("cartpole_r2d2")
    learning = dataclasses.replace(config.learning, keep_freed_memory=keeps_freed_memory)
    with pytest.raises(TunedError) as caught:
        train(dataclasses.replace(config, learning=learning), workdir=tmp_path)
    assert caught.value.args == ({"keeps_freed_memory": keeps_freed_memory},)


@pytest.mark.parametrize(("resumed", "expected"), [(True, 30.0), (False, 0.0)])
def test_the_time_of_a_run_goes_on_when_it_is_resumed(
    tmp_path: Path, resumed: bool, expected: float
) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"elapsed_seconds": 30.0}\n')
    checkpoint = Checkpoint(1, tmp_path, {"env_steps": 100}) if resumed else None
    folder = RunFolder(tmp_path)
    metrics = _metrics(folder, checkpoint)
    values = metrics.flush(env_steps=110, updates=2)
    metrics.close()
    folder.close()
    assert expected <= values["elapsed_seconds"] < expected + 20.0
    assert metrics._tensorboard.purge_step == (101 if resumed else 0)


@pytest.mark.parametrize(
    ("resume", "num_devices", "message"),
    [
        ("auto", 16, "learning.num_devices: expected at most"),
        ("must", 0, "--resume must: expected"),
    ],
)
@pytest.mark.usefixtures("process")
def test_a_run_that_cannot_start_lets_others_have_its_folder(
    tmp_path: Path, resume: Resume, num_devices: int, message: str
) -> None:
    config = config_file.load("cartpole_r2d2")
    learning = dataclasses.replace(config.learning, num_devices=num_devices)
    config = dataclasses.replace(config, learning=learning)
    with pytest.raises(UserError, match=message):
        train(config, workdir=tmp_path, resume=resume)
    RunFolder(tmp_path).close()
