"""A policy as a file: the loader of docs/exported_policy.md, in a process without seedrl."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from seedrl import policy
from seedrl.agents.agent import ActOutput
from seedrl.specs import ArraySpec, BoxSpec, EnvSpec
from tests.seedrl.test_policy import _SPEC, _agent, _observation, _params

_PAGE = Path(__file__).parents[2] / "docs" / "exported_policy.md"

# Around the loader: nothing of ours may be imported, and the file is a given one.
_BEFORE = """
import json, sys
sys.modules["seedrl"] = None
given = json.load(open(sys.argv[1]))
observations = [
    {"position": [np.float32(x) for x in position], "wall": wall} for position, wall in given
]
"""
_AFTER = """
steps = jax.jit(act.call)
for _ in range(2):
    carry, actions = initial_carry, []
    for number, (position, wall) in enumerate(given):
        observation = {"position": np.array(position, np.float32), "wall": np.array(wall)}
        action, carry = steps(observation, float(number), carry)
        actions.append(int(action))
    print(json.dumps(actions))
"""


def test_the_loader_of_the_documentation_acts_as_the_policy_does(tmp_path: Path) -> None:
    plain = policy.Policy(_agent(), _params(2), _SPEC, step=0, seed=0, epsilon=0.0)
    (tmp_path / "policy.jax").write_bytes(plain.export())
    given = [_observation(index) for index in range(30)]
    carry, expected = plain.initial_carry(), []
    for number, observation in enumerate(given):
        action, carry = plain(observation, carry, reward=float(number))
        expected.append(action)
    assert len(set(expected)) > 1
    rows = [(row["position"].tolist(), bool(row["wall"])) for row in given]
    (tmp_path / "given.json").write_text(json.dumps(rows))
    (snippet,) = re.findall(r"```python\n(.*?)```", _PAGE.read_text(), flags=re.S)
    loader, use = snippet.split("\ncarry, reward = ")
    assert len(loader.strip().splitlines()) <= 10 and "act.call" in use
    script = f"{_BEFORE}{loader}\n{_AFTER}".replace("np.float32(x)", "x")
    done = subprocess.run(
        [sys.executable, "-c", script, "given.json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    # Twice: an episode begins with zeros, whatever was before.
    assert [json.loads(line) for line in done.stdout.splitlines()] == [expected, expected]


def test_real_actions_are_those_of_the_environment() -> None:
    spec = EnvSpec(ArraySpec((2,), "float32"), BoxSpec((2,), (-2.0, 0.0), (6.0, 0.5)))

    def act(params: Any, carry: Any, timestep: Any, exploration: Any, key: Any) -> ActOutput:
        return ActOutput(timestep.observation + exploration[:, None], carry, ())

    agent = _agent()._replace(act=act, initial_carry=lambda batch_size: ())
    plain = policy.Policy(agent, (), spec, step=0, seed=0, epsilon=0.25)
    called: Any = jax.export.deserialize(plain.export())
    carry = [np.uint8(0), np.zeros(2, np.uint32)]
    # -1 and 1 are -2 and 6, and 0 and 0.5; the agent emits a quarter more than it observes.
    for observation, expected in (([0.5, -0.25], [5.0, 0.25]), ([-9.0, 9.0], [-2.0, 0.5])):
        row = np.array(observation, np.float32)
        action, carry = called.call(row, 0.0, carry)
        np.testing.assert_allclose(action, expected, rtol=1e-6)
        np.testing.assert_allclose(action, plain(row, plain.initial_carry())[0], rtol=1e-6)
    assert carry[0] == 1 and not np.array_equal(carry[1], jnp.zeros(2))
