"""Sizes of a prioritized replay, and what it refuses."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from seedrl.agents.window import WindowSpec
from seedrl.errors import ConfigError
from seedrl.replay.experience import Experience, Scale
from seedrl.replay.index import PageIndex
from seedrl.replay.prioritized import ReplayConfig
from seedrl.replay.rate_limiter import RatioLimiter
from seedrl.types import Array, Page, StoredStep, TimeStep

CONFIG = ReplayConfig(capacity_steps=1000, min_steps=400, ratio=0.5, tolerance_updates=3.0)
WINDOW = WindowSpec(burn_in=10, unroll=20, bootstrap=5, stride=10)
SCALE = Scale(
    num_devices=2, batch_per_device=6, training_slots=8, device_bytes=2**30, device_name="a device"
)


def _page(observation_bytes: int, page_steps: int = 10) -> Page:
    def leaf(dtype: str, *shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((page_steps, *shape), dtype)

    timestep = TimeStep(
        leaf("uint8"), leaf("float32"), leaf("float32"), leaf("uint8", observation_bytes)
    )
    step = StoredStep(timestep, leaf("int32"), leaf("int32"), ())
    return Page(step, jax.ShapeDtypeStruct((3,), "float32"))


def _ones(steps: StoredStep) -> Array:
    return jnp.ones(steps.action.shape[1])


def _build(config: ReplayConfig = CONFIG, *, page: Page | None = None) -> Experience:
    page = page or _page(7, config.steps_of_page(WINDOW))
    return config.build(WINDOW, page=page, initial_priorities=_ones, scale=SCALE)


def test_the_replay_is_shared_out_among_the_devices() -> None:
    experience = _build()
    index = experience.index()
    # 1000 steps in pages of the stride, 10, half on each device.
    assert index.state()["capacity_pages"] == CONFIG.capacity_pages(WINDOW, 2) == 50
    state = jax.eval_shape(lambda: experience.memory.init(_page(7)))
    num_bytes = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
    # 10 rows of 1 + 4 + 4 + 7 + 4 + 4 bytes, a carry of 12, a link and a mass.
    assert num_bytes == 50 * (10 * 24 + 12 + 8)
    assert index.draw() == experience.example_draw == ()
    assert index.has_room(10**9)  # the oldest make room


def test_the_limiter_counts_trained_rows_of_all_devices() -> None:
    limiter = _build().limiter
    assert isinstance(limiter, RatioLimiter)
    assert limiter.batch_steps == 2 * 6 * 20
    assert (limiter.replay_ratio, limiter.tolerance_updates) == (0.5, 3.0)
    # A sequence of 35 rows reaches into 4 pages: of 400 steps 8 * 3 * 10 are not yet in a complete
    # one. The other 160 are the starts of 16 sequences, half of them on each device.
    assert limiter.min_sequences == 8


@pytest.mark.parametrize(
    ("page_steps", "stride", "length", "capacity_steps", "num_slots"),
    [(32, 1, 4, 10_000, 32), (40, 40, 120, 12_000, 16), (10, 40, 120, 12_000, 16)],
)
def test_learning_starts_and_goes_on_where_all_of_a_replay_is_the_minimum(
    page_steps: int, stride: int, length: int, capacity_steps: int, num_slots: int
) -> None:
    window = WindowSpec(burn_in=0, unroll=length - 3, bootstrap=3, stride=stride)
    config = ReplayConfig(
        page_steps=page_steps, capacity_steps=capacity_steps, min_steps=capacity_steps
    )
    config.check(window, training_slots=num_slots, total_steps=10**9)
    capacity_pages = config.capacity_pages(window, 1)
    index = PageIndex(capacity_pages=capacity_pages, window=window, page_steps=page_steps)
    least = config.min_sequences(window, training_slots=num_slots, num_devices=1)
    for round_ in range(3 * capacity_pages // num_slots):
        index.plan(range(num_slots))
        if index.fill == 1.0:
            assert index.num_sequences >= least
        if round_ == 2 * capacity_pages // num_slots:  # all env servers connect again
            for slot in range(num_slots):
                index.end_stream(slot)


@pytest.mark.parametrize(("num_slots", "num_devices"), [(9, 8), (10, 8), (3, 2), (8, 4)])
def test_the_device_with_the_most_slots_has_room_for_their_sequences(
    num_slots: int, num_devices: int
) -> None:
    scale = SCALE._replace(num_devices=num_devices, training_slots=num_slots)
    fullest = -(-num_slots // num_devices)
    least = num_devices * fullest * 4 * 10  # a sequence of 35 rows reaches into 4 pages of 10
    config = dataclasses.replace(CONFIG, capacity_steps=least, min_steps=num_slots * 4 * 10)
    config.check(WINDOW, training_slots=num_slots, total_steps=10**9)
    build = functools.partial(
        dataclasses.replace(config, capacity_steps=least - 1).build,
        WINDOW,
        page=_page(7),
        initial_priorities=_ones,
    )
    with pytest.raises(ConfigError) as caught:
        build(scale=scale)
    assert f"replay.capacity_steps: expected at least {least}: " in str(caught.value)
    experience = config.build(WINDOW, page=_page(7), initial_priorities=_ones, scale=scale)
    shards: list[Any] = [experience.index() for _ in range(num_devices)]
    limiter = experience.limiter
    assert isinstance(limiter, RatioLimiter)
    for round_ in range(8 * fullest):
        for number, shard in enumerate(shards):
            shard.plan(range(number, num_slots, num_devices))
        limiter = limiter.holds([shard.num_sequences for shard in shards])
        if round_ >= 4 * fullest:
            assert limiter.is_ready
            assert all(shard.num_sequences >= fullest for shard in shards)


def test_sequences_may_start_inside_pages_that_have_no_carry() -> None:
    window = WindowSpec(burn_in=0, unroll=1, bootstrap=3, stride=1)
    config = dataclasses.replace(CONFIG, page_steps=16)
    page = _page(7, 16)
    with pytest.raises(ConfigError) as caught:
        config.build(window, page=page, initial_priorities=_ones, scale=SCALE)
    assert "replay.page_steps" in str(caught.value)
    page = page._replace(carry=())
    experience = config.build(window, page=page, initial_priorities=_ones, scale=SCALE)
    state = jax.eval_shape(lambda: experience.memory.init(page))
    assert (state.next.shape, state.sampling_weight.shape) == ((31,), (31 * 16,))
    # The last of a page ends in the next: of 400 steps 8 * 16 are not yet in a complete one.
    assert experience.limiter == dataclasses.replace(CONFIG).build(  # a page of one step
        window, page=_page(7, 1), initial_priorities=_ones, scale=SCALE
    ).limiter._replace(min_sequences=(400 - 8 * 16) // 2)


def test_an_agent_without_initial_priorities_is_refused_before_it_acts() -> None:
    build = functools.partial(CONFIG.build, WINDOW, page=_page(7), scale=SCALE)
    with pytest.raises(ConfigError) as caught:
        build(initial_priorities=None)
    assert str(caught.value).startswith("replay: ")


def test_a_replay_that_no_device_can_hold_is_refused_with_what_would_fit() -> None:
    page = _page(2**22)
    with pytest.raises(ConfigError) as caught:
        _build(page=page)
    assert "replay.capacity_steps" in str(caught.value)
    fitting = int(str(caught.value).split("at most ")[1].split(" steps")[0])
    assert fitting == pytest.approx(2 * 256, rel=0.01)
    _build(dataclasses.replace(CONFIG, capacity_steps=fitting - 20), page=page)
