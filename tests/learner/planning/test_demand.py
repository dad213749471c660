"""Which devices of a host learn, and which act."""

import dataclasses
import itertools
from typing import Any

from learner.hosts.place import Place
from learner.planning.demand import machines_of
from learner.session.geometry import split_devices
from seedrl import config_file
from seedrl.config import Config
from seedrl.errors import ConfigError

CONFIG = config_file.load("cartpole_r2d2")


def asking(inference: int = 0, learning: int = 0, regime: str = "asynchronous") -> Config:
    return dataclasses.replace(
        CONFIG,
        serving=dataclasses.replace(CONFIG.serving, inference_devices=inference),
        learning=dataclasses.replace(CONFIG.learning, num_devices=learning, regime=regime),
    )


def test_devices_have_the_work_that_a_learner_gives_them() -> None:
    num_legal = 0
    regimes = ("asynchronous", "synchronous")
    for case in itertools.product((0, 1, 2, 6), (0, 1, 2, 4, 8), regimes, (1, 2), (1, 2, 8)):
        *asked, hosts, devices = case
        config = asking(*asked)
        local: Any = range(devices)
        try:
            learning, acting = split_devices(config, local, Place(num_hosts=hosts))
        except ConfigError:
            continue
        num_legal += 1
        found = machines_of(config, hosts, devices=devices)
        assert (found.devices, found.learning) == (len(learning), len(learning)), case
        assert found.acting == len(acting), case
        assert found.act_elsewhere == (acting[0] not in learning), case
    assert num_legal > 50


def test_what_a_host_does_not_have_is_given_as_far_as_it_can() -> None:
    found = machines_of(asking(inference=4, learning=16), 1, devices=8)
    assert (found.learning, found.acting) == (4, 4)
    found = machines_of(asking(inference=1), 1, devices=1)
    assert (found.learning, found.acting, found.act_elsewhere) == (1, 1, False)
    # Three of two hosts: two each.
    assert machines_of(asking(learning=3), 2, devices=4).learning == 2


def test_cores_are_no_devices_that_act() -> None:
    found = machines_of(CONFIG, 1, devices=1, cores=8, network_bytes_per_second=1e9)
    assert (found.devices, found.learning, found.acting) == (8, 1, 1)
    assert found.network_bytes_per_second == 1e9
