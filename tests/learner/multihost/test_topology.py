"""Which host this is, by the command line."""

import pytest

from learner.multihost.topology import ALONE, Topology, topology_of
from seedrl.errors import ConfigError


def test_flags_make_a_topology() -> None:
    assert topology_of(None, 1, None) == ALONE and ALONE.is_first
    assert topology_of("a:1", 4, 2) == Topology("a:1", 4, 2)
    assert not Topology("a:1", 4, 2).is_first


@pytest.mark.parametrize(
    ("coordinator", "count", "index", "flag"),
    [
        (None, 2, 0, "--coordinator"),
        ("a:1", 2, None, "--process-index"),
        ("a:1", 1, None, "--process-count"),
        (None, 0, None, "--process-count"),
        ("a:1", 2, 2, "--process-index"),
        ("a:1", 2, -1, "--process-index"),
        ("a", 2, 0, "--coordinator"),
        ("a:0", 2, 0, "--coordinator"),
        (":7", 2, 0, "--coordinator"),
    ],
)
def test_others_are_refused(
    coordinator: str | None, count: int, index: int | None, flag: str
) -> None:
    with pytest.raises(ConfigError) as found:
        topology_of(coordinator, count, index)
    assert flag in str(found.value)


@pytest.mark.parametrize("number", range(9))
def test_parts_are_all_and_differ_by_one(number: int) -> None:
    parts = [Topology("a:1", 3, index).part(number) for index in range(3)]
    assert sum(parts) == number
    assert max(parts) - min(parts) <= 1
    assert parts[0] == len(range(number)[0::3])
