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
        "the carry is reset on FIRST (DESIGN 4)",
    ),
    Mutant(
        "state_reset_one_step_late",
        _RECURRENT,
        """            hidden, cell = _reset(carry, is_first_t)
            gates = projected_t.astype(jnp.float32) + _product(hidden, kernel)
            i, f, g, o = jnp.split(jnp.tanh(gates * slope) * slope + offset, 4, axis=-1)
            cell = f * cell + i * g
            hidden = o * jnp.tanh(cell)
            return LSTMCarry(hidden, cell), hidden
""",
        """            hidden, cell = carry
            gates = projected_t.astype(jnp.float32) + _product(hidden, kernel)
            i, f, g, o = jnp.split(jnp.tanh(gates * slope) * slope + offset, 4, axis=-1)
            cell = f * cell + i * g
            hidden = o * jnp.tanh(cell)
            return _reset(LSTMCarry(hidden, cell), is_first_t), hidden
""",
        "The recurrent state is reset after FIRST was consumed.",
        "reset before the observation is consumed (DESIGN 4)",
    ),
    Mutant(
        "previous_action_kept_over_episodes",
        _MODULE,
        "return jnp.concatenate([features, jnp.where(continues, history, 0)], axis=-1)",
        "return jnp.concatenate([features, action, jnp.where(continues, reward, 0)], axis=-1)",
        "The first step of an episode sees the last action of the one before.",
        "the carry is reset on FIRST (DESIGN 4)",
    ),
    Mutant(
        "previous_reward_kept_over_episodes",
        _MODULE,
        "return jnp.concatenate([features, jnp.where(continues, history, 0)], axis=-1)",
        "return jnp.concatenate([features, jnp.where(continues, action, 0), reward], axis=-1)",
        "The first step of an episode sees a reward.",
        "the carry is reset on FIRST (DESIGN 4)",
    ),
    Mutant(
        "frames_not_cleared",
        _FRAMES,
        "belongs = since_first >= age",
        "belongs = since_first >= 0",
        "The stack still holds frames of the episode before.",
        "the carry is reset on FIRST (DESIGN 4)",
    ),
    Mutant(
        "frames_cleared_one_row_late",
        _FRAMES,
        "belongs = since_first >= age",
        "belongs = since_first >= age - 1",
        "The stack holds one frame of the episode before.",
        "the carry is reset on FIRST (DESIGN 4)",
    ),
    Mutant(
        "frames_in_reverse",
        _FRAMES,
        "oldest_first = jnp.moveaxis(previous_frames[:, ::-1], 1, 0)",
        "oldest_first = jnp.moveaxis(previous_frames, 1, 0)",
        "The previous frames come back in reverse order.",
        "replaying reproduces acting (DESIGN 9.3)",
    ),
)
