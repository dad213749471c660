"""The examples of docs/examples: each configuration builds an agent that acts, and trains."""

import dataclasses
import importlib
import json
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import types
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from envs_server.check.server import Options, Process, check
from learner.cli.main import main
from seedrl import config_io
from seedrl.agents.check import build_agent
from seedrl.networks.network import NetworkInput
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec
from tests import started
from tests.patience import SECONDS, wait_until

EXAMPLES = Path(__file__).parents[1] / "docs" / "examples"
_SPEC = EnvSpec(ArraySpec((5,), "float32"), DiscreteSpec(4))
_ROWS, _STREAMS = 2, 4
# Few steps, and few batch shapes to compile.
_SHORT = (
    "--serving.training-slots 1 --serving.evaluation-slots 0 --replay.min-steps 100 "
    "--learning.batch-sequences 4 --learning.total-steps 300 "
    "--evaluation.target-return None --logging.no-learning-curve"
)


def test_the_agent_of_an_example_fits_its_environment() -> None:
    build_agent(config_io.load(EXAMPLES / "own_environment" / "config.py").agent, _SPEC)


@pytest.mark.parametrize("name", ["own_network", "flax_gru", "own_agent"])
def test_the_agent_of_an_example_has_q_values_for_every_row(name: str) -> None:
    folder = "own_network" if name == "flax_gru" else name
    agent = config_io.load(EXAMPLES / folder / "config.py").agent
    if name == "flax_gru":  # next to the other example, whose agent takes it
        config = importlib.import_module(name).FlaxGRUConfig(size=8)
        agent = dataclasses.replace(agent, network=config)
    build_agent(agent, _SPEC)
    network = agent.network.build(_SPEC)
    inputs = NetworkInput(
        observation=jnp.ones((_ROWS, _STREAMS, 5)),
        previous_action=jnp.zeros((_ROWS, _STREAMS), jnp.int32),
        reward=jnp.zeros((_ROWS, _STREAMS)),
        is_first=jnp.arange(_ROWS)[:, None] == jnp.zeros((1, _STREAMS)),
    )
    params = jax.jit(network.init)(jax.random.key(0))
    unroll = jax.jit(network.unroll)
    q_values, carry = unroll(params, network.initial_carry(_STREAMS), inputs)
    assert q_values.shape == (_ROWS, _STREAMS, 4)
    # It remembers the first row in the second, and after FIRST nothing.
    assert not jnp.allclose(q_values[0], q_values[1])
    again, _ = unroll(params, carry, inputs)
    assert jnp.allclose(again, q_values, atol=1e-6)


@pytest.mark.gate
def test_two_machines_train_by_the_commands_of_the_example(tmp_path: Path) -> None:
    text = (EXAMPLES / "two_machines" / "README.md").read_text()
    learner_command, env_server_command = re.findall(r"```sh\n(python -m .*)\n```", text)
    run, folder = tmp_path / "recall", tmp_path / "certificates"
    assert main(["certificates", str(folder)]) == 0
    learner_command, env_server_command = (
        command.replace("certificates/", f"{folder}/")
        for command in (learner_command, env_server_command)
    )
    learner_command = learner_command.replace("runs/recall", str(run))
    learner_command = f"{learner_command.replace('0.0.0.0:8686', '127.0.0.1:0')} {_SHORT}"
    # As of other tests: what has imported for their programs serves here, too.
    variables = started.variables()
    log = tmp_path / "learner.log"
    with log.open("wb") as output:
        learner = started.start(
            shlex.split(learner_command)[2:],
            cwd=EXAMPLES / "own_environment",
            variables=variables,
            stdout=output,
            stderr=output,
        )
    try:
        wait_until(lambda: re.search(r"serving \S+:\d+", log.read_text()), "no address")
        found = re.search(r"serving (\S+:\d+)", log.read_text())
        assert found is not None
        with (tmp_path / "env_server.log").open("w+b") as said:
            env_server = started.start(
                shlex.split(env_server_command.replace("LEARNER:8686", found[1]))[2:],
                cwd=EXAMPLES / "own_environment",
                variables=variables,
                stdout=said,
                stderr=said,
            )
            code = env_server.wait(SECONDS)
            said.seek(0)
            assert code == 0, said.read()
        # All steps taken, no target to miss.
        assert learner.wait(SECONDS) == 0, log.read_text()
    finally:
        learner.kill()
        learner.wait()
    assert (run / "checkpoints").exists()


class _PrunedError(Exception):
    """Of the stand-in for Optuna below."""


class _Trial:
    """A trial of Optuna with a value that is given; it is pruned at a report below `least`."""

    def __init__(self, rate: float, least: float) -> None:
        self._rate, self._least = rate, least
        self.reports: list[tuple[int, float]] = []

    def suggest_float(self, name: str, low: float, high: float, *, log: bool) -> float:
        assert low <= self._rate <= high
        return self._rate

    def report(self, value: float, step: int) -> None:
        self.reports.append((step, value))

    def should_prune(self) -> bool:
        return self.reports[-1][1] < self._least


@pytest.mark.gate
def test_the_search_finds_a_better_learning_rate_and_stops_a_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By two trials of a stand-in for Optuna, of which one is pruned at its first report."""
    monkeypatch.chdir(tmp_path)
    stand_in = types.ModuleType("optuna")
    stand_in.TrialPruned = _PrunedError  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "optuna", stand_in)
    objective = runpy.run_path(str(EXAMPLES / "tune.py"))["objective"]
    # At once: it learns nothing at that rate, and its run is stopped.
    slow = _Trial(1e-5, least=1000.0)
    with pytest.raises(_PrunedError):
        objective(slow)
    fast = _Trial(3e-3, least=0.0)
    assert objective(fast) > slow.reports[-1][1]
    assert len(slow.reports) == 1 < len(fast.reports)
    reasons = [
        json.loads(path.read_text())["reason"] for path in Path("runs").glob("*/status.json")
    ]
    assert sum(reason.startswith("stopped by SIGTERM") for reason in reasons) == 1


def _misses_node() -> str:
    """What the example in Node.js needs and is not here; "" if nothing is missing."""
    if shutil.which("node") is None:
        return "node is not installed"
    packages = "require('@grpc/grpc-js'); require('@grpc/proto-loader')"
    try_it = ["node", "-e", packages]
    found = subprocess.run(try_it, cwd=EXAMPLES / "env_server_node", capture_output=True)
    if found.returncode == 0:
        return ""
    return "@grpc/grpc-js and @grpc/proto-loader are not installed in docs/examples/env_server_node"


@pytest.mark.parametrize("environment", ["CartPole-v1", "Addition"])
def test_the_env_server_in_node_follows_the_contract(environment: str) -> None:
    if missing := _misses_node():
        pytest.skip(missing)
    options = Options(
        command=f"node {EXAMPLES}/env_server_node/server.js", environment=environment, steps=50
    )
    findings = check(Process(options.command, options.num_envs), options)
    assert findings.lines("it") == ["it passes"]
