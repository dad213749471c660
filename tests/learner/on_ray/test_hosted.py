"""The node's side of a run on Ray: real processes, without Ray."""

import os
import signal
import stat
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from learner.jobs.accelerators import parse
from learner.jobs.job import Job, Needs
from learner.on_ray.hosted import HostedProcess, Report, Started
from learner.on_ray.order import Work
from seedrl.errors import ConfigError
from seedrl.programs.farewell import ENDED_VARIABLE
from seedrl.run_files import LOGS
from tests import patience

SECRETS = {"token": "s3cret\n", "ca.pem": "", "env_server.pem": "", "env_server.key": ""}
ADDRESS = "127.0.0.1:9"  # where nobody listens
# Says which signals it hears; SIGRTMIN, which is heard after a SIGTERM that waits too, ends it.
LISTENS = """
import signal, sys
heard = {signal.SIGTERM, signal.SIGRTMIN}
signal.pthread_sigmask(signal.SIG_BLOCK, heard)
print("it has begun", flush=True)
while (number := signal.sigwait(heard)) != signal.SIGRTMIN:
    print(signal.Signals(number).name, flush=True)
sys.exit(143)
"""


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


@pytest.fixture
def listening(hosted: HostedProcess, work: Work) -> Iterator[HostedProcess]:
    """With a learner that is a script, which has begun."""
    start_script(hosted, work, LISTENS)
    assert next_words(hosted) == "it has begun\n"
    yield hosted
    hosted.end(0.0)


def start_script(hosted: HostedProcess, work: Work, text: str) -> None:
    """Starts that in the place of a learner."""
    (Path(work.import_folders[0]) / "learner.py").write_text(text)
    hosted.start_learner(1, work, SECRETS, "127.0.0.1", ())


def next_words(hosted: HostedProcess) -> str:
    """What the learner says next."""
    found: list[str] = []
    patience.wait_until(lambda: found.append(hosted.follow(1).text) or found[-1])
    return found[-1]


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
    words = _whole(Path(f"/proc/{pid}/cmdline"))
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


def _whole(file: Path) -> str:
    """Such a file is empty for a moment when its process becomes another program."""
    found: list[str] = []
    patience.wait_until(lambda: found.append(file.read_text()) or found[-1])
    return found[-1]


def test_an_env_server_knows_what_the_one_before_has_sent_and_how_it_ended(
    hosted: HostedProcess, work: Work
) -> None:
    logs = []
    for number, ended in enumerate((None, 139, None), start=1):
        hosted.start_env_server(number, work, SECRETS, "env server 0", ADDRESS, ended)
        process = Path(f"/proc/{_pid(hosted)}")
        told = f"{ENDED_VARIABLE}={ended}\0"
        assert (told in _whole(process / "environ")) == (ended is not None)
        words = _whole(process / "cmdline")
        logs.append(Path(words.split("--sent-log=")[1].partition("\0")[0]))
    assert len(set(logs)) == 1
    # Only their own user reads what they have sent.
    assert stat.S_IMODE(logs[0].parent.stat().st_mode) == 0o700


def test_starts_that_are_called_at_once_are_made_one_after_the_other(
    hosted: HostedProcess, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, release = threading.Semaphore(0), threading.Event()
    end_process = HostedProcess._end_process

    def slowly(process: HostedProcess, seconds: float) -> None:
        inside.release()
        assert release.wait(patience.SECONDS)
        end_process(process, seconds)

    monkeypatch.setattr(HostedProcess, "_end_process", slowly)
    with ThreadPoolExecutor(2) as threads:
        calls = [
            threads.submit(hosted.start_env_server, number, work, SECRETS, "env server 0", ADDRESS)
            for number in (1, 2)
        ]
        assert inside.acquire(timeout=patience.SECONDS)
        is_alone = not inside.acquire(timeout=0.2)  # time enough for the other one to come in
        release.set()
        assert {call.result() for call in calls} == {Started("", False)}
    assert is_alone
    assert hosted._running is not None and hosted._running.number == 2


def test_a_start_that_is_called_again_or_too_late_is_not_made_again(
    hosted: HostedProcess, work: Work
) -> None:
    pids = []
    for number in (2, 2, 1):
        hosted.start_env_server(number, work, SECRETS, "env server 0", ADDRESS)
        pids.append(_pid(hosted))
    assert len(set(pids)) == 1
    # Who still follows the one before hears nothing of this one.
    os.kill(pids[0], signal.SIGKILL)
    assert end_of(hosted, 2).code == 137
    assert hosted.follow(1) == Report(1, "", None)


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


def test_a_learner_is_asked_to_end_once_however_often_the_call_is_made(
    listening: HostedProcess,
) -> None:
    listening.stop("SIGINT")
    assert next_words(listening) == "SIGTERM\n"
    listening.stop("SIGINT")
    os.kill(_pid(listening), signal.SIGRTMIN)
    report = end_of(listening, 1)
    assert (report.text, report.code, report.is_unbegun) == ("", 143, False)


def test_a_learner_that_does_not_listen_yet_is_ended_unbegun(
    hosted: HostedProcess, work: Work
) -> None:
    start_script(hosted, work, "import signal; print(flush=True); signal.pause()")
    assert next_words(hosted) == "\n"
    hosted.stop("SIGINT")
    report = end_of(hosted, 1)
    assert (report.code, report.is_unbegun) == (143, True)


def test_a_log_that_was_removed_is_no_reason_to_end(
    listening: HostedProcess, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("learner.on_ray.hosted._FOLLOW_SECONDS", 0.0)
    (work.workdir / LOGS / "learner.log").unlink()
    assert listening.follow(1) == Report(1, "", None)


def test_of_a_log_that_was_emptied_all_that_comes_after_is_reported(
    listening: HostedProcess, work: Work
) -> None:
    os.truncate(work.workdir / LOGS / "learner.log", 0)
    listening.stop("SIGINT")
    assert next_words(listening) == "SIGTERM\n"


def _pid(hosted: HostedProcess) -> int:
    assert hosted._running is not None
    return hosted._running.child._process.pid
