"""Pages on their way to the shards that own them: each device is sent its own, and no others."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import jax
import numpy as np

from learner.learning.device_mapping import MappedPrograms, rows_on
from seedrl.replay.experience import Experience, Index
from seedrl.types import Page, Tree


class ShardedReplay(NamedTuple):
    """The replay over n devices."""

    experience: Experience
    memory: Tree  # on the devices, leaves [n, ...]; the learning thread's
    indices: Sequence[Index]  # of each shard, on the host
    page_steps: int  # K
    most_pages: int  # that may arrive at once
    # Numbers of pages that there are insertion programs for, ascending; if empty, for any.
    page_rows: Sequence[int] = ()
    is_mixed: bool = True  # pages that arrive together may belong to several shards
    starts_in_page: int = 1  # sequences that start in a page, at most

    def rows_by_account(self) -> dict[str, int]:
        """Rows of stored pages by account, if the replay counts them."""
        counted: Counter[str] = Counter()
        for index in self.indices:
            counted.update(self.experience.accounts(index))
        return {name: pages * self.page_steps for name, pages in counted.items()}


class Parcel(NamedTuple):
    """The pages of one shard, of I that arrived together."""

    shard: int
    # Which of the I rows it is sent, padded to a number that there is a program for; empty for all
    # of them, as they lie.
    rows: Sequence[int]
    streams: Sequence[int]  # of each row that is sent; -1 for one that is not to be stored


def owners(
    indices: Sequence[Any],
    shard_of: Callable[[Sequence[int], int, int], list[int]],
    slots: Sequence[int],
    stale: Sequence[int] = (),
) -> list[int]:
    """The shard of each page, by its slot; see `Experience.shard_of`; -1 for pages at `stale`."""
    # The others are assigned as if the stale ones had never come.
    num_inserted = sum(index.num_inserted for index in indices)
    kept = [position for position in range(len(slots)) if position not in stale]
    found = [-1] * len(slots)
    of_kept = shard_of([slots[position] for position in kept], num_inserted, len(indices))
    for position, owner in zip(kept, of_kept, strict=True):
        found[position] = owner
    return found


def parcels(
    streams: Sequence[int], owners: Sequence[int], *, num_rows: int, sizes: Sequence[int] = ()
) -> list[Parcel]:
    """One parcel for each shard that owns a page.

    Args:
      streams, owners: of each page; an owner of -1 for one that is not stored.
      num_rows: I, at least as many as there are pages; the rows beyond are padding.
      sizes: numbers of rows that there are programs for, ascending; only I if empty.
    """
    shards = sorted(set(owners) - {-1})
    if len(shards) == 1:  # they go as they lie, which costs nothing if they are on its device
        kept = [stream if owner >= 0 else -1 for stream, owner in zip(streams, owners, strict=True)]
        return [Parcel(shards[0], (), kept + [-1] * (num_rows - len(kept)))]
    found = []
    for shard in shards:
        own = [position for position, owner in enumerate(owners) if owner == shard]
        size = next((size for size in sizes if size >= len(own)), num_rows)
        padding = size - len(own)
        rows = own + own[:1] * padding
        found.append(Parcel(shard, rows, [streams[row] for row in own] + [-1] * padding))
    return found


def plan_parcels(
    shards: ShardedReplay,
    streams: Sequence[int],
    slots: Sequence[int],
    num_rows: int,
    stale: Sequence[int] = (),
) -> list[tuple[Parcel, Tree]]:
    """The parcels of pages that have arrived, each with its shard's plan, as if already done."""
    found = parcels(
        streams,
        owners(shards.indices, shards.experience.shard_of, slots, stale),
        num_rows=num_rows,
        sizes=shards.page_rows,
    )
    return [(parcel, shards.indices[parcel.shard].plan(parcel.streams)) for parcel in found]


def insert_parcels(
    programs: MappedPrograms,
    replay: Tree,
    pages: Page | tuple[()],
    planned: Sequence[tuple[Parcel, Tree]],
) -> Tree:
    """The replay `[n, ...]` with the pages of each parcel in its shard. Consumes `replay`.

    Args:
      pages: leaves `[I, ...]`, on any device.
      planned: each parcel with its shard's plan for it, see `Index.plan`.
    """
    # Only the devices that own pages have work, and none waits for another.
    shards = shards_of(replay, len(programs.devices))
    for parcel, plan in planned:
        own: Tree = pages
        if parcel.rows:
            own = programs.pick(pages, np.asarray(parcel.rows, np.int32))
        # The insertion's output stays on that device.
        own = _on(programs.devices[parcel.shard], own)
        shards[parcel.shard] = programs.insert(shards[parcel.shard], own, plan)
    return shards[0] if len(shards) == 1 else jax.tree.map(_joined, replay, *shards)


def _on(device: jax.Device, pages: Tree) -> Tree:
    # Handing over pages that are there already takes 0.4 ms, longer than all else.
    leaves = jax.tree.leaves(pages)
    is_there = leaves and isinstance(leaves[0], jax.Array) and leaves[0].devices() == {device}
    return pages if is_there else jax.device_put(pages, device)


def shards_of(replay: Tree, num_shards: int) -> list[Tree]:
    # Leaves [1, ...], in the buffers of `replay`.
    if num_shards == 1:
        return [replay]  # taking apart and joining takes 0.3 ms
    return [
        jax.tree.map(lambda leaf, shard=shard: leaf.addressable_data(shard), replay)
        for shard in range(num_shards)
    ]


def compile_insertion(
    programs: MappedPrograms, replay: Tree, shards: ShardedReplay, page: Page
) -> None:
    """Compiles all that `insert_parcels` may run, without running it; for any thread.

    `replay` and `page` are shapes: the arrays are consumed meanwhile.
    """
    insert, pick, page_rows = cast(Any, programs.insert), cast(Any, programs.pick), shards.page_rows
    shapes = _shapes_of_shards(replay, programs.devices)
    for rows in page_rows:
        for device, shard, index in zip(programs.devices, shapes, shards.indices, strict=True):
            pages = rows_on(device, page, rows)
            # A plan of padding only changes nothing in the index, which another thread uses.
            insert.lower(shard, pages, index.plan([-1] * rows)).compile()
        for source in programs.inference if shards.is_mixed else ():
            arrived = rows_on(source, page, rows)
            for picked in page_rows[: page_rows.index(rows) + 1]:
                pick.lower(arrived, np.zeros(picked, np.int32)).compile()


def _shapes_of_shards(replay: Tree, devices: Sequence[jax.Device]) -> list[Tree]:
    if len(devices) == 1:
        return [replay]
    shard = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), replay)
    return [rows_on(device, shard, 1) for device in devices]


def _joined(like: jax.Array, *parts: jax.Array) -> jax.Array:
    return jax.make_array_from_single_device_arrays(like.shape, like.sharding, parts)
