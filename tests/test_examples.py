"""The examples of docs/examples: each configuration builds an agent that acts, and trains."""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from envs_server.check.check_server import Options
from envs_server.check.learner import Process
from envs_server.check.server import check
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
    with Process(options.command, options.num_envs) as subject:
        trial = check(subject, options)
    assert trial.findings.lines() == []


# A gRPC that plays a learner: it answers Hello with each Assign, and prints what follows.
_LEARNER_IN_NODE = """
const Module = require('module');
const load = Module._load;
const connect = () => {
  const handlers = { data: [], status: [], error: [] };
  const on = (name, handler) => handlers[name].push(handler);
  const say = (name, value) => handlers[name].forEach((handler) => handler(value));
  const answer = (assign) => {
    say('data', { assign });
    say('status', { code: 14 });
  };
  const write = (message) => {
    if (!message.hello) console.log(message.refusal?.reason ?? Object.keys(message)[0]);
    else if (assigns.length) setImmediate(answer, assigns.shift());
  };
  return { on, write };
};
class Learner { Connect = connect; close() {} }
const wire = { seedrl: { wire: { Learner } } };
const credentials = { createInsecure() {} };
const fakes = {
  '@grpc/grpc-js': { credentials, status: {}, loadPackageDefinition: () => wire },
  '@grpc/proto-loader': { loadSync() {} },
};
Module._load = (name, ...rest) => fakes[name] ?? load(name, ...rest);
const environments = [{ id: 'CartPole-v1', arguments: '', wrappers: [] }];
const numbers = (size) => [...Array(size).keys()];
const group = (size, i) => {
  const slots = numbers(size).map((slot) => slot + 10000 * i);
  return { slots, seeds: slots.map(String), environment: 0 };
};
const assign = (maxMessageBytes, ...sizes) =>
  ({ lease: '1', environments, maxMessageBytes, groups: sizes.map(group) });
const assigns = [assign('0', 2), assign('65536', 2, 2)];
assigns.push(assign('65536', 3000), assign('65536', 3000, 2), assign('65536'), assign('64', 2));
const [seed, slot] = [assign('65536', 2), assign('65536', 2)];
seed.groups[0].seeds[1] = '2147483648';
slot.groups[0].slots[1] = 0;
assigns.push(seed, slot);
process.argv.push('--learner', 'x', '--num-envs', '3000');
process.exit = () => {}; // after each Refusal
global.setTimeout = (call, _, ...rest) => setImmediate(call, ...rest);
require('./server.js');
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_env_server_in_node_refuses_what_it_cannot_follow() -> None:
    folder = EXAMPLES / "env_server_node"
    words = ["node", "-e", _LEARNER_IN_NODE]
    found = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)
    assert found.stdout.splitlines() == [
        *("ready", "step"),  # 0: no limit
        *("ready", "step", "step"),
        "a step of 75022 bytes is too long",
        "more environments than offered",
        *["the Assign contradicts itself"] * 4,  # no group, too short messages, seed, slot
    ]


def test_the_env_server_in_node_is_short_and_its_packages_are_pinned() -> None:
    folder = EXAMPLES / "env_server_node"
    assert sum(len(path.read_text().splitlines()) for path in folder.glob("*.js")) <= 200
    dependencies = json.loads((folder / "package.json").read_text())["dependencies"]
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in dependencies.values())
