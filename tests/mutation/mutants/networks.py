"""Bugs in the network's memory: recurrent state, previous action and reward, frame stack."""

from tests.mutation.mutant import Mutant

_RECURRENT = "seedrl/networks/recurrent.py"
_MODULE = "seedrl/networks/build.py"
_FRAMES = "seedrl/networks/recurrent.py"

MUTANTS = (
    Mutant(
        "state_not_reset",
        _RECURRENT,
        "jnp.where(is_first[:, None], 0.0, leaf)",
        "leaf",
        "The recurrent state is kept over episodes.",
    ),
    Mutant(
        "previous_action_kept_over_episodes",
        _MODULE,
        "return jnp.concatenate([features, jnp.where(continues, history, 0)], axis=-1)",
        "return jnp.concatenate([features, action, jnp.where(continues, reward, 0)], axis=-1)",
        "The first step of an episode sees the last action of the one before.",
    ),
    Mutant(
        "frames_not_cleared",
        _FRAMES,
        "belongs = since_first >= age",
        "belongs = since_first >= 0",
        "The stack still holds frames of the episode before.",
    ),
)
