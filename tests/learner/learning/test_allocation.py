"""Whether an update fits a device, by what its compiled program says."""

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from learner.learning.allocation import (
    require_state_memory,
    require_update_memory,
    update_bytes,
)
from seedrl.errors import ConfigError
from seedrl.replay.experience import Scale


def scale(device_bytes: int) -> Scale:
    return Scale(
        num_devices=2,
        batch_per_device=16,
        training_slots=4,
        device_bytes=device_bytes,
        device_name="some device",
        publish_every_updates=1,
    )


def test_what_is_donated_counts_once_and_on_each_device() -> None:
    program: Any = jax.pmap(
        lambda state, stored: (state + 1, stored * 2),
        in_axes=(None, 0),
        out_axes=(None, 0),
        donate_argnums=(0, 1),
        devices=jax.devices()[:2],
    )
    state, stored = jnp.zeros(100, jnp.float32), jnp.zeros((2, 50), jnp.float32)
    needed = update_bytes(program.lower(state, stored).compile())
    assert needed is not None and 4 * 150 <= needed < 4 * 200


def test_an_update_that_no_device_has_memory_for_is_refused_by_field() -> None:
    needs = SimpleNamespace(
        argument_size_in_bytes=5 * 2**30,
        output_size_in_bytes=3 * 2**30,
        alias_size_in_bytes=2 * 2**30,
        temp_size_in_bytes=4 * 2**30,
    )
    compiled = SimpleNamespace(memory_analysis=lambda: needs)
    require_update_memory(compiled, scale(10 * 2**30), 0)
    with pytest.raises(ConfigError) as caught:
        require_update_memory(compiled, scale(10 * 2**30), 1)
    assert "learning.batch_sequences: an update of 16 sequences needs 10.0" in str(caught.value)


def test_parameters_that_no_device_has_memory_for_are_refused_before_they_are_made() -> None:
    shapes = {"a": jax.ShapeDtypeStruct((2**20, 1024), jnp.float32), "b": jax.random.key(0)}
    require_state_memory(shapes, scale(5 * 2**30))
    with pytest.raises(ConfigError, match="^agent: "):
        require_state_memory(shapes, scale(4 * 2**30))
