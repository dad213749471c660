"""Mistakes in a Q-network of one's own: each is one line, when it is traced."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from seedrl.errors import ConfigError
from seedrl.networks.contract import build_actor_critic, build_q_network
from seedrl.networks.network import Network, NetworkInput, PolicyAndValue
from seedrl.specs import ArraySpec, DiscreteSpec, EnvSpec

SPEC = EnvSpec(ArraySpec((4,), "float32"), DiscreteSpec(2))
_LINEAR: dict[str, Callable[..., Any]] = {
    "init": lambda key: jnp.ones((4, 2)),
    "initial_carry": lambda size: {"h": jnp.zeros((size, 5))},
    "unroll": lambda params, carry, inputs: (inputs.observation @ params, carry),
}


@dataclass(frozen=True)
class Linear:
    changes: Any = ()

    def build(self, spec: EnvSpec) -> Network:
        return Network(**{**_LINEAR, **dict(self.changes)})


def _run(config: Any, length: int, size: int, build: Any = build_q_network) -> Any:
    """Does with a network what acting and learning do with it, by shapes alone."""

    def run(key: Any) -> Any:
        network = build(config, SPEC, 2)
        zeros = jnp.zeros((length, size))
        inputs = NetworkInput(jnp.zeros((length, size, 4)), zeros.astype(int), zeros, zeros > 0)
        return network.unroll(network.init(key), network.initial_carry(size), inputs)

    return jax.eval_shape(run, jax.random.PRNGKey(0))


def test_a_network_that_keeps_its_contract_is_what_it_was() -> None:
    q_values, carry = _run(Linear(), 6, 3)
    assert (q_values.shape, q_values.dtype.name, carry["h"].shape) == ((6, 3, 2), "float32", (3, 5))


def _raises(params: Any, carry: Any, inputs: Any) -> Any:
    raise KeyError("no such layer")


@pytest.mark.parametrize(
    ("function", "own", "text"),
    [
        # One column for two actions: broadcast, it would train without a word.
        (
            "unroll",
            lambda p, c, i: (i.observation[..., :1], c),
            "unroll (Linear): Q-values: expected float32[6, 3, 2], got float32[6, 3, 1]; that is ",
        ),
        (
            "unroll",
            lambda p, c, i: (jnp.swapaxes(i.observation @ p, 0, 1), c),
            "unroll (Linear): Q-values: expected float32[6, 3, 2], got float32[3, 6, 2]",
        ),
        (
            "unroll",
            lambda p, c, i: ((i.observation @ p).astype(jnp.bfloat16), c),
            "unroll (Linear): Q-values: expected float32[6, 3, 2], got bfloat16[6, 3, 2]",
        ),
        (
            "unroll",
            lambda p, c, i: (c, i.observation @ p),
            "unroll (Linear): Q-values: expected float32[6, 3, 2], got dict(float32[3, 5]); that is"
            " [T, B, A] of 2 actions, and unroll returns (Q-values, carry)",
        ),
        (
            "unroll",
            lambda p, c, i: i.observation @ p,
            "unroll (Linear): expected two results, got float32[6, 3, 2]; unroll returns (Q-",
        ),
        (
            "unroll",
            lambda p, c, i: (i.observation @ p, c, ()),
            "unroll (Linear): expected two results, got 3; unroll returns (Q-values, carry)",
        ),
        (
            "unroll",
            lambda p, c, i: (i.observation @ p, {"h": c["h"].astype(jnp.bfloat16)}),
            "unroll (Linear): carry['h']: expected float32[3, 5], got bfloat16[3, 5]; it must be ",
        ),
        ("unroll", _raises, "unroll (Linear): KeyError: 'no such layer' ("),
        ("unroll", lambda p, c: p, "unroll (Linear): TypeError: <lambda>() takes 2 positional"),
        (
            "initial_carry",
            lambda size: jnp.zeros(5),
            "initial_carry (Linear): expected [3, ...], one row for each of a batch of 3, got ",
        ),
        (
            "init",
            lambda key: ["relu"],
            "init (Linear)[0]: expected an array, got a str",
        ),
    ],
)
def test_what_a_network_of_ones_own_gets_wrong_is_one_line(
    function: str, own: Callable[..., Any], text: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        _run(Linear(((function, own),)), 6, 3)
    assert str(caught.value).startswith(f"agent.network.{text}")


class _Nothing:
    def build(self, spec: EnvSpec) -> Any:
        return lambda x: x


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (Linear, "expected a config with build(spec), got <class '"),
        (None, "expected a config with build(spec), got None; it is an instance of a frozen dat"),
        (_Nothing(), "build (_Nothing): expected a seedrl.networks.network.Network, got a func"),
        (Linear(((3, 4),)), "build (Linear): TypeError: "),
    ],
)
def test_what_is_no_network_is_one_line(config: Any, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build_q_network(config, SPEC, 2)
    assert text in str(caught.value)


def _logits(inputs: Any, num_actions: int = 2) -> Any:
    return jnp.zeros((*inputs.reward.shape, num_actions))


def test_an_actor_critic_that_keeps_its_contract_is_what_it_was() -> None:
    unroll = lambda p, c, i: (PolicyAndValue(_logits(i), i.reward), c)  # noqa: E731
    (logits, value), _ = _run(Linear((("unroll", unroll),)), 6, 3, build_actor_critic)
    assert (logits.shape, value.shape) == ((6, 3, 2), (6, 3))


@pytest.mark.parametrize(
    ("output", "text"),
    [
        (_logits, "unroll (Linear): expected a seedrl.networks.network.PolicyAndValue(logits, "),
        (
            lambda i: PolicyAndValue(_logits(i, 3), i.reward),
            "logits: expected float32[6, 3, 2], got float32[6, 3, 3]; that is [T, B, A] of 2 act",
        ),
        (
            lambda i: PolicyAndValue(_logits(i), i.reward[..., None]),
            "value: expected float32[6, 3], got float32[6, 3, 1]; that is [T, B]",
        ),
    ],
)
def test_what_is_no_policy_and_value_is_one_line(output: Any, text: str) -> None:
    unroll = lambda p, c, i: (output(i), c)  # noqa: E731
    with pytest.raises(ConfigError) as caught:
        _run(Linear((("unroll", unroll),)), 6, 3, build_actor_critic)
    assert text in str(caught.value)
