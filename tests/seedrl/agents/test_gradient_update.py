"""A step down a gradient is guarded in all that it computes."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from learner.learning.finite_guard import is_all_finite
from seedrl.agents.gradient_update import GradientUpdate, LossOutput


def _times(params: Any, target: Any, sequence: Any, weights: Any, key: Any) -> Any:
    del target, weights, key
    return params * sequence, LossOutput(priorities=(), metrics={})


@pytest.mark.parametrize(
    ("factor", "optimizer", "finite"),
    [
        (3.0, optax.sgd(0.1), [True, True, True]),
        (3.0, optax.scale(np.nan), [True, True, False]),
        (3.0, optax.scale(np.inf), [True, True, False]),
        (np.inf, optax.adam(0.1), [False, False, False]),
    ],
)
def test_loss_gradient_and_step_must_all_be_finite(
    factor: float, optimizer: Any, finite: list[bool]
) -> None:
    update = GradientUpdate(loss=_times, optimizer=optimizer)
    nothing: Any = ()
    state = update.init_state(jnp.ones(()))
    _, output = update(state, jnp.float32(factor), nothing, nothing, mean=lambda tree: tree)
    assert [bool(is_all_finite(number)) for number in output.guarded] == finite
