import jax
import numpy as np

from seedrl.agents.agent import replace_actor_params


def test_a_behaviour_goes_back_to_where_it_was_selected() -> None:
    params = {"actor": (np.zeros(2), np.ones(3)), "critic": np.full(4, 2.0)}
    new = (np.full(2, 7.0), np.full(3, 8.0))
    replaced = replace_actor_params(lambda params: params["actor"], params, new)
    expected = {"actor": new, "critic": params["critic"]}
    assert jax.tree.all(jax.tree.map(np.array_equal, replaced, expected))
    assert replace_actor_params(lambda params: params, params, expected)["actor"][0] is new[0]
