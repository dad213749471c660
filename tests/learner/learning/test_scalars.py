"""Numbers by name, through compiled programs and back."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from learner.learning.scalars import Scalars


def program(x: jax.Array) -> Scalars:
    """A number, its square, and one of another dtype."""
    return Scalars.of({"x": x, "square": x * x, "count": jnp.int32(7)})


def test_numbers_come_out_of_a_program_under_their_names() -> None:
    scalars = jax.jit(program)(3.0)
    assert scalars.fetch() == {"count": 7.0, "square": 9.0, "x": 3.0}
    assert dict(scalars) == scalars.fetch()
    assert len(jax.tree.leaves(scalars)) == 1


def test_they_come_out_of_a_program_of_several_devices() -> None:
    devices = jax.local_devices()[:2]
    mapped = jax.pmap(
        lambda x: program(jax.lax.pmean(x, "device")), "device", out_axes=None, devices=devices
    )
    assert mapped(np.asarray([1.0, 4.0], np.float32)).fetch()["x"] == 2.5


def test_not_a_number_stays_one() -> None:
    assert np.isnan(Scalars.of({"loss": jnp.nan}).fetch()["loss"])


def test_an_unknown_name_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="other"):
        Scalars.of({"loss": jnp.float32(1)})["other"]
