"""Costs as files, and costs of devices."""

import dataclasses
import json
from pathlib import Path

import pytest

from learner.planning.costs import BUNDLED, Costs, load, with_device
from seedrl.errors import ConfigError

_NAMES = [field.name for field in dataclasses.fields(Costs) if field.name != "measured"]
COSTS = Costs(**dict.fromkeys(_NAMES, 1e-6), measured="here")


def test_a_file_gives_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    path.write_text(json.dumps(COSTS.to_json()))
    assert load(path) == COSTS


def test_the_bundled_ones_say_where_they_are_from() -> None:
    found = load(BUNDLED)
    assert found.learner_message > 0 and found.env_message > 0 and found.answer > 0
    assert "measured on 20" in found.measured and "commit" in found.measured


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "--costs: expected JSON"),
        ("{}", "--costs: expected an object of learner_message, learner_row"),
        (json.dumps({**COSTS.to_json(), "answer": -1}), "--costs: answer: expected seconds of 0"),
        (json.dumps({**COSTS.to_json(), "act": True}), "--costs: act: expected seconds of 0"),
    ],
)
def test_other_files_are_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        load(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--costs: expected a readable file"):
        load(tmp_path / "none.json")


def test_a_device_takes_its_operations_time() -> None:
    found = with_device(COSTS, 2e6, 4e9, flops=1e12, act=None, update=None, name="any")
    assert (found.act_row, found.update) == pytest.approx((2e-6, 4e-3))
    given = with_device(COSTS, 2e6, 4e9, flops=0.0, act=1e-5, update=0.02, name="any")
    assert (given.act_row, given.update) == (1e-5, 0.02)
    with pytest.raises(ConfigError, match="how fast l4 computes is not known here"):
        with_device(COSTS, 2e6, 4e9, flops=0.0, act=None, update=0.02, name="l4")
