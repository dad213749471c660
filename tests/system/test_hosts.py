"""A run on two hosts: its start and a save; as a gate a resume and the loss of one. Processes."""

import json
import re
import signal
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from learner.checkpoints.restoring import digests
from seedrl import checkpoints, run_files
from seedrl.checkpoints import Checkpoint
from seedrl.exit_codes import ExitCode
from seedrl.stored_arrays import read_all
from tests.system.processes import Programs
from tests.system.several_hosts import RECORDED, SeveralHosts

pytestmark = pytest.mark.slow

# An agent with programs that compile in no time, and one batch shape for both roles: both learners
# compile everything, for only the first host writes to the cache.
CONFIG = """
import dataclasses

from seedrl import config_io
from seedrl.config import CheckpointConfig, Config, ReplayConfig, ServingConfig
from seedrl_plugin.dqn import DQNConfig


def config() -> Config:
    return dataclasses.replace(
        config_io.load("cartpole_r2d2"),
        agent=DQNConfig(),
        serving=ServingConfig(training_slots=2, evaluation_slots=1),
        replay=ReplayConfig(capacity_steps=256, min_steps=64, page_steps=2),
        checkpoint=CheckpointConfig(interval_seconds=1),
    )
"""
WORDS = (
    *("--environment.wrappers", "tests.system.unhurried:Unhurried", RECORDED[1]),
    *(
        "--learning.batch-sequences=4",
        "--learning.num-devices=2",
        "--evaluation.target-return=None",
    ),
    *("--evaluation.interval-steps=1", "--evaluation.episodes=2"),
    *("--logging.interval-seconds=0.25", "--logging.no-learning-curve"),
)


class Story(NamedTuple):
    """What is left of it.

    Attributes:
      run: with what it has written.
      codes: exit codes of the learners, which one of them was asked to end.
      saved: its checkpoint.
    """

    run: SeveralHosts
    codes: list[int]
    saved: Checkpoint


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    folder = tmp_path_factory.mktemp("hosts")
    with Programs(folder) as programs:
        (folder / "dqn.py").write_text(CONFIG)
        run = SeveralHosts(programs, folder / "run", "dqn.py", *WORDS, environments=4)
        # Each has a device that takes no part.
        run.start(2, devices=2)
        run.wait_for_updates(10)
        run.learners[1].signal(signal.SIGTERM)
        codes = [learner.end() for learner in run.learners]
        for server in run.env_servers:
            server.signal(signal.SIGTERM)
        saved = checkpoints.latest(run.workdir / "checkpoints")
        assert saved is not None, run.learners[0].stderr
        yield Story(run, codes, saved)


def test_one_signal_ends_all_hosts_and_they_save_together(story: Story) -> None:
    assert story.codes == [ExitCode.OK, ExitCode.OK]
    reasons = [story.run.events("ended", index)[0]["text"] for index in range(2)]
    assert reasons == ["the run ends: stopped by SIGTERM"] * 2


def test_the_first_host_writes_the_checkpoint_of_all(story: Story) -> None:
    found = digests(read_all(story.saved.path))
    assert "params" in found and "replay" not in found
    assert [bool(story.run.events("saved", index)) for index in range(2)] == [True, False]


def test_the_steps_of_all_hosts_are_counted(story: Story) -> None:
    rows = []
    for index in range(2):
        lines = (story.run.folder(index) / run_files.METRICS).read_text().splitlines()
        *_, last, ledger = [
            line for line in map(json.loads, lines) if line["kind"] in ("metrics", "ledger")
        ]
        rows.append(ledger["stored"])
        assert last["frames"] == last["env_steps"]  # both of the whole run
    # All but the FIRST row of an episode are steps, and CartPole's have at least eight.
    assert min(rows) > 0 and story.saved.meta["env_steps"] >= 0.75 * sum(rows)


def test_no_episode_is_played_twice(story: Story) -> None:
    assert story.run.episodes_played_twice() == 0


# A lost host among threads: tests/learner/multihost/test_peers.py.
@pytest.mark.gate
def test_a_resumed_run_goes_on_from_its_step_and_ends_if_its_first_host_is_lost(
    story: Story,
) -> None:
    run = story.run
    run.start(2)
    run.wait_for_updates(5)
    run.learners[0].signal(signal.SIGKILL)
    assert run.learners[1].end() == ExitCode.TEMPORARY
    said = run.learners[1].stderr
    assert "learner: error: host 0 of 2 is lost: it is gone; the run ends" in said
    assert checkpoints.latest(run.workdir / "checkpoints") is not None
    texts = [run.events("resumed", index)[-1]["text"] for index in range(2)]
    begun = [re.search(r"from update ([\d,]+) .*; (replay .*)", text) for text in texts]
    found = [(int(each[1].replace(",", "")), each[2]) for each in begun if each]
    assert [step for step, _ in found] == [story.saved.step] * 2
    assert all("several hosts" in text for _, text in found)
    assert run.episodes_played_twice() == 0
