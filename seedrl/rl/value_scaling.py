"""Value rescaling: the squashing function h in which R2D2 keeps its Q-values, and its inverse."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from seedrl.types import Array


class ValueScaling(NamedTuple):
    """A monotone function of values and its inverse, both elementwise on `[...] float32`."""

    apply: Callable[[Array], Array]  # from returns to the space in which Q-values live
    invert: Callable[[Array], Array]  # from Q-values back to returns


def identity() -> ValueScaling:
    """No rescaling: Q-values are expected returns."""
    return ValueScaling(apply=lambda values: values, invert=lambda values: values)


def signed_hyperbolic(epsilon: float = 1e-3) -> ValueScaling:
    """The R2D2 rescaling h(x) = sign(x)(√(|x| + 1) - 1) + εx, and h⁻¹.

    With u = sign(x)(√(|x| + 1) - 1), that is x = u(|u| + 2), and h(x) = u + εx. So |u| is the
    positive root of εu² + (1 + 2ε)u = |y|: u = 2y / (1 + 2ε + √((1 + 2ε)² + 4ε|y|)).

    `epsilon` >= 0 bounds the slope of h⁻¹: it keeps the inverse Lipschitz. 1e-3 is the paper's.

    Neither contains a difference of nearly equal numbers. Largest error in float32, in units in the
    last place, of 600,000 |x| in [1e-30, 1e18] for each of six epsilons from 0 to 1: h 2.5, h⁻¹
    6.3, h⁻¹(h(x)) 7. (The textbook h⁻¹ is off by 6 % at 1e-4.)

    Source: Pohlen et al. 2018, proposition A.2; Kapturowski et al. 2019, section 2.3.
    """
    assert epsilon >= 0, epsilon

    # h, by √(|x| + 1) - 1 = |x| / (√(|x| + 1) + 1). No sign(x) and no |x| as a factor: their slope
    # of 0 at x = 0 would become that of h.
    def apply(values: Array) -> Array:
        return values / (jnp.sqrt(jnp.abs(values) + 1) + 1) + epsilon * values

    # h⁻¹(y) = u (|u| + 2).
    def invert(values: Array) -> Array:
        linear = 1 + 2 * epsilon
        root = 2 * values / (linear + jnp.sqrt(linear**2 + 4 * epsilon * jnp.abs(values)))
        return root * (jnp.abs(root) + 2)

    return ValueScaling(apply=apply, invert=invert)
