"""Bugs in Ape-X: its rows, its targets, its priorities; and in action masks."""

from tests.mutation.mutant import Mutant

_RETURNS = "seedrl/rl/returns.py"
_APEX = "seedrl/agents/apex.py"
_WINDOW = "seedrl/agents/window.py"
_MASKS = "seedrl/agents/masks.py"

MUTANTS = (
    Mutant(
        "transition_bootstraps_past_last",
        _RETURNS,
        "is_end = jnp.concatenate([step_type[1:n_steps] == StepType.LAST, no_later])",
        "is_end = jnp.concatenate([step_type[1:n_steps] > StepType.LAST, no_later])",
        "A truncated return bootstraps from a row of the next episode.",
    ),
    Mutant(
        "frames_before_the_transition_left_out",
        _APEX,
        """    if earlier_steps:
""",
        """    if earlier_steps > 10_000:
""",
        "Learning sees the newest frame alone, and zeros for those before it.",
    ),
    Mutant(
        "last_transition_of_a_page_reaches_beyond_the_chain",
        _WINDOW,
        "last_start = (self.starts_in_page(page_steps) - 1) * self.stride",
        "last_start = 0",
        "Sequences that end in the next page can be sampled before it is there.",
    ),
    Mutant(
        "mask_dropped_from_q_values",
        _MASKS,
        "return jnp.where(legal, output, -jnp.inf), carry",
        "return output, carry",
        "Targets bootstrap from the best of all actions, forbidden ones too.",
    ),
    Mutant(
        "mask_of_the_step_before",
        _MASKS,
        "legal = legal_actions(inputs.observation)",
        "legal = jnp.roll(legal_actions(inputs.observation), 1, axis=0)",
        "A time step, the bootstrapping one too, has the mask of the one before it.",
    ),
    Mutant(
        "random_action_without_the_mask",
        "seedrl/agents/r2d2.py",
        "action = epsilon_greedy(key, q_values, exploration, legal)",
        "action = epsilon_greedy(key, q_values, exploration)",
        "The random action of epsilon-greedy is any action.",
    ),
)
