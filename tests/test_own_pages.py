"""docs/own_network.md and docs/own_agent.md: their blocks run."""

import dataclasses
import doctest
import json
import re
from pathlib import Path

import pytest

from learner.cli import train
from learner.cli.arguments import parse
from seedrl import config_io
from seedrl.agents.check import build_agent
from seedrl.config_io import to_json
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec
from tests.documented import ROOT, write_files

NETWORK, AGENT = (ROOT / "docs" / f"own_{name}.md" for name in ("network", "agent"))


@pytest.fixture(autouse=True)
def _modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The modules that the pages import from."""
    write_files(AGENT, tmp_path)
    for folder in (tmp_path, ROOT / "docs" / "examples" / "own_network"):
        monkeypatch.syspath_prepend(folder)


# The agent is checked below; the network acts: test_examples.py.
@pytest.mark.gate
@pytest.mark.parametrize("page", [NETWORK, AGENT], ids=lambda page: page.stem)
def test_what_the_page_shows_is_what_python_answers(page: Path) -> None:
    blocks = re.findall(r"```pycon\n(.*?)```", page.read_text(), re.DOTALL)
    session = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, page.name, str(page), 0)
    assert len(session.examples) > 10
    answers: list[str] = []
    result = doctest.DocTestRunner().run(session, out=answers.append)
    assert result.failed == 0, "".join(answers)


def test_ones_own_agent_fits_and_every_field_of_it_is_a_flag_and_is_saved(tmp_path: Path) -> None:
    flags = ["--agent.burn-in", "1", "--agent.network.core", "none"]
    _, config = parse(train.TrainOptions, [str(tmp_path / "my_config.py"), *flags], prog="train")
    assert (config.agent.burn_in, config.agent.network.core) == (1, "none")
    build_agent(config.agent, EnvSpec(ArraySpec((5,), "float32"), DiscreteSpec(4)))
    saved = json.loads(to_json(config))["config"]["agent"]
    assert {field.name for field in dataclasses.fields(config.agent)} <= set(saved)
    assert config_io.load(tmp_path / "my_config.py").agent.window.length == 17
