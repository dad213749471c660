"""Operations counted by hand."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from tests.benchmarks.flops import count_flops


def test_a_matrix_product() -> None:
    left, right = jnp.ones((3, 4)), jnp.ones((4, 5))
    assert count_flops(jnp.matmul, left, right) == 2 * 3 * 4 * 5


def test_a_batch_of_products_contracts_one_axis() -> None:
    left, right = jnp.ones((7, 3, 4)), jnp.ones((7, 4, 5))
    assert count_flops(jnp.matmul, left, right) == 7 * 2 * 3 * 4 * 5


def test_a_convolution() -> None:
    images, kernel = jnp.ones((2, 84, 84, 4)), jnp.ones((8, 8, 4, 32))

    def convolve(images: jax.Array, kernel: jax.Array) -> jax.Array:
        return jax.lax.conv_general_dilated(
            images, kernel, (4, 4), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    assert count_flops(convolve, images, kernel) == 2 * (2 * 20 * 20 * 32) * (8 * 8 * 4)


def test_a_loop_counts_each_round_and_what_is_jitted_inside() -> None:
    matrix = jnp.ones((4, 4))

    @jax.jit
    def body(carry: jax.Array, _: None) -> tuple[jax.Array, None]:
        return carry @ matrix, None

    assert count_flops(lambda x: jax.lax.scan(body, x, None, length=10)[0], matrix) == 10 * 2 * 64


def test_of_branches_the_longest_counts() -> None:
    def choose(x: jax.Array) -> jax.Array:
        return jax.lax.cond(x.sum() > 0, lambda y: y @ y @ y, lambda y: y, x)

    assert count_flops(choose, jnp.ones((4, 4))) == 2 * 2 * 64


@pytest.mark.parametrize(("backend", "products"), [("cpu", 1), ("gpu", 2), ("tpu", 1)])
def test_of_branches_by_platform_this_one_counts(
    monkeypatch: pytest.MonkeyPatch, backend: str, products: int
) -> None:
    def choose(x: jax.Array) -> jax.Array:
        return jax.lax.platform_dependent(x, cuda=lambda y: y @ y @ y, default=lambda y: y @ y)

    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    assert count_flops(choose, jnp.ones((4, 4))) == products * 2 * 64


def test_what_no_result_depends_on_does_not_count() -> None:
    @jax.jit
    def both(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        return x @ x, x @ x @ x

    assert count_flops(lambda x: both(x)[0], jnp.ones((4, 4))) == 2 * 64


def test_what_only_later_rounds_of_a_loop_use_counts() -> None:
    def body(carry: tuple[jax.Array, jax.Array], _: None) -> Any:
        _, passed_on = carry
        return (passed_on, passed_on @ passed_on), None

    start = (jnp.ones((4, 4)), jnp.ones((4, 4)))
    assert count_flops(lambda x: jax.lax.scan(body, x, None, length=10)[0][0], start) == 10 * 128


def test_elementwise_work_does_not_count() -> None:
    assert count_flops(jnp.tanh, jnp.ones((4, 4))) == 0
