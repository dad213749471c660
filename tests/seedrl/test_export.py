"""A policy as a file: the loader of docs/exported_policy.md, in a process without seedrl."""

import json
import re
from pathlib import Path

import pytest

from seedrl import policy
from tests import started
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


@pytest.mark.gate  # an exported file acts as its policy: test_policy.py
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
    done = started.python("-c", script, "given.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    # Twice: an episode begins with zeros, whatever was before.
    assert [json.loads(line) for line in done.stdout.splitlines()] == [expected, expected]
