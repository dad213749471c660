"""`seedrl replay-images` of a replay that was made here: each frame is its own number."""

from pathlib import Path

import numpy as np
import pytest

from learner.cli.main import main
from learner.reporting.replay_images import sampled_frames
from seedrl.config_file import load
from seedrl.config_json import to_json
from seedrl.storage import checkpoints

NUM_PAGES, PAGE_STEPS = 8, 10


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    frames = np.arange(NUM_PAGES * PAGE_STEPS, dtype=np.uint8).reshape(1, NUM_PAGES, PAGE_STEPS)
    mass = np.zeros((1, NUM_PAGES), np.float32)
    mass[0, 2] = 1.0  # the one sequence that can be drawn
    extra = {
        "replay.pages.steps.timestep.observation": frames[..., None, None] + np.zeros((3, 4), "B"),
        "replay.mass": mass,
        "replay.next": np.array([[1, 2, 5, 4, 5, 6, 7, 0]], np.int32),
    }
    meta = {"config": to_json(load("cartpole_r2d2"))}
    checkpoints.save(tmp_path / "checkpoints", 1, {"params": ()}, meta, keep=2, extra=extra)
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
    frames = np.arange(NUM_PAGES * PAGE_STEPS).reshape(1, NUM_PAGES, PAGE_STEPS)
    mass = np.zeros((1, NUM_PAGES * PAGE_STEPS), np.float32)
    mass[0, 2 * PAGE_STEPS + 7] = 1.0
    replay = {
        "replay.pages.steps.timestep.observation": frames,
        "replay.mass": mass,
        "replay.next": np.array([[1, 2, 5, 4, 5, 6, 7, 0]], np.int32),
    }
    (found,) = sampled_frames(replay, length=5, sequences=1, seed=0)
    assert found.tolist() == [27, 28, 29, 50, 51]


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        ("{0} --frames 0", 2, "--frames: expected at least 1, got 0"),
        ("{0} --out {0}", 2, "--out: expected a file in an existing folder"),
        ("{0} --out {0}/no/such.png", 2, "--out: expected a file in an existing folder"),
        ("{0}/empty", 74, "expected a checkpoint with its replay in"),
    ],
)
def test_what_cannot_be_drawn_is_told(
    flags: str, code: int, message: str, workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay-images", *flags.format(workdir).split()]) == code
    assert message in capsys.readouterr().err
