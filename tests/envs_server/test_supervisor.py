"""Env servers that are started again when they die, and end together."""

import ast
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import started
from tests.envs_server.supervised import is_alive
from tests.patience import SECONDS, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only there it is offered")

_QUICK = (
    "supervisor._FIRST_PAUSE_SECONDS = 0.01; supervisor._LONGEST_PAUSE_AFTER_KILL_SECONDS = 0.03"
)
_WAIT = "time.sleep(60)"


def _start(folder: Path, *body: str, settings: str = _QUICK) -> "subprocess.Popen[str]":
    return started.start(
        ["tests.envs_server.supervised", str(folder), settings, "\n".join(body)],
        cwd=Path.cwd(),
        variables=started.variables(),
        stdout=sys.__stdout__.fileno(),
        stderr=subprocess.PIPE,
    )


def _run(folder: Path, *body: str, settings: str = _QUICK) -> tuple[int, str]:
    with _start(folder, *body, settings=settings) as process:
        try:
            _, stderr = process.communicate(timeout=SECONDS)
        finally:
            process.kill()
    return process.returncode, stderr


def _starts(folder: Path) -> list[int]:
    return [len((folder / str(number)).read_text()) for number in range(3)]


def test_each_that_dies_is_started_again_until_training_is_over(tmp_path: Path) -> None:
    code, stderr = _run(
        tmp_path,
        "if number == 1 and start in (1, 2, 3): os.kill(os.getpid(), 9)",  # out of memory, say
        "if number == 1 and start == 4: os.kill(os.getpid(), 11)",
        "if number == 1 and start == 5: os._exit(70)",
        "if number == 1 and start == 6: os._exit(0)",  # an environment's doing
        "if number == 1 and start == 7: os.kill(os.getpid(), 9)",
        "wait_for(1, 8)",
        "over()",
    )
    assert (code, _starts(tmp_path)) == (0, [1, 8, 1])
    ends = [line.split(" ended with ")[1] for line in stderr.splitlines() if " ended with " in line]
    assert [end.split()[0] for end in ends] == ["137", "137", "137", "139", "70", "0", "137"]
    assert ["memory" in end for end in ends] == [end.startswith("137") for end in ends]
    pauses = [end.split(" in ")[1] for end in ends]
    assert pauses == [f"{seconds} s" for seconds in (0.01, 0.02, 0.03, 0.06, 0.12, 0.24, 0.03)]


def test_wrong_usage_of_one_ends_all_with_its_code(tmp_path: Path) -> None:
    code, stderr = _run(tmp_path, "if number == 1: return 2", _WAIT)
    assert code == 2 and "error: " in stderr
    assert (tmp_path / "1").read_text() == "x"


def test_a_signal_ends_all_also_one_that_does_not_listen(tmp_path: Path) -> None:
    body = "if number == 1: signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    settings = "supervisor.GRACE_SECONDS = 0.5"
    with _start(
        tmp_path, body, "(folder / f'ready{number}').touch()", _WAIT, settings=settings
    ) as p:
        wait_until(lambda: len(list(tmp_path.glob("ready*"))) == 3)
        p.send_signal(signal.SIGTERM)
        _, stderr = p.communicate(timeout=SECONDS)
    assert p.returncode == 0 and "1 env servers did not end in time" in stderr


def test_a_flood_of_output_is_cut(tmp_path: Path) -> None:
    """100 MB to stderr were a log of 95 MiB, again at each start."""
    settings = f"{_QUICK}; words = ['--logs', {str(tmp_path)!r}]"
    code, _ = _run(
        tmp_path,
        "log = folder / f'env_server_{number}.log'",
        "for _ in range(2):",
        "    os.write(2, b'x' * 2**20 * 9 + b'\\n')",
        # It is cut between two writes: of one that comes meanwhile the place is not known. A cut in
        # the middle of a write leaves all that it has read: up to the limit, at which it cuts.
        "    while log.stat().st_size > 2**22 or log.read_bytes()[:1] != b'(': time.sleep(0.01)",
        "os.write(2, b'the last line\\n')",
        "over()",
        settings=settings,
    )
    assert code == 0
    for number in range(3):
        log = (tmp_path / f"env_server_{number}.log").read_bytes()
        assert len(log) < 2**23 and log.endswith(b"the last line\n")


