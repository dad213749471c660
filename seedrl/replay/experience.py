"""What stands between acting and learning: experience as any replay or queue keeps it.

A configuration's `replay` builds an `Experience`: what the device does (`Memory`, pure functions),
what the host knows (`Index`, one per shard), and when either side waits (`Limiter`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from seedrl.agents.window import WindowSpec
from seedrl.errors import ConfigError
from seedrl.replay.index import by_slot
from seedrl.replay.rate_limiter import Limiter
from seedrl.types import Array, Page, StoredStep, Tree
from seedrl.types import Sequence as Unroll

# Acting fills pages on its device and hands them over through a queue. From there on the learning
# thread owns them: only it inserts, draws and writes back, so that no array here needs a lock.


class Batch(NamedTuple):
    """What one device trains on."""

    sequence: Unroll  # leaves `[T, B, ...]`, carry leaves `[B, ...]`; T is the window's length
    weights: Array  # `[B] float32`, how much each sequence counts
    indices: Tree  # of the sequences: what `Memory.write_back` wants back


class Memory(NamedTuple):
    """The experience of one device: pure, jittable functions with static shapes."""

    # `page -> state`, empty, from one example page (leaves `[K, ...]`, carry leaves `[...]`).
    init: Callable[[Page], Tree]
    # `(state, pages, plan) -> state`; leaves `[I, ...]`, plan from `Index.plan`. Consumes `state`.
    insert: Callable[[Tree, Page, Tree], Tree]
    # `(state, draw, key, largest) -> Batch`; `draw` from `Index.draw`. `largest` gives the maximum
    # of a scalar over all devices.
    sample: Callable[[Tree, Tree, Array, Callable[[Array], Array]], Batch]
    # `(state, indices, priorities [B] float32) -> state`. A priority of NaN is none: nothing
    # changes. One of 0 says that nothing can be learned from the sequence.
    write_back: Callable[[Tree, Tree, Array], Tree]


class Index(Protocol):
    """The host's side of one shard. Owned by the thread that learns."""

    # That can be drawn once the last plan has been carried out.
    @property
    def num_sequences(self) -> int: ...
    # Pages inserted so far.
    @property
    def num_inserted(self) -> int: ...
    # Share of the pages that there is room for that is held, 0 to 1.
    @property
    def fill(self) -> float: ...
    # True if `num_pages` more pages can be inserted. Until they can, acting waits.
    def has_room(self, num_pages: int) -> bool: ...
    # Where pages go, leaves `[..., I]`; takes it as done. See `PageIndex.plan`.
    def plan(self, streams: Sequence[int] | np.ndarray) -> Tree: ...
    # The stream was cut: nothing more arrives of it.
    def end_stream(self, stream: int) -> None: ...
    # What the next update trains on, leaves `[B]`; `()` if the device decides.
    def draw(self) -> Tree: ...
    # Everything needed to resume, as plain JSON-able values.
    def state(self) -> dict[str, Any]: ...
    # Inverse of `state`. Raises ValueError if that was written with another geometry.
    def restore(self, state: Mapping[str, Any]) -> None: ...


class Experience(NamedTuple):
    """What a replay is made of."""

    memory: Memory  # on each device
    index: Callable[[], Index]  # type: ignore[assignment]  # the empty one of a shard
    limiter: Limiter  # as at the start of a run
    example_draw: Tree = ()  # shapes and dtypes of `Index.draw`, as numpy arrays
    # `(slots, num_inserted, num_shards) -> [I]`: the shard of each of I pages, in order, of which
    # `num_inserted` have arrived before, over all shards.
    shard_of: Callable[[Sequence[int], int, int], list[int]] = by_slot
    # `index -> {account: pages}`: what the ledger is to know of pages that are stored.
    accounts: Callable[[Any], Mapping[str, int]] = lambda index: {}
    # `(versions [I], updates, num_waiting) -> positions` of those of I pages, in order, that are
    # too old to be taken in: `versions` acted on their first time steps, `updates` have been taken,
    # and `num_waiting` sequences can be drawn, over all shards.
    stale: Callable[[Sequence[int], int, int], Sequence[int]] = lambda *_: ()


class Scale(NamedTuple):
    """The sizes of a run, which its replay must fit."""

    num_devices: int  # n, that learn, on all hosts
    batch_per_device: int  # B/n
    training_slots: int  # of all devices
    device_bytes: int  # memory of each device
    device_name: str  # for messages
    publish_every_updates: int = 1  # how many updates acting may be behind in ordinary use
    process_count: int = 1  # hosts that share all of this evenly
    # An update has what one round has filled, a page of each training slot whose environment is not
    # disabled: the synchronous schedule.
    in_rounds: bool = False

    @property
    def of_host(self) -> "Scale":
        """The sizes of one host's part: what is not shared, it has by itself."""
        return self._replace(
            num_devices=self.num_devices // self.process_count,
            training_slots=-(-self.training_slots // self.process_count),
            process_count=1,
        )

    def require_memory(self, field: str, num_bytes: int, advice: str) -> None:
        """Raises ConfigError, which names the field, if a device has fewer bytes."""
        if num_bytes > self.device_bytes:
            raise ConfigError(
                f"{field}: expected to fit {self.device_name}, which has "
                f"{self.device_bytes / 2**30:.1f} GiB, got {num_bytes / 2**30:.1f} GiB on each "
                f"device; {advice}"
            )


class ExperienceConfig(Protocol):
    """What a configuration's `replay` must offer: a frozen dataclass that builds an Experience."""

    # K, the steps of a page.
    def steps_of_page(self, window: WindowSpec) -> int: ...
    # Raises ConfigError, before anything starts, for what cannot work.
    def check(self, window: WindowSpec, *, training_slots: int, total_steps: int) -> None: ...
    # The experience of a run, whose sizes are `scale`, for pages like `page`. Raises ConfigError if
    # the devices cannot hold it.
    def build(
        self,
        window: WindowSpec,
        *,
        page: Page,
        initial_priorities: Callable[[StoredStep], Array] | None,
        scale: Scale,
    ) -> Experience: ...
