"""Grids as files, and the runs that they plan."""

from pathlib import Path

import pytest

from learner.extras.grid import read_grid
from seedrl.errors import ConfigError

SMALL = 'configs = ["cartpole_r2d2"]\nseeds = [0]\n'


def grid(folder: Path, text: str) -> Path:
    path = folder / "my_grid.toml"
    path.write_text(text)
    return path


def test_a_grid_is_the_product_of_configs_values_and_seeds(tmp_path: Path) -> None:
    text = """
configs = ["cartpole_r2d2", "own/config.py"]
seeds = [0, 7]

[options]
learning.total_steps = 20_000
checkpoint.replay = true
logging.learning_curve = false

[vary]
replay.ratio = [1, 4.0]
agent.network.torso-sizes = [[64], [32, 16]]
"""
    runs = read_grid(grid(tmp_path, text))
    assert len(runs) == len({run.name for run in runs}) == 2 * 2 * 2 * 2
    assert [run.name for run in runs[:3]] == [
        "cartpole_r2d2__replay.ratio=1__agent.network.torso-sizes=64__seed=0",
        "cartpole_r2d2__replay.ratio=1__agent.network.torso-sizes=64__seed=7",
        "cartpole_r2d2__replay.ratio=1__agent.network.torso-sizes=32x16__seed=0",
    ]
    options = ["--learning.total-steps", "20000", "--checkpoint.replay"]
    options += ["--logging.no-learning-curve"]
    varied = ["--replay.ratio", "4.0", "--agent.network.torso-sizes", "32", "16"]
    config = str(tmp_path.resolve() / "own" / "config.py")
    assert runs[-1].words == (config, "--seed", "7", *options, *varied)


def test_a_value_that_no_folder_can_be_called_is_shortened(tmp_path: Path) -> None:
    text = SMALL + '[vary]\nenvironment.arguments = [\'{"map": "a/b"}\']\n'
    (run,) = read_grid(grid(tmp_path, text))
    assert run.name == "cartpole_r2d2__environment.arguments=_map_a_b___seed=0"
    assert run.words[-1] == '{"map": "a/b"}'


def test_a_value_of_several_lines_is_one_line_as_the_run_records_it(tmp_path: Path) -> None:
    text = SMALL + '[options]\nenvironment.arguments = """\n{"a": 1,\n "k": 4}\n"""\n'
    (run,) = read_grid(grid(tmp_path, text))
    assert run.words[-1] == '{"a": 1,  "k": 4} '


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("configs = [", "expected a grid, a TOML file, got"),
        (SMALL + "x = 1", "expected configs, seeds, options, vary, got x"),
        ("seeds = [0]", "configs: expected a list of names of bundled configs"),
        ('configs = ["a"]\nseeds = 3', "seeds: expected a list, got 3"),
        ('configs = ["a"]\nseeds = ["0"]', "seeds: expected a list of whole numbers"),
        (SMALL + "[vary]\nreplay.ratio = 4", "vary.replay.ratio: expected a list of values, got 4"),
        (SMALL + "[options]\nseed = 4", "options.seed: each run has its own; see seeds"),
        ('configs = ["a/x.py", "b/x.py"]\nseeds = [0]', "got two that would be called x__seed=0"),
        (SMALL + f"[vary]\nname = ['{'n' * 300}']", "vary: expected fewer or shorter values"),
    ],
)
def test_a_grid_that_plans_nothing_sensible_is_refused_in_one_line(
    tmp_path: Path, text: str, expected: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        read_grid(grid(tmp_path, text))
    assert expected in str(refused.value) and "my_grid.toml" in str(refused.value)
