"""Flashbax's prioritised buffers, as its documentation advises: jitted, the state donated.

`items`: every sequence is an item of its own, with its carry. `trajectory`: sequences are cut from
streams and share the rows in which they overlap; no carry, which would be stored with every row.
`trajectory, time-major`: the same, and what is drawn is `[T, B, ...]`, as a scan over time takes
it.

The first command describes `capacity` sequences of `length` rows, one starting every `stride` rows;
`batch` of them are drawn and `inserted` brought at a time. `steps` and `carry` are the leaves of a
row and of what is stored once a sequence: `{name: [shape, dtype]}`. Then `{"measure": name,
"seconds": s}` is answered with `{"rate": r}`.
"""

import time
from collections.abc import Callable
from typing import Any

import flashbax
import jax
import jax.numpy as jnp
import numpy as np
from answering import commands

_PRIORITY_EXPONENT = 0.9
Arrays = dict[str, np.ndarray]


def prepare(command: dict[str, Any]) -> dict[str, Callable[[], float]]:
    """A full buffer of that layout, and what can be measured with it."""
    inserted, batch = command["inserted"], command["batch"]
    name, _, order = command["layout"].partition(", ")
    buffer, example, added = {"items": items, "trajectory": trajectory}[name](command)
    state = buffer.init(jax.tree.map(jnp.asarray, example))
    data = jax.device_put(added)
    add = jax.jit(buffer.add, donate_argnums=0)

    # Keys are split inside, as in ours.
    @jax.jit
    def sample(state: Any, key: jax.Array) -> Any:
        key, now = jax.random.split(key)
        drawn = buffer.sample(state, now)
        return (_ordered(drawn.experience, order), drawn.indices, drawn.probabilities), key

    def draw_and_update(state: Any, key: jax.Array) -> tuple[Any, Any, jax.Array]:
        key, now = jax.random.split(key)
        drawn = buffer.sample(state, now)
        state = buffer.set_priorities(state, drawn.indices, drawn.probabilities + 1.0)
        return state, _ordered(drawn.experience, order), key

    update = jax.jit(draw_and_update, donate_argnums=0)
    key = jax.random.PRNGKey(0)

    def insert_once() -> float:
        nonlocal state
        state = add(state, data)
        jax.block_until_ready(state)
        return inserted

    def sample_once() -> float:
        nonlocal key
        drawn, key = sample(state, key)
        jax.block_until_ready(drawn)
        return batch

    def update_once() -> float:
        nonlocal state, key
        state, experience, key = update(state, key)
        jax.block_until_ready(experience)
        return batch

    for _ in range(-(-command["capacity"] // inserted) + 4):
        insert_once()
    for warm_up in (sample_once, update_once):
        warm_up()
    return {"insert": insert_once, "sample": sample_once, "update": update_once}


def _ordered(experience: Any, order: str) -> Any:
    if order != "time-major":
        return experience
    return jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), experience)


def items(command: dict[str, Any]) -> tuple[Any, Arrays, Arrays]:
    """One item a sequence: the buffer, an example, and what one insertion brings."""
    buffer = flashbax.make_prioritised_trajectory_buffer(
        add_batch_size=command["inserted"],
        sample_batch_size=command["batch"],
        sample_sequence_length=1,
        period=1,
        min_length_time_axis=1,
        max_length_time_axis=-(-command["capacity"] // command["inserted"]),
        priority_exponent=_PRIORITY_EXPONENT,
        device=jax.default_backend(),
    )
    steps = noise(command["steps"], command["inserted"], 1, command["length"])
    added = {**steps, **noise(command["carry"], command["inserted"], 1)}
    return buffer, _first(added), added


def trajectory(command: dict[str, Any]) -> tuple[Any, Arrays, Arrays]:
    """As many streams as sequences are inserted at a time, a stride of each: see `items`."""
    streams, stride = command["inserted"], command["stride"]
    buffer = flashbax.make_prioritised_trajectory_buffer(
        add_batch_size=streams,
        sample_batch_size=command["batch"],
        sample_sequence_length=command["length"],
        period=stride,
        min_length_time_axis=command["length"],
        max_length_time_axis=-(-command["capacity"] // streams) * stride,
        priority_exponent=_PRIORITY_EXPONENT,
        device=jax.default_backend(),
    )
    added = noise(command["steps"], streams, stride)
    return buffer, _first(added), added


def _first(arrays: Arrays) -> dict[str, np.ndarray]:
    return {name: array[0, 0] for name, array in arrays.items()}


def noise(leaves: dict[str, Any], *leading: int) -> Arrays:
    """Arrays that cannot be compressed: `[*leading, *shape]` of every leaf."""
    random = np.random.default_rng(0)

    def fill(shape: list[int], dtype: str) -> np.ndarray:
        full = (*leading, *shape)
        if np.issubdtype(np.dtype(dtype), np.floating):
            return random.standard_normal(full, np.float32).astype(dtype)
        return random.integers(0, 256 if dtype == "uint8" else 2, full).astype(dtype)

    return {name: fill(shape, dtype) for name, (shape, dtype) in leaves.items()}


def rate(work: Callable[[], float], seconds: float) -> float:
    """Repeats `work`, which returns how much it did, for `seconds`; amount per second."""
    start = time.perf_counter()
    amount = work()
    while (elapsed := time.perf_counter() - start) < seconds:
        amount += work()
    return amount / elapsed


def main() -> None:
    lines = commands()
    command, answer = next(lines)
    works = prepare(command)
    answer(ready=True)
    for command, answer in lines:
        answer(rate=rate(works[command["measure"]], command["seconds"]))


if __name__ == "__main__":
    main()
