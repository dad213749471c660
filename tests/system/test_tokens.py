"""A token policy: trained, an env server killed, stopped; as a gate resumed, pretrained, played."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from learner.checkpoints.restoring import digests
from learner.cli.main import main
from learner.serving.ledger import TOKENS, residues
from seedrl.checkpoints import latest
from seedrl.stored_arrays import read_all
from tests import own_process
from tests.system import processes
from tests.system.processes import TRAIN, Program, Programs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
]

_MAX_LAG = 1
# Programs that compile soon: questions of one or two letters of three.
TINY = (
    *("--environment.arguments", json.dumps({"longest": 2, "shortest": 1, "letters": 3})),
    *("--agent.network.vocabulary", 5, "--agent.network.context", 8, "--agent.group", 2),
    *("--agent.network.layers", 1, "--agent.network.width", 8, "--agent.network.heads", 2),
    *("--agent.network.kv-heads", 1, "--agent.network.ffn", 8),
)
FLAGS = (
    *TINY,
    *("--serving.training-slots", 8, "--serving.evaluation-slots", 2, "--evaluation.episodes", 4),
    *("--learning.batch-sequences", 8, "--replay.max-lag-updates", _MAX_LAG),
    *("--evaluation.target-return", None, "--evaluation.interval-steps", 50),
    *("--logging.interval-seconds", 0.25, "--logging.no-learning-curve", "--checkpoint-replay"),
)


def _updated(run: Program, workdir: Path, updates: int) -> dict[str, Any]:
    return processes.wait_for(
        lambda: next(
            (each for each in processes.records(workdir) if each["updates"] >= updates), None
        ),
        run,
    )


# A killed learner resumes: test_resume.py.
@pytest.mark.parametrize("resumes", [False, pytest.param(True, marks=pytest.mark.gate)])
def test_a_token_policy_is_trained_stopped_and_resumed(tmp_path: Path, resumes: bool) -> None:
    workdir = tmp_path / "run"
    with Programs(tmp_path) as programs:
        words = ("reverse_grpo", "--workdir", workdir, *FLAGS)
        run = programs(*TRAIN, *words)
        before = _updated(run, workdir, 2)["updates"]
        os.kill(min(processes.env_servers(run.pid)), signal.SIGKILL)
        _updated(run, workdir, before + 5)
        run.signal(signal.SIGTERM)
        assert run.end() == 0, run.stderr
        _check(workdir)
        if not resumes:
            return
        resumed = programs(*TRAIN, *words, "--learning.total-steps", 100_000)
        _updated(resumed, workdir, processes.records(workdir)[-1]["updates"] + 5)
        resumed.signal(signal.SIGTERM)
        assert resumed.end() == 0, resumed.stderr
        _check(workdir)
        assert processes.events(workdir, "resumed")


# In parts: tests/learner/test_pretraining.py, test_build.py, seedrl/agents/test_token_agent.py.
@pytest.mark.gate
def test_a_pretrained_policy_is_trained_and_played_by_classic_acting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    warm, workdir = tmp_path / "warm", tmp_path / "run"
    _in_this_process("pretrain", "reverse_grpo", *TINY, "--steps", 2, "--workdir", warm)
    with Programs(tmp_path) as programs:
        words = ("reverse_grpo", "--workdir", workdir, *FLAGS, "--init-from", warm)
        run = programs(*TRAIN, *words, "--learning.total-steps", 32)
        assert run.end() == 0, run.stderr
    capsys.readouterr()
    _in_this_process("evaluate", workdir, "--episodes", 6, "--json")
    assert 0 <= json.loads(capsys.readouterr().out)["mean"] <= 1


def _in_this_process(*words: object) -> None:
    with own_process.restored():
        assert main(list(map(str, words))) == 0


def _check(workdir: Path) -> None:
    sample = json.loads((workdir / "rollouts.json").read_text())
    assert len(sample["rollouts"]) == sample["group"] == 2
    account = processes.records(workdir, "ledger")[-1]
    assert residues(account, TOKENS) == []
    assert account["generated_tokens"] > 0 and account["stale"] == 0
    lines = [each for each in processes.records(workdir) if "policy_lag_updates_max" in each]
    assert max(each["policy_lag_updates_max"] for each in lines) <= _MAX_LAG
    # Of tokens that the updated parameters have sampled, which an interval may lack.
    assert max(each["mismatch_max"] for each in lines if "mismatch_max" in each) <= 1e-5


@pytest.mark.gate  # groups without lag are compared in tests/learner/acting/test_token_acting.py
def test_the_seed_decides_every_bit_in_deterministic_mode(tmp_path: Path) -> None:
    # Whichever env server plays a rollout, in whichever slot and next to whichever others.
    found = []
    with Programs(tmp_path) as programs:
        for env_servers in (1, 2):
            workdir = tmp_path / f"run_{env_servers}"
            words = ("reverse_grpo", "--workdir", workdir, *FLAGS, "--learning.total-steps", 32)
            words += ("--learning.schedule", "deterministic", "--serving.evaluation-slots", 0)
            run = programs(*TRAIN, *words, "--launch.env-servers", env_servers)
            assert run.end() == 0, run.stderr
            checkpoint = latest(workdir / "checkpoints")
            assert checkpoint is not None and checkpoint.step == 4
            found.append(digests(read_all(checkpoint.path)))
    assert found[0] == found[1]
