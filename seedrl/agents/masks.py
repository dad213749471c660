"""Action masks: which discrete actions an observation allows.

A mask is a part of the observation (`EnvSpec`): it is sent, stored and sampled with it, and each
time step, the bootstrapping one included, has its own. Networks do not see it. In one place, where
their output is made, the Q-values or logits of forbidden actions become -inf. Whatever an agent
computes of its output then follows without further code:

- the greedy action of acting, evaluation and double Q-learning is legal, and so is the Q-value that
  a target bootstraps from: no -inf is ever looked up, or reaches the rescaling h;
- the softmax gives forbidden actions probability 0, so draws, log-probabilities, ratios and the
  entropy are those of the policy over the legal actions;
- a selection passes no gradient to the outputs that it drops, so it is 0 there, and finite.

Only epsilon-greedy's uniform action needs the mask itself. The mean advantage of a dueling head is
over all actions, forbidden ones too: it only fixes which part of Q is called V, so the Q-values of
legal actions can still be any numbers, and networks need no mask.
"""

import jax.numpy as jnp

from seedrl.networks.network import Network, NetworkInput, PolicyAndValue
from seedrl.specs import ACTION_MASK, has_mask, without_mask
from seedrl.types import Array, Tree


def legal_actions(observation: Tree) -> Array | None:
    """`[..., A] bool`, True for actions that may be taken; None for observations without a mask.

    A mask that forbids all actions counts as one that allows all. Only padding and the last
    observation of a terminated episode have one: its action is ignored, and its value is multiplied
    by a discount of 0, which needs a finite number.
    """
    if not has_mask(observation):
        return None
    mask = observation[ACTION_MASK]
    return mask | ~jnp.any(mask, axis=-1, keepdims=True)


def masked(network: Network) -> Network:
    """`network`, built for observations without their mask, for those that have one.

    Its output, Q-values `[T, B, A]` or a `PolicyAndValue`, has -inf for forbidden actions.
    """

    def unroll(params: Tree, carry: Tree, inputs: NetworkInput) -> tuple[Tree, Tree]:
        legal = legal_actions(inputs.observation)
        seen = inputs._replace(observation=without_mask(inputs.observation))
        output, carry = network.unroll(params, carry, seen)
        if legal is None:  # taken out already, by a network around this one
            return output, carry
        if isinstance(output, PolicyAndValue):
            # The value is of the state, whatever may be done in it.
            logits = jnp.where(legal, output.logits, -jnp.inf)
            return output._replace(logits=logits), carry
        return jnp.where(legal, output, -jnp.inf), carry

    return network._replace(unroll=unroll)
