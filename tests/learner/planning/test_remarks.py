"""What a plan says of a run of that size."""

import dataclasses

import pytest

from learner.planning.plan import Sizing
from learner.planning.prediction import predict
from learner.planning.programs import Programs
from learner.planning.remarks import remarks
from seedrl import config_file
from seedrl.config import Config
from tests.learner.planning.test_plan import BUSY, DEMAND, ONE

CONFIG = config_file.load("cartpole_r2d2")
SMALL = Programs(2**20, 2**20, 2**20, 1e6, 1e9)


def about(
    hosts: int, config: Config = CONFIG, accelerator: str = "cpu", regime: str = "asynchronous"
) -> list[str]:
    sizing = Sizing(hosts, predict(BUSY, DEMAND, ONE), regime)
    found = remarks(
        config, SMALL, DEMAND, sizing, usable_bytes=SMALL.device_bytes - 1, accelerator=accelerator
    )
    return list(found)


def test_more_memory_comes_with_more_hosts_only_where_there_may_be_several() -> None:
    several, one = about(1)[1], about(1, regime="synchronous")[1]
    assert "--accelerator NAME:N, --hosts N)" in several
    assert "--accelerator NAME:N)" in one


def test_several_hosts_are_said_to_have_job_files() -> None:
    *_, line = about(3)
    assert line.startswith("several learner hosts: `seedrl launch --hosts 3` writes")


@pytest.mark.parametrize(
    ("section", "field", "line"),
    [
        ("learning", "num_devices", "learning.num_devices: expected a multiple of 3, as many for"),
        ("serving", "inference_devices", "serving.inference_devices: expected a multiple of 3,"),
    ],
)
def test_devices_that_hosts_cannot_share_would_have_to_change(
    section: str, field: str, line: str
) -> None:
    changed = dataclasses.replace(getattr(CONFIG, section), **{field: 2})
    config = dataclasses.replace(CONFIG, **{section: changed})
    *_, about_devices, about_jobs = about(3, config, "h100:2")
    assert about_jobs.startswith("several learner hosts")
    assert about_devices.startswith(
        f"CONFIG would have to change for hosts with --accelerator h100:2: {line}"
    )
    assert about(2, config, "h100:2") == about(2)


def test_devices_that_a_host_does_not_have_are_said_to_be_missing() -> None:
    config = dataclasses.replace(
        CONFIG, serving=dataclasses.replace(CONFIG.serving, inference_devices=1)
    )
    assert about(1, config, "h100:2") == about(1)
    assert (
        "with --accelerator h100: learning.num_devices: expected at most"
        in about(1, config, "h100")[-1]
    )


def test_a_round_is_as_long_as_the_slowest_step() -> None:
    sizing = Sizing(1, predict(BUSY, DEMAND, ONE), "synchronous")
    in_rounds = dataclasses.replace(DEMAND, in_rounds=True)
    found = remarks(CONFIG, SMALL, in_rounds, sizing, usable_bytes=0.0, accelerator="cpu")
    (line,) = set(found) - set(about(1))
    assert line.startswith("steps: with learning.regime synchronous all wait for the slowest")


def test_a_slice_that_there_is_not_is_named_with_those_that_there_are() -> None:
    *_, line = about(3, accelerator="tpu-v6e:8")
    assert line.startswith("there are no such hosts: --accelerator: a slice of several hosts has")
    assert about(4, accelerator="tpu-v6e:4") == about(4)
