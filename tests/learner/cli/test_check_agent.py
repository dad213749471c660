"""`seedrl check-agent`: verdicts of the real system, and configurations that fit the tasks."""

import dataclasses
import types

import pytest

from learner.cli import check_agent
from learner.cli.check_agent import PROBES, misfit, run, tiny
from seedrl import config_io
from seedrl.agents.sac import SacConfig
from seedrl.config import check
from seedrl.exit_codes import ExitCode


@pytest.mark.parametrize("name", config_io.bundled_names())
def test_every_bundled_configuration_can_be_checked(name: str) -> None:
    config = config_io.load(name)
    planned = tiny(config, "two_steps", continuous=False, seconds=60)
    serving = dataclasses.replace(planned.serving, bind="unix:/tmp/none")
    check(dataclasses.replace(planned, serving=serving))
    assert planned.agent == config.agent
    assert planned.learning.batch_sequences == config.learning.batch_sequences
    assert planned.evaluation.target_return == PROBES["two_steps"]


@pytest.mark.parametrize(
    ("config", "discrete", "continuous"),
    [
        ("default_r2d2", True, False),
        ("default_apex", True, False),
        ("default_impala", True, True),
        ("default_ppo", True, True),
        ("default_sac", False, True),
    ],
)
def test_tasks_that_an_agent_cannot_take_are_skipped(
    config: str, discrete: bool, continuous: bool
) -> None:
    loaded = config_io.load(config)
    assert discrete == (not misfit(loaded, "one_step", continuous=False))
    assert continuous == (not misfit(loaded, "one_step", continuous=True))
    has_memory = config == "default_r2d2"
    is_taken = not misfit(loaded, "memory", continuous=isinstance(loaded.agent, SacConfig))
    assert is_taken == has_memory


# A small network, few environments and small batches: half of the processor time.
WORDS = [
    *("default_apex", "--probes", "one_step", "--launch.env-servers", "1"),
    *("--agent.network.torso-sizes", "32", "--agent.network.head-sizes", "32"),
    *("--serving.training-slots", "10", "--learning.batch-sequences", "16"),
]


@pytest.mark.parametrize(
    ("code", "means", "expected", "said"),
    [
        (ExitCode.OK, (0.5, 0.95), ExitCode.OK, "passed"),
        (ExitCode.TARGET_MISSED, (0.5, 0.25), ExitCode.FAULTS, "failed"),
    ],
)
def test_an_agent_passes_whose_run_reaches_the_target(
    code: ExitCode,
    means: tuple[float, ...],
    expected: ExitCode,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    rounds = [{"kind": "evaluation", "mean_return": mean} for mean in means]
    ended = types.SimpleNamespace(metrics=rounds, wait=lambda: code)
    monkeypatch.setattr(check_agent, "start", lambda *_: ended)
    assert run(WORDS) == expected
    # The continuous twin is for other agents.
    discrete, continuous = capfd.readouterr().out.splitlines()
    assert discrete.split()[:3] == ["one_step", "discrete", said]
    assert ("got 0.5," in discrete) == (said == "failed")
    assert continuous.split()[:3] == ["one_step", "continuous", "skipped"]


@pytest.mark.gate
@pytest.mark.parametrize(
    ("rate", "seconds", "code"), [("5e-4", 120, ExitCode.OK), ("1e-12", 1, ExitCode.FAULTS)]
)
def test_an_agent_passes_that_learns(rate: str, seconds: int, code: ExitCode) -> None:
    flags = ["--agent.learning-rate", rate, "--seconds", str(seconds)]
    assert run([*WORDS, *flags]) == code


@pytest.mark.gate
@pytest.mark.timeout(900)
@pytest.mark.parametrize("config", ["default_apex", "default_ppo"])
def test_what_spaces_declare_is_learned_from(config: str) -> None:
    names = ["zero_observation", "discrete_observation", "one_hot_bytes", "float_picture"]
    assert run([config, "--probes", *names]) == ExitCode.OK
