"""Which host this is, by the command line."""

import pytest

from learner.multihost.topology import ALONE, Topology, topology_of
from seedrl.errors import ConfigError


def test_without_flags_a_host_is_alone() -> None:
    assert topology_of(None, 1, None) == ALONE
    assert ALONE.is_first


def test_three_flags_make_a_topology() -> None:
    assert topology_of("a:1", 4, 2) == Topology("a:1", 4, 2)
    assert not Topology("a:1", 4, 2).is_first


@pytest.mark.parametrize(
    ("coordinator", "count", "index", "named"),
    [
        (None, 2, 0, "all three"),
        ("a:1", 2, None, "all three"),
        ("a:1", 1, None, "all three"),
        (None, 0, None, "--process-count: expected at least 1"),
        ("a:1", 2, 2, "--process-index: expected 0 to 1"),
        ("a:1", 2, -1, "--process-index: expected 0 to 1"),
        ("a", 2, 0, "--coordinator: expected HOST:PORT"),
        ("a:0", 2, 0, "--coordinator: expected HOST:PORT"),
        ("a:b", 2, 0, "--coordinator: expected HOST:PORT"),
        (":7", 2, 0, "--coordinator: expected HOST:PORT"),
    ],
)
def test_others_are_refused(
    coordinator: str | None, count: int, index: int | None, named: str
) -> None:
    with pytest.raises(ConfigError, match=named):
        topology_of(coordinator, count, index)


@pytest.mark.parametrize("number", range(9))
def test_parts_are_all_and_differ_by_one(number: int) -> None:
    parts = [Topology("a:1", 3, index).part(number) for index in range(3)]
    assert sum(parts) == number
    assert max(parts) - min(parts) <= 1
    assert parts[0] == len(range(number)[0::3])
