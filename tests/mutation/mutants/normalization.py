"""Bugs in the running units in which an agent sees observations and rewards."""

from tests.mutation.mutant import Mutant

_MOMENTS = "seedrl/agents/normalization.py"
_NORMALIZED = "seedrl/agents/normalization.py"

MUTANTS = (
    Mutant(
        "variance_between_batches_left_out",
        _MOMENTS,
        " + (1.0 - weight) * jnp.square(distance)",
        "",
        "What lies between the means of two batches is lost.",
    ),
    Mutant(
        "acting_sees_raw_observations",
        _NORMALIZED,
        "seen = normalized(settings, actor_params, timestep)",
        "seen = timestep",
        "Only learning normalizes.",
    ),
    Mutant(
        "integers_stay_raw",
        _NORMALIZED,
        'is_unbounded = "int" in leaf.dtype and not leaf.low',
        "is_unbounded = False",
        "An integer without bounds, of millions, drowns all other inputs.",
    ),
    Mutant(
        "moments_move_with_each_minibatch",
        _NORMALIZED,
        "return own._replace(params=params._replace(agent=own.params)), output",
        "new = own._replace(params=params._replace(agent=own.params))\n"
        "        return update_statistics(new, sequence, weights, mean)[0], output",
        "A row is counted in every epoch, and seen in other units than it was acted in.",
    ),
    Mutant(
        "initial_priorities_of_raw_rewards",
        _NORMALIZED,
        "timestep = timestep._replace(reward=extras.reward)",
        "pass",
        "New sequences of large rewards crowd out the others.",
    ),
    Mutant(
        "sums_cross_episodes",
        _NORMALIZED,
        "return jnp.where(is_first, 0.0, timestep.reward + gamma * previous)",
        "return timestep.reward + gamma * previous",
        "The rewards of an episode count in the next one.",
    ),
)
