"""Floating-point operations of a computation, counted in what it says rather than in what it takes.

Matrix products and convolutions only: everything else is small beside them. XLA's own count takes
the body of a loop once, however often it runs.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr

# What programs are lowered for has other names than jax's backends have.
_PLATFORMS = {"gpu": ("cuda", "rocm")}


def count_flops(function: Callable[..., Any], *arguments: Any) -> int:
    """Operations of `function(*arguments)`, of which only shapes and dtypes matter.

    A multiplication and an addition are two. What no result depends on doesn't count. Of a
    conditional's branches the longest counts, or that of this platform; a loop of unknown length
    counts as one round.
    """
    jaxpr = jax.make_jaxpr(function)(*arguments).jaxpr
    return _count(jaxpr, [True] * len(jaxpr.outvars))


def _count(jaxpr: Jaxpr, are_used: Sequence[bool]) -> int:
    flops = 0
    used = set(map(id, itertools.compress(jaxpr.outvars, are_used)))
    for equation in reversed(jaxpr.eqns):
        outputs = [id(variable) in used for variable in equation.outvars]
        if any(outputs):
            used |= set(map(id, equation.invars))
            flops += _of_equation(equation, outputs)
    return flops


def _of_equation(equation: Any, are_used: Sequence[bool]) -> int:
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
    counts = [_count(inner, _used_inside(name, inner, are_used)) for inner in _inner(parameters)]
    if name == "cond":
        return _of_branches(counts, parameters.get("branches_platforms"))
    return sum(counts) * int(parameters.get("length", 1) if name == "scan" else 1)


def _used_inside(name: str, inner: Jaxpr, are_used: Sequence[bool]) -> Sequence[bool]:
    """Which results of `inner` are used, where the equation around it has those of `are_used`."""
    # A round of a loop may use what nothing uses afterwards.
    if name in ("scan", "while") or len(inner.outvars) != len(are_used):
        return [True] * len(inner.outvars)
    return are_used


def _of_branches(counts: Sequence[int], platforms: Sequence[Sequence[str] | None] | None) -> int:
    """`platforms`: those of each branch, None for all others; None if they do not choose it."""
    if platforms is None:
        return max(counts)
    backend = jax.default_backend()
    here = _PLATFORMS.get(backend, (backend,))
    return next(
        count
        for count, names in zip(counts, platforms, strict=True)
        if names is None or not set(names).isdisjoint(here)
    )


def _inner(parameters: dict[str, Any]) -> Iterator[Jaxpr]:
    for value in parameters.values():
        for item in value if isinstance(value, tuple | list) else (value,):
            if isinstance(item, ClosedJaxpr):
                yield item.jaxpr
            elif isinstance(item, Jaxpr):
                yield item
