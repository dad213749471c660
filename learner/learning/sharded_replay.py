"""Experience over several devices: the memory of each, and what the host knows of all of them."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from seedrl.replay.experience import Index, by_slot, no_accounts, unknown_stream
from seedrl.types import Tree


class ShardedReplay(NamedTuple):
    """The replay over n devices.

    Attributes:
      memory: on the devices, leaves `[n, ...]`.
      indices: what the host knows of each shard.
      page_steps: K.
      most_pages: that may arrive at once.
      example_draw, stream_of, shard_of, accounts: see `Experience`.
    """

    memory: Tree
    indices: Sequence[Index]
    page_steps: int
    most_pages: int
    example_draw: Tree = ()
    stream_of: Callable[[Any, int], int] = unknown_stream
    shard_of: Callable[[Sequence[int], int, int], list[int]] = by_slot
    accounts: Callable[[Any], Mapping[str, int]] = no_accounts

    def plan(self, streams: Sequence[int], slots: Sequence[int], rows: int) -> Tree:
        """A plan per shard, `[n, ...]`, for I = `rows` pages of which the last may be padding."""
        num_shards = len(self.indices)
        num_inserted = sum(index.num_inserted for index in self.indices)
        padding = [-1] * (rows - len(streams))
        streams = [*streams, *padding]
        owners = [*self.shard_of(slots, num_inserted, num_shards), *padding]
        plans = [
            index.plan(
                [
                    stream if owner == shard else -1
                    for stream, owner in zip(streams, owners, strict=True)
                ]
            )
            for shard, index in enumerate(self.indices)
        ]
        return jax.tree.map(lambda *shards: np.stack(shards), *plans)

    def draw(self) -> Tree:
        """What each shard's index draws, `[n, ...]`."""
        draws = [index.draw() for index in self.indices]
        return jax.tree.map(lambda *shards: np.stack(shards), *draws)

    def rows_by_account(self) -> dict[str, int]:
        """Rows of stored pages by what has become of them, where the replay counts that."""
        counted: Counter[str] = Counter()
        for index in self.indices:
            counted.update(self.accounts(index))
        return {name: pages * self.page_steps for name, pages in counted.items()}
