"""The target network: a copy that follows at intervals."""

import jax
import numpy as np
import pytest

from seedrl.rl.target_network import copied, periodic_copy, polyak_average

ONLINE = jax.device_put({"weight": np.float32([1, 2]), "bias": np.float32(3)})
TARGET = jax.device_put({"weight": np.float32([-1, -2]), "bias": np.float32(-3)})
jitted_copy = jax.jit(periodic_copy, static_argnums=0)


@pytest.mark.parametrize(
    ("updates", "is_due"), [(1, False), (2, False), (3, True), (4, False), (6, True)]
)
def test_the_target_follows_at_every_interval(updates: int, is_due: bool) -> None:
    found = jitted_copy(3, ONLINE, TARGET, np.int32(updates))
    jax.tree.map(np.testing.assert_array_equal, found, ONLINE if is_due else TARGET)


def test_a_copy_shares_no_memory() -> None:
    for original, copy in zip(
        jax.tree.leaves(ONLINE), jax.tree.leaves(copied(ONLINE)), strict=True
    ):
        np.testing.assert_array_equal(copy, original)
        assert copy.unsafe_buffer_pointer() != original.unsafe_buffer_pointer()


def test_a_polyak_average_goes_a_part_of_the_way() -> None:
    found = jax.jit(polyak_average)(0.25, ONLINE, TARGET)
    jax.tree.map(np.testing.assert_allclose, found, {"weight": [-0.5, -1.0], "bias": -1.5})
