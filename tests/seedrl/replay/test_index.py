"""The ring order of pages, worked by hand."""

import json

import numpy as np
import pytest

from seedrl.agents.window import WindowSpec
from seedrl.replay.index import PageIndex

# Five rows in pages of two: three pages, and a start on every second page.
WINDOW = WindowSpec(burn_in=1, unroll=3, bootstrap=1, stride=4)


def index_of(capacity_pages: int) -> PageIndex:
    return PageIndex(capacity_pages=capacity_pages, window=WINDOW, page_steps=2)


def rows(plan: np.ndarray) -> list[list[int]]:
    return [row.tolist() for row in plan]


def test_pages_of_two_streams_are_linked_and_completed() -> None:
    index = index_of(10)
    # Stream 7 gets pages 0, 1, 3, 4 and 5; stream 9 gets page 2; -1 is not of this shard.
    plan = index.plan([7, 7, 9, -1, 7, 7, 7])
    assert rows(plan) == [
        [0, 1, 2, 10, 3, 4, 5],
        [10, 0, 10, 10, 1, 3, 4],
        [10, 10, 10, 10, 0, 10, 3],
    ]
    assert plan.dtype == np.int32
    assert (index.num_sequences, index.fill, index.num_inserted) == (2, 0.6, 6)


def test_all_sequences_that_start_in_a_page_are_completed_at_once() -> None:
    # Transitions of three rows in pages of four: of those that start in page 0, at rows 0 to 3, the
    # last ends with row 5, which is in page 1.
    window = WindowSpec(burn_in=0, unroll=1, bootstrap=2, stride=1)
    index = PageIndex(capacity_pages=5, window=window, page_steps=4)
    assert (index.starts_in_page, index.num_sequences) == (4, 0)
    assert rows(index.plan([7, 9, 7, 7])) == [[0, 1, 2, 3], [5, 5, 0, 2], [5, 5, 0, 2]]
    assert index.num_sequences == 8
    assert index.state()["sampleable"] == [0, 2]
    # The page that evicts page 0 takes its four sequences with it.
    index.plan([9, 9])
    assert index.num_sequences == 12
    assert index.state()["sampleable"] == [1, 2, 4]


def test_more_pages_than_the_ring_are_refused() -> None:
    with pytest.raises(ValueError) as caught:
        index_of(4).plan([1, 2, 3, -1, 4, 5])
    assert "replay.capacity_steps" in str(caught.value)


def test_a_restored_index_goes_on_exactly() -> None:
    rng = np.random.default_rng(0)
    original = index_of(6)
    for _ in range(20):
        original.plan(rng.integers(-1, 3, size=3))
    copy = index_of(6)
    copy.restore(json.loads(json.dumps(original.state())))
    for stream in range(3):  # where a run resumes every stream is cut
        original.end_stream(stream)
    assert copy.num_sequences == original.num_sequences
    for _ in range(20):
        streams = rng.integers(-1, 3, size=3)
        assert rows(copy.plan(streams)) == rows(original.plan(streams))
        assert copy.state() == original.state()
        assert copy.num_sequences == original.num_sequences


def test_a_state_of_another_geometry_is_refused() -> None:
    state = index_of(6).state()
    with pytest.raises(ValueError) as caught:
        index_of(8).restore(state)
    assert "capacity_pages" in str(caught.value)
