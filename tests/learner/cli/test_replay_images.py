"""`seedrl replay-images` of a replay that was made here: each frame is its own number."""

from pathlib import Path

import numpy as np
import pytest

from learner.cli.main import main
from learner.cli.replay_images import sampled_frames
from seedrl import checkpoints
from seedrl.config_io import load, to_json
from seedrl.errors import CheckpointError

NUM_PAGES, PAGE_STEPS = 8, 10


def saved(
    *shape: int, name: str = "", dtype: str = "float32", **changed: np.ndarray
) -> dict[str, np.ndarray]:
    """A replay whose frames are their own numbers, of which one sequence can be drawn."""
    numbers = np.arange(NUM_PAGES * PAGE_STEPS, dtype=np.float32).reshape(1, NUM_PAGES, PAGE_STEPS)
    mass = np.zeros((1, NUM_PAGES), np.float32)
    mass[0, 2] = 1.0
    frames = numbers.reshape(1, NUM_PAGES, PAGE_STEPS, *[1] * len(shape)) + np.zeros(shape)
    return {
        f"replay.pages.steps.timestep.observation{name}": frames.astype(dtype),
        "replay.sampling_weight": mass,
        "replay.next": np.array([[1, 2, 5, 4, 5, 6, 7, 0]], np.int32),
    } | changed


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    meta = {"config": to_json(load("cartpole_r2d2"))}
    tree, extra = {"params": ()}, saved(3, 4, dtype="uint8")
    checkpoints.save(tmp_path / "checkpoints", 1, tree, meta, keep=2, extra=extra)
    return tmp_path


def test_each_row_is_a_sequence_that_was_drawn_by_its_priority(
    workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = workdir / "strip.png"
    flags = ["--out", str(out), "--sequences", "2", "--frames", "12"]
    assert main(["replay-images", str(workdir), *flags]) == 0
    assert capsys.readouterr().out == f"{out}: 2 sequences of 12 frames\n"
    # Here, so that only the process that runs this test imports matplotlib.
    from matplotlib import image

    picture = np.round(image.imread(out)[..., 0] * 255).astype(int)
    assert picture.shape == (2 * 3, 12 * 4)
    # Page 2 and then page 5, which follows it.
    expected = [*range(20, 30), 50, 51]
    assert (picture[:, ::4] == expected).all() and (picture[:, 3::4] == expected).all()


def test_a_sequence_may_begin_inside_a_page() -> None:
    mass = np.zeros((1, NUM_PAGES * PAGE_STEPS), np.float32)
    mass[0, 2 * PAGE_STEPS + 7] = 1.0
    replay = saved(**{"replay.sampling_weight": mass})
    (found,) = sampled_frames(replay, length=5, sequences=1, seed=0)
    # 27, 28, 29, 50 and 51, from black to white.
    grey = [0, 10, 21, 244, 255]
    assert found.shape == (5, 1, 1) and found.ravel().tolist() == grey


@pytest.mark.parametrize(
    ("shape", "image"),
    [((), (1, 1)), ((6,), (6, 1)), ((9, 7), (9, 7)), ((9, 7, 3), (9, 7)), ((3, 9, 7), (9, 7))],
)
def test_any_observation_is_an_image(shape: tuple[int, ...], image: tuple[int, ...]) -> None:
    found = sampled_frames(saved(*shape), length=5, sequences=2, seed=0)
    assert found.shape == (2, 5, *image) and found.dtype == np.uint8


def test_the_first_of_a_dict_of_observations_is_drawn() -> None:
    replay = saved(9, 7, name=".cart") | saved(4, name=".pole.0")
    assert sampled_frames(replay, length=5, sequences=1, seed=0).shape == (1, 5, 9, 7)


def test_a_replay_without_anything_to_draw_is_refused() -> None:
    no_weight = np.zeros((1, NUM_PAGES), np.float32)
    for replay, reason in (
        ({"replay.steps.timestep.observation": np.zeros((1, 2, 3))}, "on-policy queue"),
        (saved(**{"replay.sampling_weight": no_weight}), "complete sequence"),
    ):
        with pytest.raises(CheckpointError) as caught:
            sampled_frames(replay, length=5, sequences=1, seed=0)
        assert reason in str(caught.value)
