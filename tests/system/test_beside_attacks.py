"""What an honest env server notices of peers that attack the learner beside it: each kind in turn.

The service, the honest env server and the attacker are processes of their own. On a machine of few
cores an attacker slows the others by its own computing, and by what the kernel does for it, which
from another machine it could not. So it has the least priority (nice 19), and the time beside an
attack is compared with one in which such an attacker attacks another service, of the least priority
too: as much is computed then, and nothing is asked of the service that is measured. What it is in
comparison with a quiet time is on record beside it. The service takes as long for an answer as a
small network does, so that a figure compares with what env servers wait for in a run.

Rates and answer times are medians of ratios of neighbouring times: a machine that is slower for a
minute is so in all of them. They are judged at full scale alone: a short run, on a machine with
other work, only records them.
"""

import contextlib
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.faults.scale import VARIABLE, scaled
from tests.patience import wait_until
from tests.system import attacks
from tests.system.honest_peer import ENVS, Answers, HonestPeer, honest_peer
from tests.system.processes import ROOT
from tests.system.served_process import Served

pytestmark = [
    pytest.mark.gate,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

# The promises: a share of the rate, a multiple of the answer time, seconds until silent ones end
# and others are refused, and the codes of ours with which that may happen.
_RATE, _P99, _SILENT_SECONDS, _REFUSED_SECONDS = 0.9, 1.5, 3.0, 1.0
_OURS = {"INVALID_ARGUMENT", "FAILED_PRECONDITION", "RESOURCE_EXHAUSTED", "UNAVAILABLE"}
# Another is gRPC's own, for a message that is compressed.
_EXPECTED = _OURS | {attacks.CUT, attacks.ASSIGNED, "closed", "UNIMPLEMENTED"}
_SOCKETS = "idle_sockets"
_SILENT = ("silent_streams", _SOCKETS)
_ANSWER_SECONDS = 0.005
_WINDOW_SECONDS = 4.0 if VARIABLE not in os.environ else 0.5
_PAIRS = 7
Record = Callable[[str, object], None]


Attacker = Callable[[float], dict[str, Any]]


class Window(NamedTuple):
    """A time with the attack, and two before it: a quiet one, and one with an attack elsewhere.

    Attributes:
      quiet, elsewhere, beside: what the honest env server saw.
      ended: how the attempts ended: their codes, their number, the seconds of the slowest.
    """

    quiet: Answers
    elsewhere: Answers
    beside: Answers
    ended: dict[str, Any]


@contextlib.contextmanager
def _attacker(kind: str, address: str) -> Iterator[Attacker]:
    command = [sys.executable, "-m", "tests.system.attacks", kind, address]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin and process.stdout
        stdin, stdout = process.stdin, process.stdout

        def attack(seconds: float) -> dict[str, Any]:
            stdin.write(f"{seconds}\n")
            stdin.flush()
            found: dict[str, Any] = json.loads(stdout.readline())
            return found

        try:
            assert stdout.readline() == "ready\n"
            yield attack
        finally:
            process.kill()


@contextlib.contextmanager
def _highest_rss(served: Served) -> Iterator[list[float]]:
    """Its one element is the most MiB that the service has had inside."""
    highest, is_over = [served.seen.rss_mib], threading.Event()

    def look() -> None:
        while not is_over.wait(0.05):
            highest[0] = max(highest[0], served.seen.rss_mib)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield highest
    finally:
        is_over.set()
        thread.join()


def _window(peer: HonestPeer, attack: Attacker, attack_elsewhere: Attacker) -> Window:
    quiet = peer.during(_WINDOW_SECONDS)
    elsewhere, _ = _during(peer, attack_elsewhere)
    return Window(quiet, elsewhere, *_during(peer, attack))


def _during(peer: HonestPeer, attack: Attacker) -> tuple[Answers, dict[str, Any]]:
    start = time.monotonic()
    ended = attack(_WINDOW_SECONDS)
    return peer.answers(start, time.monotonic()), ended


def _ratios(windows: list[Window], of: Callable[[Answers], float]) -> tuple[float, float]:
    """Beside the attack over beside one elsewhere, and over a quiet time: their medians."""
    return (
        statistics.median(of(each.beside) / of(each.elsewhere) for each in windows),
        statistics.median(of(each.beside) / of(each.quiet) for each in windows),
    )


@pytest.mark.parametrize("kind", [*attacks.kinds(), _SOCKETS])
def test_a_peer_that_attacks_harms_itself_alone(
    kind: str, tmp_path: Path, record_property: Record
) -> None:
    (tmp_path / "elsewhere").mkdir()
    with (
        Served(tmp_path, "127.0.0.1:0", num_slots=16, answer_seconds=_ANSWER_SECONDS) as served,
        Served(tmp_path / "elsewhere", "127.0.0.1:0", num_slots=16, niceness=19) as other,
        honest_peer(served.seen.address, tmp_path) as peer,
        _attacker(kind, served.seen.address) as attack,
        _attacker(kind, other.seen.address) as attack_elsewhere,
    ):
        before = served.seen
        with _highest_rss(served) as highest:
            pairs = scaled(_PAIRS)
            windows = [_window(peer, attack, attack_elsewhere) for _ in range(pairs)]
        last = served.seen
        wait_until(lambda: served.seen.seconds > last.seconds)
        after = served.seen
        assert after.pid == before.pid and served.process.poll() is None
    grown = highest[0] - before.rss_mib
    record_property(f"{kind}_rss_mib", round(grown, 1))
    _judge(kind, windows, record_property)
    assert after.broken == [] and after.live == ENVS
    streams = attacks.MANY if kind == _SOCKETS else attacks.kinds()[kind]().streams
    assert grown <= 2 * attacks.LIMIT / attacks.MIB * streams


def _judge(kind: str, windows: list[Window], record: Record) -> None:
    codes = Counter[str]()
    for window in windows:
        codes.update(window.ended["codes"])
    slowest = statistics.median(each.ended["slowest"] for each in windows)
    rate, rate_of_quiet = _ratios(windows, lambda answers: answers.rate)
    p99, p99_of_quiet = _ratios(windows, lambda answers: answers.p99_seconds)
    record(f"{kind}_attempts", sum(codes.values()))
    record(f"{kind}_codes", " ".join(f"{code}:{n}" for code, n in codes.items()))
    record(f"{kind}_ended_seconds", round(slowest, 2))
    record(f"{kind}_rate_of_others", round(rate, 3))
    record(f"{kind}_rate_of_quiet", round(rate_of_quiet, 3))
    record(f"{kind}_p99_of_others", round(p99, 2))
    record(f"{kind}_p99_of_quiet", round(p99_of_quiet, 2))
    milliseconds = 1000 * statistics.median(each.quiet.p99_seconds for each in windows)
    record(f"{kind}_p99_quiet_ms", round(milliseconds, 1))
    assert set(codes) <= _EXPECTED, codes
    if VARIABLE not in os.environ:
        assert slowest <= (_SILENT_SECONDS if kind in _SILENT else _REFUSED_SECONDS)
        assert rate >= _RATE
        assert p99 <= _P99
