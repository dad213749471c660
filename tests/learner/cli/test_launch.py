"""`seedrl launch`: what each engine writes is looked at in tests/configs/test_jobs.py."""

import pytest

from learner.cli.launch import rendered
from learner.cli.main import main


def test_it_prints_the_file_whatever_the_order_of_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["launch", "--render", "compose", "catch_r2d2"]) == 0
    out = capsys.readouterr().out
    line = "# Written by: seedrl launch {}\n"
    assert line.format("--render compose catch_r2d2") in out
    assert out == rendered(["catch_r2d2", "--render", "compose"]).replace(
        line.format("catch_r2d2 --render compose"), line.format("--render compose catch_r2d2")
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("catch_r2d2", "--render"),
        ("catch_r2 --render slurm", "unknown config 'catch_r2': did you mean catch_r2d2?"),
        ("catch_r2d2 --render slurms", "slurms"),
        ("catch_r2d2 --render slurm --hosts 2", "--hosts: expected 1, got 2"),
        (
            "catch_r2d2 --render slurm --spot all",
            "--spot: expected only with --render jobset or sky",
        ),
        (
            "catch_r2d2 --render compose --hours 2",
            "--hours: expected only with --render slurm, got",
        ),
        ("catch_r2d2 --render slurm --accelerator tpu-v6e", "expected cpu or a GPU for Slurm"),
        ("catch_r2d2 --render compose --accelerator tpu-v6e", "expected cpu or a GPU for compose"),
        ("catch_r2d2 --render sky --accelerator gpu", "GPUs of one kind; expected its name"),
        ("catch_r2d2 --render sky --learning.total-steps 5", "--learning.total-steps"),
    ],
)
def test_a_mistake_is_one_line(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["launch", *words.split()]) == 2
    out, error = capsys.readouterr()
    assert out == "" and error.count("\n") == 1 and message in error
