"""Which host this is, by the command line."""

import pytest

from learner.multihost.topology import ALONE, Topology, topology_of


def test_flags_make_a_topology() -> None:
    assert topology_of(None, 1, None) == ALONE and ALONE.is_first
    assert topology_of("a:1", 4, 2) == Topology("a:1", 4, 2)
    assert not Topology("a:1", 4, 2).is_first


@pytest.mark.parametrize("number", range(9))
def test_parts_are_all_and_differ_by_one(number: int) -> None:
    parts = [Topology("a:1", 3, index).part(number) for index in range(3)]
    assert sum(parts) == number
    assert max(parts) - min(parts) <= 1
    assert parts[0] == len(range(number)[0::3])
