"""Each device is sent the pages of its own shard, counted in what arrives there."""

from collections import Counter
from typing import Any

import jax
import numpy as np
import pytest

from learner.learning.device_mapping import MappedPrograms
from learner.learning.page_routing import Parcel, insert_parcels, owners, parcels
from seedrl.agents.window import WindowSpec
from seedrl.replay.index import PageIndex, by_slot

DEVICES = jax.local_devices()
K = 3


def _index() -> PageIndex:
    window = WindowSpec(burn_in=0, unroll=1, bootstrap=0, stride=1)
    return PageIndex(capacity_pages=8, window=window, page_steps=1)


def test_pages_belong_to_the_shard_of_their_slot_but_for_what_nobody_stores() -> None:
    indices = [_index(), _index()]
    assert owners(indices, by_slot, [0, 1, 2, 3], stale=(2,)) == [0, 1, -1, 1]


def test_pages_of_several_shards_go_in_one_parcel_for_each_padded_to_a_compiled_size() -> None:
    sent = parcels([10, 11, 12, 13, 14], [1, 0, 1, 3, 1], num_rows=8, sizes=[1, 4, 8])
    assert sent == [
        Parcel(0, [1], [11]),
        Parcel(1, [0, 2, 4, 0], [10, 12, 14, -1]),
        Parcel(3, [3], [13]),
    ]


@pytest.mark.parametrize("source", [0, 3])
def test_every_device_is_sent_its_own_pages_and_no_byte_more(source: int) -> None:
    received: Counter[jax.Device] = Counter()
    held = {device: list[int]() for device in DEVICES}

    def insert(shard: Any, pages: Any, plan: list[int]) -> Any:
        (device,) = pages.devices()
        received[device] += pages.nbytes
        held[device] += [
            int(row[0]) for row, stream in zip(np.asarray(pages), plan, strict=True) if stream >= 0
        ]
        return shard

    pick = jax.jit(lambda pages, rows: pages[rows])
    programs = MappedPrograms(DEVICES, DEVICES, insert, pick, *[lambda *_: None] * 5)  # type: ignore[arg-type]
    # Pages 0 to 5 of as many slots, from one device; the other two rows are padding.
    pages: Any = np.arange(8, dtype=np.float32).repeat(K).reshape(8, K)
    streams = list(range(6))
    sent = parcels(streams, by_slot(streams, 0, 4), num_rows=8, sizes=[1, 2, 8])
    replay = jax.pmap(lambda x: x)(np.zeros((len(DEVICES), 1), np.float32))
    insert_parcels(
        programs,
        replay,
        jax.device_put(pages, DEVICES[source]),
        [(parcel, parcel.streams) for parcel in sent],
    )
    assert held == dict(zip(DEVICES, [[0, 4], [1, 5], [2], [3]], strict=True))
    page_bytes = K * 4
    assert [received[device] for device in DEVICES] == [2 * page_bytes] * 2 + [page_bytes] * 2
