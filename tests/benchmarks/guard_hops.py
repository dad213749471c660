"""How far one has to read to follow an observation, held where it is.

15 modules and 29 classes when one device did it all. That several act and learn has added who the
shard of a page is, what acting threads count together, copies of parameters for each of them, and
the clock of a session that may be suspended: wanted are 15 and 29 again.
"""

from tests.benchmarks.hops import measure


def test_an_observation_passes_through_19_modules_and_32_classes_at_most() -> None:
    hops = measure()
    assert len(hops.modules) <= 19, hops.modules
    assert len(hops.classes) <= 32, hops.classes
