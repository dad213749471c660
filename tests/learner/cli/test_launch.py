"""`seedrl launch`: what each engine writes is looked at in tests/configs."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from learner.cli import launch_on_ray
from learner.cli.launch import rendered
from learner.cli.main import main
from seedrl.errors import ConfigError


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
        ("catch_r2d2 --render slurm --hosts 2 --env-servers 3", "each of the 2 hosts, at most"),
        (
            "pendulum_ppo --render slurm --hosts 2 --env-servers 2",
            "learning.regime synchronous, which is for one host",
        ),
        ("atari_r2d2 --render sky --hosts 2 --accelerator tpu-v6e:4", "expected 1 with tpu-v6e"),
        (
            "atari_r2d2 --render jobset --hosts 3 --env-servers 3 --accelerator tpu-v6e:4",
            "tpu-v6e:4 on each of --hosts 2, 4, 8",
        ),
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
        ("catch_r2d2 --on slurm", "--on: expected ray, got 'slurm'"),
        ("catch_r2d2 --on", "--on: expected ray, got ''"),
        ("--on ray", "expected a CONFIG first, got nothing"),
        ("catch_r2d2 --on ray --render slurm", "--render"),
        ("catch_r2d2 --on=ray --hosts 2", "--hosts: expected 1 with --on ray"),
        ("--on ray catch_r2d2 --env-servers 0", "--env-servers: expected 1 to 52"),
        ("catch_r2d2 --on ray --learner-cpus 0", "--learner-cpus: expected at least 1"),
        ("catch_r2d2 --on ray --accelerator h1000", "--accelerator: expected NAME"),
        ("catch_r2d2 --on ray --serving.bind 127.0.0.1:1", "serving.bind: expected nothing"),
        ("catch_r2d2 --on ray --serving.insecure", "serving.insecure: expected nothing with --on"),
        ("catch_r2d2 --on ray --replay.ratio 0", "replay.ratio"),
    ],
)
def test_a_mistake_is_one_line(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["launch", *words.split()]) == 2
    out, error = capsys.readouterr()
    assert out == "" and error.count("\n") == 1 and message in error


@pytest.mark.skipif(find_spec("ray") is not None, reason="ray is installed")
def test_without_ray_one_line_says_how_to_install_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["launch", "catch_r2d2", "--on", "ray"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "the package ray, which is not installed; pip install 'seedrl[ray]'" in error


@pytest.mark.parametrize(
    ("workdir", "address", "expected"),
    [
        ("/shared/mine", "ray://head:10001", "/shared/mine"),
        ("mine", "auto", str(Path("mine").absolute())),
        (None, "head:6379", str(Path("runs").absolute() / "catch_r2d2__7__")),
        (None, "ray://head:10001", None),
        ("mine", "ray://head:10001", None),
    ],
)
def test_the_folder_of_a_run_on_ray_is_a_path_of_its_nodes(
    workdir: str | None, address: str, expected: str | None
) -> None:
    given = None if workdir is None else Path(workdir)
    if expected is not None:
        found = launch_on_ray.workdir_of(given, address, "catch_r2d2", 7)
        assert str(found).startswith(expected) and found.is_absolute()
        return
    with pytest.raises(ConfigError, match=r"--workdir: expected an absolute path.*ray://head"):
        launch_on_ray.workdir_of(given, address, "catch_r2d2", 7)


def test_secrets_are_each_sides_own_and_an_env_servers_outlive_a_learner(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    first, second = (launch_on_ray.issue(tmp_path, host) for host in ("10.0.0.1", "10.0.0.2"))
    assert set(first.learner) == {"token", "ca.pem", "learner.pem", "learner.key"}
    assert set(first.env_server) == {"token", "ca.pem", "env_server.pem", "env_server.key"}
    for name in ("token", "ca.pem"):
        assert first.env_server[name] == second.learner[name]
    assert first.learner["learner.pem"] != second.learner["learner.pem"]
