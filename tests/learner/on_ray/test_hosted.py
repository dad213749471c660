"""The node's side of a run on Ray: real processes, without Ray."""

import os
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from learner.jobs.accelerators import parse
from learner.jobs.job import Job, Needs
from learner.on_ray.hosted import HostedProcess, Report
from learner.on_ray.order import Work
from seedrl.errors import ConfigError
from seedrl.storage.run_files import LOGS
from tests import patience

SECRETS = {"token": "s3cret\n", "ca.pem": "", "env_server.pem": "", "env_server.key": ""}
ADDRESS = "127.0.0.1:9"  # where nobody listens


@pytest.fixture
def hosted() -> Iterator[HostedProcess]:
    process = HostedProcess()
    yield process
    process.end(patience.SECONDS)


@pytest.fixture
def work(tmp_path: Path) -> Work:
    job = Job(
        command="seedrl launch catch_r2d2 --on ray",
        config="catch_r2d2",
        needs=Needs(
            training_slots=4,
            evaluation_slots=0,
            groups=1,
            factories=(),
            extra="",
            regime="asynchronous",
        ),
        accelerator=parse("cpu"),
    )
    return Work(job, tmp_path / "run", "mark", (str(tmp_path),))


def end_of(hosted: HostedProcess, number: int) -> Report:
    """What is said of it at last."""
    text = ""
    while (report := hosted.follow(number)).code is None:
        text += report.text
    return report._replace(text=text + report.text)


def test_an_env_server_is_started_in_place_of_another_and_its_secrets_stay_in_a_private_folder(
    hosted: HostedProcess, work: Work
) -> None:
    started = hosted.start_env_server(1, work, SECRETS, "env server 0", ADDRESS)
    assert not started.sees_folder
    pid = _pid(hosted)
    words = Path(f"/proc/{pid}/cmdline").read_text()
    assert "s3cret" not in words and f"--learner={ADDRESS}" in words
    token = Path(words.split("--token-file=")[1].partition("\0")[0])
    assert token.read_text() == "s3cret\n"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    assert stat.S_IMODE(token.parent.stat().st_mode) == 0o700

    os.kill(pid, signal.SIGKILL)
    assert end_of(hosted, 1).code == 137

    # The folder is seen once a learner of this launch has been there.
    (work.workdir / LOGS).mkdir(parents=True)
    (work.workdir / LOGS / "launch_on_ray").write_text("another mark")
    assert not hosted.start_env_server(2, work, SECRETS, "env server 0", ADDRESS).sees_folder
    (work.workdir / LOGS / "launch_on_ray").write_text(work.mark)
    second = _pid(hosted)
    assert hosted.start_env_server(3, work, SECRETS, "env server 0", ADDRESS).sees_folder
    assert not Path(f"/proc/{second}").exists()
    hosted.stop("enough")
    report = end_of(hosted, 3)
    assert report.log == str(work.workdir / LOGS / "env_server_0.log")
    hosted.end(patience.SECONDS)
    assert not token.parent.exists()


def test_a_learner_serves_where_it_did_before_and_its_words_are_reported(
    hosted: HostedProcess, work: Work
) -> None:
    files = {**SECRETS, "config.json": "no JSON", "learner.pem": "", "learner.key": ""}
    first = hosted.start_learner(1, work, files, "127.0.0.1", ("--name=mine",))
    assert not first.sees_folder
    report = end_of(hosted, 1)
    assert report.code == 2
    assert report.text.count("\n") == 1 and "config.json" in report.text
    assert report.last_line == report.text.strip()

    second = hosted.start_learner(2, work, files, "127.0.0.1", ())
    assert second.sees_folder and second.address == first.address
    # What was written before is not said again.
    assert end_of(hosted, 2).text == report.text


def test_a_folder_that_cannot_be_made_is_a_mistake_of_the_command_line(
    hosted: HostedProcess, work: Work
) -> None:
    work.workdir.write_text("a file")
    with pytest.raises(ConfigError, match="--workdir: expected a folder that 127.0.0.1 can write"):
        hosted.start_learner(1, work, SECRETS, "127.0.0.1", ())


def _pid(hosted: HostedProcess) -> int:
    assert hosted._running is not None
    return hosted._running.child._process.pid