def test_the_log_of_one_that_dies_is_named(tmp_path: Path) -> None:
    settings = f"{_QUICK}; words = ['--logs', {str(tmp_path)!r}]"
    died = "if number == 1 and start == 1: os._exit(4)"
    _, stderr = _run(tmp_path, died, "wait_for(1, 2)", "over()", settings=settings)
    assert f"{tmp_path}/env_server_1.log" in stderr


def test_a_process_in_a_session_of_its_own_ends_with_the_run(tmp_path: Path) -> None:
    code, _ = _run(
        tmp_path,
        "away = subprocess.Popen(['sleep', '60'], start_new_session=True, env={})",
        "(folder / 'away').write_text(str(away.pid))",
        "over()",
    )
    assert code == 0 and not is_alive(tmp_path / "away")


def test_what_a_process_has_left_behind_ends_with_all_that_it_has_started(tmp_path: Path) -> None:
    """A simulator behind a script that starts it, each in a session of its own."""
    script = "setsid sleep 60 & echo -n $! > deep.new; mv deep.new deep; wait"
    code, _ = _run(
        tmp_path,
        "if number != 1:",
        "    while not (folder / 'left').exists(): time.sleep(0.01)",
        "    return over()",
        "if start == 1:",
        f"    subprocess.Popen(['sh', '-c', {script!r}], start_new_session=True, cwd=folder)",
        "    while not (folder / 'deep').exists(): time.sleep(0.01)",
        "    os._exit(9)",
        "ends = time.monotonic() + 8",
        "while is_alive(folder / 'deep') and time.monotonic() < ends: time.sleep(0.01)",
        "(folder / 'left').write_text(str(is_alive(folder / 'deep')))",
        "over()",
    )
    assert code == 0 and (tmp_path / "left").read_text() == "False"


def test_a_daemon_of_an_environment_stays_when_another_env_server_ends(tmp_path: Path) -> None:
    """It went with the next env server that ended, and its own environments failed."""
    code, _ = _run(
        tmp_path,
        "if number == 0:",
        "    subprocess.run(['sh', '-c', 'setsid sleep 60 & echo -n $! > daemon.new'], cwd=folder)",
        "    (folder / 'daemon.new').rename(folder / 'daemon')",
        "    wait_for(1, 3)",
        "    (folder / 'stayed').write_text(str(is_alive(folder / 'daemon')))",
        "    return over()",
        "while not (folder / 'daemon').exists(): time.sleep(0.01)",
        "if number == 1 and start < 3: time.sleep(0.2); os._exit(9)",
        "wait_for(1, 3)",
        "over()",
    )
    assert (tmp_path / "stayed").read_text() == "True"
    assert code == 0 and not is_alive(tmp_path / "daemon")


def test_no_two_draw_the_same_random_numbers(tmp_path: Path) -> None:
    """They are forks: an environment may draw from the generators that modules share."""
    body = (
        "import random, numpy",
        "draws = [random.random(), numpy.random.random()]",
        "(folder / f'draws{number}').write_text(repr(draws))",
        "over()",
    )
    assert _run(tmp_path, *body)[0] == 0
    draws = [ast.literal_eval(file.read_text()) for file in tmp_path.glob("draws*")]
    assert [len(set(numbers)) for numbers in zip(*draws, strict=True)] == [3, 3]


def test_they_do_not_outlive_their_supervisor(tmp_path: Path) -> None:
    body = "(folder / f'pid{number}').write_text(str(os.getpid()))"
    with _start(tmp_path, body, _WAIT) as process:
        wait_until(lambda: len([*tmp_path.glob("pid*")]) == 3)
        wait_until(lambda: all(file.read_text() for file in tmp_path.glob("pid*")))
        process.kill()
    wait_until(lambda: not any(map(is_alive, tmp_path.glob("pid*"))))
