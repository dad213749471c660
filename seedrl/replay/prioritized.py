"""The configuration of prioritized replay."""

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from seedrl.agents.window import WindowSpec
from seedrl.errors import ConfigError
from seedrl.fields import AtLeastOne, Fraction, NonNegativeInt, PositiveFloat, PositiveInt
from seedrl.replay.rate_limiter import RatioLimiter
from seedrl.types import Array, Page, StoredStep

if TYPE_CHECKING:  # imports numpy, which reading a configuration does not wait for
    from seedrl.replay.experience import Experience, Scale


@dataclass(frozen=True, kw_only=True)
class ReplayConfig:
    """Paged prioritized replay on the device.

    Attributes:
      capacity_steps: stored environment steps, over all devices.
      min_steps: environment steps in replay before learning starts. If it is near `capacity_steps`,
        learning starts earlier, because incomplete sequences also take room.
      page_steps: steps of a page; divides the agent's stride. 0 takes the stride. For agents that
        store no recurrent state (Ape-X, SAC without memory) it may be a multiple of the stride:
        sequences then start inside pages, storing costs less, and a step is learned from up to two
        pages later.
      priority_exponent: alpha in P(i) = p_i^alpha / sum p^alpha (Schaul et al. 2016); 0 draws
        uniformly, but for sequences of priority 0, which are drawn last.
      importance_exponent: beta in w_i = (N P(i))^-beta / max w; of no effect where the draw is
        uniform.
      ratio: trained (non-burn-in) steps per training environment step.
      tolerance_updates: number of updates that acting may run ahead of learning before it waits.
    """

    capacity_steps: PositiveInt = 100_000
    min_steps: PositiveInt = 10_000
    page_steps: NonNegativeInt = 0
    priority_exponent: Fraction = 0.9
    importance_exponent: Fraction = 0.6
    ratio: PositiveFloat = 1.0
    # Learning takes a whole update at a time: with a tolerance of less than one, acting would wait
    # for an update that waits for acting.
    tolerance_updates: AtLeastOne = 2.0

    def steps_of_page(self, window: WindowSpec) -> int:
        """K: `page_steps`, or the agent's stride if that is 0."""
        return self.page_steps or window.stride

    def capacity_pages(self, window: WindowSpec, num_devices: int) -> int:
        """P, the pages of one shard."""
        return self.capacity_steps // self.steps_of_page(window) // num_devices

    def min_sequences(self, window: WindowSpec, *, training_slots: int, num_devices: int) -> int:
        """The sequences that each shard must hold before learning starts."""
        page = self.steps_of_page(window)
        # While `min_steps` steps fill up, each training slot has one sequence that is not complete.
        incomplete = training_slots * (window.pages_per_sequence(page) - 1) * page
        # A full replay has whole pages alone, and may have another such sequence of each slot, of a
        # stream that was cut. Both streams may lie across a stride.
        held = self.capacity_pages(window, num_devices) * num_devices * page
        lost = incomplete + 2 * training_slots * max(0, window.stride - page)
        steps = min(self.min_steps, held - lost) - incomplete
        return max(1, steps // window.stride // num_devices)  # nothing is drawn from an empty one

    def check(self, window: WindowSpec, *, training_slots: int, total_steps: int) -> None:
        page = self.steps_of_page(window)
        if window.stride % page and page % window.stride:
            raise ConfigError(
                f"replay.page_steps: a stride of {window.stride} steps is not a whole number of "
                f"pages of {page}; choose a divisor of the stride, or 0 for the stride itself"
            )
        self._require_room(window, ("capacity_steps", "min_steps"), training_slots)
        if self.min_steps > self.capacity_steps:
            raise ConfigError(
                f"replay.min_steps: expected at most replay.capacity_steps ({self.capacity_steps}),"
                f" else learning never starts; got {self.min_steps}"
            )
        if total_steps < self.min_steps:
            raise ConfigError(
                f"learning.total_steps: expected at least replay.min_steps ({self.min_steps}), "
                f"else the run ends before learning starts; got {total_steps}"
            )

    def _require_room(
        self, window: WindowSpec, names: Iterable[str], slots: int, num_devices: int = 1
    ) -> None:
        # With fewer steps every sequence is overwritten before it is complete, or learning may
        # start without one and wait for ever. `slots`: of the device that has most.
        page = self.steps_of_page(window)
        needed = num_devices * slots * window.pages_per_sequence(page) * page
        for name in names:
            if getattr(self, name) < needed:
                raise ConfigError(
                    f"replay.{name}: expected at least {needed}: {slots} training slots on each of "
                    f"{num_devices} devices, times the pages of {page} steps of a sequence of "
                    f"{window.length}; got {getattr(self, name)}"
                )

    def build(
        self,
        window: WindowSpec,
        *,
        page: Page,
        initial_priorities: Callable[[StoredStep], Array] | None,
        scale: "Scale",
    ) -> "Experience":
        from seedrl.replay.buffer import paged_replay, prioritized_memory
        from seedrl.replay.experience import Experience
        from seedrl.replay.index import PageIndex, tree_bytes

        if initial_priorities is None:
            raise ConfigError(
                "replay: expected a replay without priorities, such as QueueConfig of "
                "seedrl.replay.queue, because this agent has no initial priorities"
            )
        page_steps = self.steps_of_page(window)
        capacity_pages = self.capacity_pages(window, scale.num_devices)
        starts_in_page = window.starts_in_page(page_steps)
        if starts_in_page > 1 and tree_bytes(page.carry):
            raise ConfigError(
                f"replay.page_steps: the agent's sequences start every {window.stride} steps, with "
                f"a carry that is stored where a page begins, got pages of {page_steps}; choose "
                f"{window.stride}, or 0"
            )
        fullest = -(-scale.training_slots // scale.num_devices)
        self._require_room(window, ("capacity_steps",), fullest, scale.num_devices)
        # A page has a link, and a sampling weight for each sequence that starts in it.
        page_bytes = tree_bytes(page) + (1 + starts_in_page) * 4
        most = int(scale.device_bytes / page_bytes * page_steps) * scale.num_devices
        advice = f"at most {most} steps would fit, with nothing else beside them"
        scale.require_memory("replay.capacity_steps", capacity_pages * page_bytes, advice)
        replay = paged_replay(
            window=window,
            page_steps=page_steps,
            capacity_pages=capacity_pages,
            priority_exponent=self.priority_exponent,
            initial_priorities=initial_priorities,
        )
        return Experience(
            memory=prioritized_memory(
                replay,
                batch_per_device=scale.batch_per_device,
                importance_exponent=self.importance_exponent,
            ),
            index=functools.partial(
                PageIndex, capacity_pages=capacity_pages, window=window, page_steps=page_steps
            ),
            limiter=RatioLimiter(
                replay_ratio=self.ratio,
                batch_steps=scale.num_devices * scale.batch_per_device * window.unroll,
                tolerance_updates=self.tolerance_updates,
                min_sequences=self.min_sequences(
                    window, training_slots=scale.training_slots, num_devices=scale.num_devices
                ),
            ),
        )
