"""Value rescaling: the squashing function h in which R2D2 keeps its Q-values, and its inverse."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from seedrl.types import Array


class ValueScaling(NamedTuple):
    """A monotone function of values and its inverse, both elementwise on `[...] float32`.

    Attributes:
      apply: from returns to the space in which Q-values live.
      invert: from Q-values back to returns.
    """

    apply: Callable[[Array], Array]
    invert: Callable[[Array], Array]


def identity() -> ValueScaling:
    """No rescaling: Q-values are expected returns."""
    return ValueScaling(apply=_unchanged, invert=_unchanged)


def signed_hyperbolic(epsilon: float = 1e-3) -> ValueScaling:
    """The R2D2 rescaling h(x) = sign(x)(√(|x| + 1) - 1) + εx, and h⁻¹.

    Both are written without the difference of nearly equal numbers that the textbook forms contain.
    With a = |x|: √(a + 1) - 1 = a / (√(a + 1) + 1). With b = |y| and s = √(1 + 4ε(b + 1 + ε)), the
    root u = √(|x| + 1) - 1 of εu² + (1 + 2ε)u = b is u = 2b(1 - 2ε / (s + 1 + 2ε)) / (s + 1), and
    |x| = u(u + 2).

    `epsilon` >= 0 bounds the slope of h⁻¹: it keeps the inverse Lipschitz. 1e-3 is the paper's.
    Raises ValueError for a negative epsilon.

    Relative error in float32: at most 3e-7 for |x| in [1e-6, 1e6] (measured against float64 in the
    tests). The inverse's relative condition number is at most 2, so h⁻¹(h(x)) is good to 8e-7.

    Source: Pohlen et al. 2018, proposition A.2; Kapturowski et al. 2019, section 2.3.
    """
    if epsilon < 0:
        raise ValueError(f"value scaling epsilon: expected a number >= 0, got {epsilon}")

    def apply(values: Array) -> Array:
        return values * (1 / (jnp.sqrt(jnp.abs(values) + 1) + 1) + epsilon)

    def invert(values: Array) -> Array:
        size = jnp.abs(values)
        root = jnp.sqrt(1 + 4 * epsilon * (size + 1 + epsilon))
        step = 2 * size * (1 - 2 * epsilon / (root + 1 + 2 * epsilon)) / (root + 1)
        return jnp.sign(values) * step * (step + 2)

    return ValueScaling(apply=apply, invert=invert)


def _unchanged(values: Array) -> Array:
    return values
