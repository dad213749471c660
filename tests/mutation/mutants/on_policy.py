"""Bugs in V-trace, in GAE, in IMPALA and PPO, and in the on-policy queue."""

from tests.mutation.mutant import Mutant

_VTRACE = "seedrl/rl/vtrace.py"
_IMPALA = "seedrl/agents/impala.py"
_GAE = "seedrl/rl/gae.py"
_SURROGATE = "seedrl/rl/surrogate.py"
_PPO = "seedrl/agents/ppo.py"
_PIECES = "seedrl/agents/inputs.py"
_MEMORY = "seedrl/replay/buffer.py"
_INDEX = "seedrl/replay/index.py"
_DISTRIBUTIONS = "seedrl/rl/distributions.py"

MUTANTS = (
    Mutant(
        "vtrace_correction_one_row_late",
        _VTRACE,
        "ahead = jnp.concatenate([corrections[1:], jnp.zeros((1, batch_size))])",
        "ahead = corrections",
        "The advantage takes the correction of its own row for that of the next.",
    ),
    Mutant(
        "vtrace_bootstraps_past_last",
        _VTRACE,
        "jnp.where(is_trained, jnp.exp(jnp.where(is_trained, log_ratios, 0.0)), 0.0)",
        "jnp.exp(log_ratios)",
        "A LAST row bootstraps from the next episode.",
    ),
    Mutant(
        "ratio_upside_down",
        _IMPALA,
        "log_ratios = jax.lax.stop_gradient(log_policy) - steps.extras[:num_steps]",
        "log_ratios = steps.extras[:num_steps] - jax.lax.stop_gradient(log_policy)",
        "The ratio is μ / π.",
    ),
    Mutant(
        "entropy_is_minimised",
        _IMPALA,
        "- entropy_cost * entropy",
        "+ entropy_cost * entropy",
        "The loss punishes entropy.",
    ),
    Mutant(
        "gae_bootstraps_past_last",
        _GAE,
        "advantage = jnp.where(is_trained, delta + decay * later, 0.0)",
        "advantage = delta + decay * later",
        "A LAST row bootstraps from the next episode.",
    ),
    Mutant(
        "clipped_gain_is_the_larger",
        _SURROGATE,
        "return jnp.minimum(ratios * advantages, clipped * advantages)",
        "return clipped * advantages",
        "A ratio that has gone too far the wrong way has no gradient back.",
    ),
    Mutant(
        "targets_of_the_new_critic",
        _PPO,
        "squares = jnp.square(output.value - estimated.targets)",
        "fresh = estimated.advantages + jax.lax.stop_gradient(output.value)\n"
        "    squares = jnp.square(output.value - fresh)",
        "Each minibatch has targets of its own, by the newest critic.",
    ),
    Mutant(
        "choices_that_an_element_lacks_are_likely",
        _DISTRIBUTIONS,
        "constant_values=-jnp.inf)",
        "constant_values=0.0)",
        "Elements with fewer choices are padded with choices that may be drawn.",
    ),
    Mutant(
        "density_of_the_likeliest_element",
        _DISTRIBUTIONS,
        "return jnp.sum(self._parts().log_probability(action), axis=-1)",
        "return jnp.max(self._parts().log_probability(action), axis=-1)",
        "The log-probability of several actions is that of one of them.",
    ),
    Mutant(
        "entropy_of_an_average_element",
        _DISTRIBUTIONS,
        "return jnp.sum(self._parts().entropy(), axis=-1)",
        "return jnp.mean(self._parts().entropy(), axis=-1)",
        "The entropy of several actions is too small by their number.",
    ),
    Mutant(
        "pieces_begin_as_their_sequence",
        _PIECES,
        "return network.unroll(params, carry, chunk)[1], carry",
        "return carry, carry",
        "Every piece has the carry that its sequence began with.",
    ),
    Mutant(
        "sequence_trained_twice",
        _INDEX,
        "np.array([self._waiting.popleft() for _ in range(number)], np.int32)",
        "np.array([*self._waiting][:number], np.int32)",
        "A batch stays in the queue and is drawn again.",
    ),
    Mutant(
        "queue_not_time_major",
        _MEMORY,
        "jnp.swapaxes(pool[draw], 0, 1)",
        "jnp.reshape(pool[draw], (pool.shape[1], draw.shape[0], *pool.shape[2:]))",
        "Rows of several sequences are mixed.",
    ),
    Mutant(
        "age_of_the_newest_row",
        "learner/acting/loop.py",
        "self._versions[batch.slots[batch.positions == 0]] = versioned.version",
        "self._versions[batch.slots] = versioned.version",
        "A sequence is as old as its last row: one that took for ever to fill is trained.",
    ),
)
