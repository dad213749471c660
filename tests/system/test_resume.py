"""Runs that are stopped and resumed: what is kept, what is refused, what can be done with it."""

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import pytest

import seedrl.policy
from seedrl.storage import manifest
from seedrl.storage.checkpoints import latest
from tests.system import processes
from tests.system.processes import TINY, TRAIN, Programs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
]

USAGE, UNREADABLE_CHECKPOINT = 2, 74  # as documented
SAVING = ("--checkpoint-replay", "--checkpoint.interval-seconds", "0.5")


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    with Programs(tmp_path) as started:
        yield started


def flip_a_byte(checkpoint: Path) -> None:
    """In the largest file that is not text."""
    files = [path for path in checkpoint.rglob("*") if path.is_file() and path.suffix != ".json"]
    path = max(files, key=lambda file: file.stat().st_size)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


def steps(workdir: Path) -> list[int]:
    """The steps of the run's checkpoints, in order."""
    folder = workdir / "checkpoints"
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())


def start_a_run(programs: Programs, workdir: Path) -> None:
    """Trains until two checkpoints are there, and stops with SIGTERM."""
    run = programs(*TRAIN, "cartpole_r2d2", "--workdir", workdir, *TINY, *SAVING)
    processes.wait_for(
        lambda: sum(line["updates"] > 0 for line in processes.records(workdir, "checkpoint")) > 1,
        run,
    )
    left = processes.descendants(run.pid)
    run.signal(signal.SIGTERM)
    assert run.end() == 0
    assert len(left) == 3
    processes.wait_until_gone(left)
    assert len(steps(workdir)) == 2
    # The last one was saved on SIGTERM.
    assert steps(workdir)[-1] >= processes.records(workdir)[-1]["updates"]


def resume_from_the_older_checkpoint(programs: Programs, workdir: Path) -> None:
    """The newest is damaged; the replay of the older one is learned from at once."""
    older, newest = steps(workdir)
    flip_a_byte(workdir / "checkpoints" / f"{newest:012d}")
    found = latest(workdir / "checkpoints")
    assert found is not None and found.step == older
    earlier = len(processes.records(workdir))
    seconds = processes.records(workdir)[-1]["elapsed_seconds"]
    # Not enough for a replay that starts empty (replay.min_steps).
    total = found.meta["env_steps"] + 40
    flags = ("--resume", "must", "--learning.total-steps", total)
    run = programs(*TRAIN, "cartpole_r2d2", "--workdir", workdir, *TINY, *SAVING, *flags)
    assert run.end() == 0, run.stderr
    damaged = workdir / "checkpoints" / f"{newest:012d}"
    assert f"damaged checkpoint, taking an older one: {damaged}" in run.stderr
    lines = processes.records(workdir)[earlier:]
    assert lines[0]["replay_sequences"] > 0
    assert lines[0]["elapsed_seconds"] > seconds
    # To the last batch: of at most four slots.
    assert total <= lines[-1]["env_steps"] < total + 4
    assert older < lines[-1]["updates"]
    # A few more may have been made between the last line and the end.
    assert steps(workdir)[-1] >= lines[-1]["updates"]
    found = latest(workdir / "checkpoints")
    assert found is not None and found.step == steps(workdir)[-1]


def evaluate(programs: Programs, workdir: Path) -> None:
    """Plays exactly the episodes that were asked for; a program may play the same policy."""
    done = programs("learner.cli.main", "evaluate", workdir, "--episodes", 10, "--json")
    assert done.end() == 0
    result = json.loads(done.stdout)
    assert result["episodes"] == len(result["returns"]) == 10
    assert result["mean"] == pytest.approx(sum(result["returns"]) / 10)
    assert result["updates"] == steps(workdir)[-1]

    policy = seedrl.policy.load(workdir)
    assert policy.step == steps(workdir)[-1]
    with gymnasium.make("CartPole-v1") as environment:
        observation, _ = environment.reset(seed=0)
        carry, reward, episode_return, is_over = policy.initial_carry(), 0.0, 0.0, False
        while not is_over:
            action, carry = policy(observation, carry, reward=reward)
            observation, new_reward, terminated, truncated, _ = environment.step(action)
            reward = float(new_reward)
            episode_return += reward
            is_over = terminated or truncated
    assert 8 <= episode_return <= 500


def refuse_other_shapes_and_other_environments(programs: Programs, workdir: Path) -> None:
    learner = ("learner", "cartpole_r2d2", "--workdir", workdir, *TINY, *SAVING)
    bind = ("--bind", f"unix:{workdir}/shapes")
    shapes = programs(*learner, *bind, "--agent.network.core-size", "9")
    code, line = shapes.error()
    assert code == UNREADABLE_CHECKPOINT
    assert "does not fit this config: agent.network.core_size: expected 8, got 9; start a" in line

    run = programs(*TRAIN, *learner[1:], "--environment.id", "Acrobot-v1")
    code, line = run.error()
    assert code == USAGE
    difference = (
        "has another environment than the checkpoint: observation: expected float32[4], got"
    )
    assert line.startswith("python -m learner: error: env server ") and difference in line
    assert "compiling" not in run.stderr  # it is reported before that
    assert processes.descendants(run.pid) == set()


def give_up_if_nothing_is_intact(programs: Programs, workdir: Path) -> None:
    found = steps(workdir)
    for step in found:
        checkpoint = workdir / "checkpoints" / f"{step:012d}"
        # The one that was damaged before may still be there; flipped again, it would be repaired.
        if manifest.damage(checkpoint) is None:
            flip_a_byte(checkpoint)
    learner = ("learner", "cartpole_r2d2", "--workdir", workdir, *TINY)
    learner = (*learner, "--bind", f"unix:{workdir}/socket")
    code, line = programs(*learner).error()
    assert code == UNREADABLE_CHECKPOINT
    assert "error: expected an intact checkpoint in " in line
    assert f"got {len(found)} damaged; the newest: " in line
    # A run that starts again does not look at them.
    fresh = programs(*learner, "--resume", "never")
    processes.wait_for(lambda: ", serving " in fresh.stderr, fresh)
    fresh.signal(signal.SIGTERM)
    assert fresh.end() == 0


def test_a_run_through_stop_damage_resume_evaluation_and_refusal(
    programs: Programs, tmp_path: Path
) -> None:
    workdir = tmp_path / "run"
    start_a_run(programs, workdir)
    resume_from_the_older_checkpoint(programs, workdir)
    evaluate(programs, workdir)
    refuse_other_shapes_and_other_environments(programs, workdir)
    give_up_if_nothing_is_intact(programs, workdir)
