"""The examples of docs/examples: each configuration builds an agent that acts, and trains."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from envs_server.check.server import Options, Process, check
from learner.cli.main import main as seedrl
from seedrl import config_io
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


@pytest.mark.parametrize("name", ["own_environment", "own_network", "own_agent"])
def test_the_agent_of_an_example_has_q_values_for_every_row(name: str) -> None:
    agent = config_io.load(EXAMPLES / name / "config.py").agent
    agent.build(_SPEC)
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


def test_two_machines_train_by_the_commands_of_the_example(tmp_path: Path) -> None:
    text = (EXAMPLES / "two_machines" / "README.md").read_text()
    learner_command, env_server_command = re.findall(r"```sh\n(python -m .*)\n```", text)
    run, folder = tmp_path / "recall", tmp_path / "certificates"
    assert seedrl(["certificates", str(folder)]) == 0
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


def test_the_env_server_in_node_follows_the_contract() -> None:
    if missing := _misses_node():
        pytest.skip(missing)
    options = Options(command=f"node {EXAMPLES}/env_server_node/server.js", steps=50)
    findings = check(Process(options.command, options.num_envs), options)
    assert findings.lines("it") == ["it passes"]
