"""Lock step through the real programs: one seed, one input, one result, whatever kills the learner.

The network is recurrent, the exploration ε-greedy and the replay prioritized. Sequences reach over
two pages, the replay wraps around, and the parameters that act are not always the newest.

The played run has its environments in other env servers and groups, so that neither who waits for
whom nor who has which slot matters. The gates kill ten more runs once each, and one twice.
"""

import json
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from learner.checkpoints.restoring import digests, stored
from seedrl.checkpoints import latest
from seedrl.wire.recording import Recording, RecordLayout
from tests.patience import wait_until
from tests.system import processes
from tests.system.processes import TINY, Program, Programs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
]

PAGE_STEPS, NUM_SLOTS, TOTAL_STEPS = 8, 4, 400  # the first two as in TINY
LOCK_STEP = (
    *TINY,
    "--learning.schedule=deterministic",
    "--checkpoint-replay",
    "--serving.evaluation-slots=0",
    # Each environment with random numbers of its own, so that it does not matter who its
    # neighbours are.
    "--environment.vectorization=sync",
    "--learning.publish-every-updates=3",
    f"--learning.total-steps={TOTAL_STEPS}",
)


class Kill(NamedTuple):
    """When a learner gets SIGKILL: as soon as a checkpoint of at least `saved` batches is complete.

    Its input ends `ahead` batches later: with none it is at rest then, otherwise still busy.
    """

    saved: int
    ahead: int = 0


# Learning starts with batch 17, when every slot has written two pages.
KILLS = {
    "before the first page": Kill(1),
    "in the middle of the first page": Kill(PAGE_STEPS - 1),
    "at the end of a page": Kill(PAGE_STEPS),
    "before the first update": Kill(2 * PAGE_STEPS),
    "after the first updates": Kill(3 * PAGE_STEPS + 1),
    "between two copies of the parameters": Kill(40),
    "in the middle of a page": Kill(6 * PAGE_STEPS + 5),
    "right after a checkpoint": Kill(60, ahead=40),
    "after the replay has wrapped around": Kill(91),
    "near the end": Kill(103),
}
ONCE = Kill(6 * PAGE_STEPS + 5, ahead=40)
CASES = [
    pytest.param([ONCE], id="once"),
    pytest.param(
        [KILLS["in the middle of the first page"], ONCE], id="twice", marks=pytest.mark.gate
    ),
    *(pytest.param([kill], id=name, marks=pytest.mark.gate) for name, kill in KILLS.items()),
]


class Reference(NamedTuple):
    """An uninterrupted run on real environments, and what it recorded."""

    digests: dict[str, str]
    recording: Path


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    with Programs(tmp_path_factory.mktemp("programs")) as started:
        yield started


@pytest.fixture(scope="module")
def reference(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Reference:
    workdir = train(programs, tmp_path_factory.mktemp("reference"))
    return Reference(digests_of(workdir), workdir / "recording")


def train(programs: Programs, folder: Path) -> Path:
    """The folder of a run on real environments.

    A busy machine may starve an env server until its connection breaks. A run that has lost one has
    had another input, which its recording tells; such a run is begun again, twice at most.
    """
    for attempt in range(3):
        workdir = folder / f"run_{attempt}"
        address = f"unix:{folder}/socket_{attempt}"
        words = ("--workdir", workdir, "--bind", address, *LOCK_STEP, "--learning.record")
        run = programs("learner", "cartpole_r2d2", *words)
        for _ in range(2):
            programs("envs_server", "--learner", address, "--num-envs", NUM_SLOTS // 2)
        assert run.end() == 0, run.stderr
        if "an env server was lost" not in run.stderr:
            break
    return workdir


def digests_of(workdir: Path) -> dict[str, str]:
    found = latest(workdir / "checkpoints")
    assert found is not None
    assert TOTAL_STEPS <= found.meta["env_steps"] < TOTAL_STEPS + NUM_SLOTS
    return digests(stored(found))


def saved_batches(workdir: Path) -> int:
    """Behind the newest complete checkpoint."""
    found = [0]
    for meta in workdir.glob("checkpoints/[0-9]*/meta.json"):
        with suppress(FileNotFoundError):  # it has just been replaced by a newer one
            found.append(json.loads(meta.read_bytes())["streams"]["num_batches"])
    return max(found)


@pytest.mark.parametrize("kills", CASES)
def test_a_run_that_is_killed_and_played_its_input_equals_the_uninterrupted_one(
    programs: Programs, reference: Reference, tmp_path: Path, kills: Sequence[Kill]
) -> None:
    workdir, played = tmp_path / "run", tmp_path / "played"
    address = f"unix:{tmp_path}/socket"
    flags = ("--workdir", workdir, "--bind", address, *LOCK_STEP, "--learning.record")
    players: list[Program] = []
    for kill in kills:
        hand_over(reference.recording, played, kill.saved + kill.ahead)
        saving = ("--checkpoint.interval-seconds", 0.05)
        learner = programs("learner", "cartpole_r2d2", *flags, *saving)
        players = players or [
            programs("envs_server", "--learner", address, "--play", played, "--num-envs", *some)
            for some in ((1, "--groups", 1), (3, "--groups", 2))
        ]
        wait_for_checkpoint(workdir, kill.saved, learner, players)
        learner.signal(signal.SIGKILL)
        assert learner.end() == -signal.SIGKILL
        assert kill.saved <= saved_batches(workdir) <= kill.saved + kill.ahead
    played.write_bytes(reference.recording.read_bytes())
    learner = programs("learner", "cartpole_r2d2", *flags, "--resume", "must")
    wait_until(lambda: all_play(players) and learner.has_ended, learner.stderr)
    assert learner.end() == 0, learner.stderr
    assert [player.end() for player in players] == [0, 0]
    assert digests_of(workdir) == reference.digests
    # It recorded what it was played, over all of its sessions.
    assert records(workdir / "recording") == records(reference.recording)


def wait_for_checkpoint(
    workdir: Path, num_batches: int, learner: Program, players: Sequence[Program]
) -> None:
    processes.wait_for(lambda: all_play(players) and saved_batches(workdir) >= num_batches, learner)


def all_play(players: Sequence[Program]) -> bool:
    """Without a player all would wait for ever: so it fails here, with the player's last words."""
    for player in players:
        assert player.process.poll() in (None, 0), player.stderr
    return True


def hand_over(recording: Path, played: Path, num_batches: int) -> None:
    """Lets the players have the first `num_batches` of a recording."""
    with Recording(recording) as opened:
        header = opened.header
    size = RecordLayout(header.spec, NUM_SLOTS).num_bytes
    played.write_bytes(header.encode() + records(recording)[: num_batches * size])


def records(recording: Path) -> bytes:
    """All records of a recording; the header before them names the streams."""
    return recording.read_bytes().partition(b"\n")[2]
