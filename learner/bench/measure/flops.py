"""Floating-point operations of a computation, counted in what it says rather than in what it takes.

Matrix products and convolutions only: everything else is small beside them. XLA's own count takes
the body of a loop once, however often it runs.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr


def count_flops(function: Callable[..., Any], *arguments: Any) -> int:
    """Operations of `function(*arguments)`, of which only shapes and dtypes matter.

    A multiplication and an addition are two. Of a conditional's branches the longest counts; a loop
    of unknown length counts as one round.
    """
    return _count(jax.make_jaxpr(function)(*arguments).jaxpr)


def _count(jaxpr: Jaxpr) -> int:
    return sum(_of_equation(equation) for equation in jaxpr.eqns)


def _of_equation(equation: Any) -> int:
    name, parameters = equation.primitive.name, equation.params
    if name == "dot_general":
        (contracted, _), _ = parameters["dimension_numbers"]
        left = equation.invars[0].aval.shape
        return (
            2 * math.prod(equation.outvars[0].aval.shape) * math.prod(left[i] for i in contracted)
        )
    if name == "conv_general_dilated":
        kernel = equation.invars[1].aval.shape
        outputs = parameters["dimension_numbers"].rhs_spec[0]
        per_output = math.prod(kernel) // kernel[outputs]
        return 2 * math.prod(equation.outvars[0].aval.shape) * per_output
    counts = [_count(inner) for inner in _inner(parameters)]
    if name == "cond":
        return max(counts, default=0)
    return sum(counts) * int(parameters.get("length", 1) if name == "scan" else 1)


def _inner(parameters: dict[str, Any]) -> Iterator[Jaxpr]:
    for value in parameters.values():
        for item in value if isinstance(value, tuple | list) else (value,):
            if isinstance(item, ClosedJaxpr):
                yield item.jaxpr
            elif isinstance(item, Jaxpr):
                yield item
