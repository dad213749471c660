"""What another thread compiles for is what runs."""

import jax
import jax.numpy as jnp

from learner.runtime.shapes import shapes_of
from tests.compilations import compilations


def test_what_is_compiled_for_shapes_runs_without_compiling_again() -> None:
    device = jax.devices()[1]
    for array in (jnp.arange(3.0), jax.device_put(jnp.arange(3.0), device)):
        program = jax.jit(lambda x: 2 * x)
        program.lower(shapes_of(array)).compile()
        with compilations() as names:
            program(array)
        assert names == []


def test_only_an_array_with_a_place_of_its_own_keeps_it() -> None:
    placed = jax.device_put(jnp.arange(3.0), jax.devices()[1])
    found = shapes_of({"open": jnp.arange(3.0), "placed": placed})
    assert found["open"].sharding is None
    assert found["placed"].sharding == placed.sharding
