"""Lock step through the real programs: one seed gives one result, whoever steps the environments.

The network stacks frames, the exploration is ε-greedy and the replay prioritized. Sequences reach
over two pages, the replay wraps around, and the parameters that act are not always the newest. The
second run has its environments in other env servers and groups, so that neither who waits for whom
nor who has which slot matters.
"""

import sys
from pathlib import Path

import pytest

from learner.checkpoints.restoring import digests
from seedrl import run_files
from seedrl.checkpoints import latest
from seedrl.stored_arrays import read_all
from tests.system.processes import TINY, Programs

# In parts: tests/learner/serving/test_core.py, test_hub.py, learner/acting/test_actor.py.
pytestmark = [
    pytest.mark.gate,
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
]

NUM_SLOTS, TOTAL_STEPS = 4, 320  # the first as in TINY
LOCK_STEP = (
    *TINY,
    "--agent.network.frame-stack=2",
    "--learning.schedule=deterministic",
    "--checkpoint-replay",
    "--serving.evaluation-slots=0",
    # Each environment with random numbers of its own, so that it does not matter who its
    # neighbours are.
    "--environment.vectorization=sync",
    "--learning.publish-every-updates=3",
    f"--learning.total-steps={TOTAL_STEPS}",
    # Schedules depend on counts alone, too.
    f"--agent.learning-rate-decay-steps={TOTAL_STEPS}",
    f"--agent.epsilon-decay-steps={TOTAL_STEPS // 2}",
)


def train(programs: Programs, folder: Path, *env_servers: tuple[object, ...]) -> dict[str, str]:
    """The digests of a run whose env servers have these environments and groups.

    A busy machine may starve an env server until its connection breaks. A run that has lost one has
    had another input: it is started again, twice at most.
    """
    folder.mkdir()
    for attempt in range(3):
        workdir, address = folder / f"run_{attempt}", f"unix:{folder}/socket_{attempt}"
        words = ("--workdir", workdir, "--bind", address, *LOCK_STEP)
        run = programs("learner", "cartpole_r2d2", *words)
        for own in env_servers:
            programs("envs_server", "--learner", address, "--num-envs", *own)
        assert run.end() == 0, run.stderr
        if '"server_left"' not in (workdir / run_files.EVENTS).read_text():
            break
    found = latest(workdir / "checkpoints")
    assert found is not None
    assert TOTAL_STEPS <= found.meta["env_steps"] < TOTAL_STEPS + NUM_SLOTS
    return digests(read_all(found.path))


def test_two_runs_of_one_seed_are_equal_whichever_env_server_has_which_slot(
    tmp_path: Path,
) -> None:
    with Programs(tmp_path) as programs:
        first = train(programs, tmp_path / "two", (2,), (2,))
        second = train(programs, tmp_path / "other two", (1, "--groups", 1), (3, "--groups", 2))
    assert {"params", "target", "optimizer", "key", "replay", "all"} <= first.keys()
    assert second == first
