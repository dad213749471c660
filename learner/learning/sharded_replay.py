"""Experience over several devices: the memory of each, and what the host knows of all of them."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from seedrl.replay.experience import Index, no_accounts
from seedrl.replay.index import by_slot, none_stale
from seedrl.types import Tree


class ShardedReplay(NamedTuple):
    """The replay over n devices.

    Attributes:
      memory: on the devices, leaves `[n, ...]`.
      indices: what the host knows of each shard.
      page_steps: K.
      most_pages: that may arrive at once.
      page_rows: numbers of pages that there are insertion programs for, ascending; whatever arrives
        if empty.
      is_mixed: whether pages that arrive together may belong to several shards.
      starts_in_page: sequences that start in a page, at most.
      example_draw, shard_of, accounts, stale: see `Experience`.
    """

    memory: Tree
    indices: Sequence[Index]
    page_steps: int
    most_pages: int
    page_rows: Sequence[int] = ()
    is_mixed: bool = True
    starts_in_page: int = 1
    example_draw: Tree = ()
    shard_of: Callable[[Sequence[int], int, int], list[int]] = by_slot
    accounts: Callable[[Any], Mapping[str, int]] = no_accounts
    stale: Callable[[Sequence[int], int, int], Sequence[int]] = none_stale

    def rows_by_account(self) -> dict[str, int]:
        """Rows of stored pages by what has become of them, where the replay counts that."""
        counted: Counter[str] = Counter()
        for index in self.indices:
            counted.update(self.accounts(index))
        return {name: pages * self.page_steps for name, pages in counted.items()}
