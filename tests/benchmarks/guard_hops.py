"""How far one has to read to follow an observation, held where it is.

On one device, which is what is watched. Where several act or learn, a page also passes
`learner.learning.page_routing`, and parameters `learner.learning.device_mapping`.
"""

from tests.benchmarks.hops import measure


def test_an_observation_passes_through_15_modules_and_29_classes_at_most() -> None:
    hops = measure()
    assert len(hops.modules) <= 15, hops.modules
    assert len(hops.classes) <= 29, hops.classes
