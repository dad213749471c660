"""How far one has to read to follow an observation, held where it is."""

from tests.benchmarks.hops import measure


def test_an_observation_passes_through_15_modules_and_29_classes_at_most() -> None:
    hops = measure()
    assert len(hops.modules) <= 15, hops.modules
    assert len(hops.classes) <= 29, hops.classes
