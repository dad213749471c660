"""What becomes of a checkpoint's replay on another number of hosts."""

from pathlib import Path
from typing import Any

import pytest

from learner.build import Geometry, _own_shards
from learner.checkpoints.restoring import resumption
from learner.multihost.topology import Topology
from seedrl import config_io
from seedrl.checkpoints import Checkpoint

REPLAY, QUEUE = config_io.load("cartpole_r2d2"), config_io.load("cartpole_impala")


def geometry(count: int, devices: int, index: int = 0) -> Geometry:
    """Of hosts with as many devices each."""
    own: list[Any] = [object()] * devices
    return Geometry(own, own[:1], (), 1, 1, own * count, Topology("a:1", count, index), 1, 0)


def checkpoint(hosts: int, shards: int | None) -> Checkpoint:
    meta: dict[str, Any] = {"hosts": hosts} if hosts > 1 else {}
    if shards is not None:
        meta["replay_indices"] = [{}] * shards
    return Checkpoint(7, Path("there"), meta)


@pytest.mark.parametrize(
    ("hosts", "shards", "count", "devices", "expected"),
    [
        (1, None, 2, 1, "none"),
        (2, 2, 2, 1, "restored"),
        (1, 2, 1, 2, "restored"),
        (2, 2, 1, 2, "redistributed"),
        (1, 2, 2, 1, "redistributed"),
        (2, 2, 1, 1, "filled again"),
        (1, 1, 2, 1, "filled again"),
        (2, 4, 2, 1, "filled again"),  # and no shard is dropped without a word
        (2, 2, 2, 2, "filled again"),
    ],
)
def test_shards_are_kept_where_each_has_a_device(
    hosts: int, shards: int | None, count: int, devices: int, expected: str
) -> None:
    found = checkpoint(hosts, shards)
    sizes = {"num_hosts": count, "num_devices": count * devices}
    assert resumption(found, REPLAY, **sizes) == expected


@pytest.mark.parametrize(
    ("hosts", "count", "devices", "expected"),
    [(2, 2, 1, "restored"), (2, 1, 2, "filled again"), (1, 2, 1, "filled again")],
)
def test_a_queue_is_filled_again_on_another_number_of_hosts(
    hosts: int, count: int, devices: int, expected: str
) -> None:
    found = checkpoint(hosts, 2)
    sizes = {"num_hosts": count, "num_devices": count * devices}
    assert resumption(found, QUEUE, **sizes) == expected


def test_each_host_takes_its_own_shards() -> None:
    assert _own_shards(geometry(1, 4)) is None
    assert [_own_shards(geometry(2, 2, index)) for index in range(2)] == [slice(0, 2), slice(2, 4)]
