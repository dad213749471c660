import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedrl.agents.agent import no_initial_priorities, replace_actor_params
from seedrl.errors import ConfigError
from seedrl.types import StoredStep


def test_a_behaviour_goes_back_to_where_it_was_selected() -> None:
    params = {"actor": (np.zeros(2), np.ones(3)), "critic": np.full(4, 2.0)}
    new = (np.full(2, 7.0), np.full(3, 8.0))
    replaced = replace_actor_params(lambda params: params["actor"], params, new)
    expected = {"actor": new, "critic": params["critic"]}
    assert jax.tree.all(jax.tree.map(np.array_equal, replaced, expected))
    assert replace_actor_params(lambda params: params, params, expected)["actor"][0] is new[0]


def test_prioritized_replay_refuses_an_agent_without_initial_priorities() -> None:
    steps = StoredStep((), jnp.zeros((2, 3)), (), ())
    with pytest.raises(ConfigError) as caught:
        no_initial_priorities(steps)
    assert str(caught.value).startswith("replay: ")
