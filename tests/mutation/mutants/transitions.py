"""Bugs in Ape-X: its rows, its targets, its priorities."""

from tests.mutation.mutant import Mutant

_RETURNS = "seedrl/rl/returns.py"
_APEX = "seedrl/agents/apex.py"
_REPLAY = "seedrl/replay/replay.py"
_WINDOW = "seedrl/agents/window.py"

MUTANTS = (
    Mutant(
        "transition_bootstraps_past_last",
        _RETURNS,
        "is_end = jnp.concatenate([step_type[1:n_steps] == StepType.LAST, no_later])",
        "is_end = jnp.concatenate([step_type[1:n_steps] > StepType.LAST, no_later])",
        "A truncated return bootstraps from a row of the next episode.",
        "n-step sums bootstrap at LAST (DESIGN 4)",
    ),
    Mutant(
        "transition_bootstraps_one_row_early",
        _RETURNS,
        "return 1 + jnp.argmax(is_end, axis=0).astype(jnp.int32)",
        "return jnp.argmax(is_end, axis=0).astype(jnp.int32)",
        "The value is that of the row before the one that the return ends with.",
        "n-step returns (DESIGN 8)",
    ),
    Mutant(
        "transition_of_an_earlier_row",
        _APEX,
        "start = jnp.full(weights.shape, window.burn_in, jnp.int32)",
        "start = jnp.full(weights.shape, 0, jnp.int32)",
        "The Q-values that are corrected are those of the first row of the stacked frames.",
        "δ is of the row whose action was executed",
    ),
    Mutant(
        "frames_before_the_transition_left_out",
        _APEX,
        """    if earlier_steps:
""",
        """    if earlier_steps > 10_000:
""",
        "Learning sees the newest frame alone, and zeros for those before it.",
        "learning sees what acting saw",
    ),
    Mutant(
        "transition_without_double_q",
        _APEX,
        "q_end = q_values(jax.lax.stop_gradient(params), end)",
        "q_end = q_values(target, end)",
        "The target network chooses the action that it values.",
        "double Q-learning (van Hasselt et al. 2016, equation 4)",
    ),
    Mutant(
        "transition_without_importance_weight",
        _APEX,
        "mean = jnp.mean(weights * 0.5 * jnp.square(td.errors[0]))",
        "mean = jnp.mean(0.5 * jnp.square(td.errors[0]))",
        "Transitions that are drawn often count as much as others each time.",
        "weights undo the bias of prioritized sampling (Schaul et al. 2016, section 3.4)",
    ),
    Mutant(
        "last_row_is_worth_a_priority",
        _APEX,
        "return jnp.where(td.is_trained[0], sizes, 0.0)",
        "return sizes",
        "Transitions out of LAST, of which nothing is learned, are drawn again.",
        "a priority of 0 says that nothing can be learned",
    ),
    Mutant(
        "transition_from_the_beginning_of_its_page",
        _REPLAY,
        "start = places % starts_in_page * window.stride",
        "start = places % starts_in_page * 0",
        "All sequences of a page are its first one.",
        "a sequence starts at every stride-th row (DESIGN 6)",
    ),
    Mutant(
        "last_transition_of_a_page_reaches_beyond_the_chain",
        _WINDOW,
        "last_start = (self.starts_in_page(page_steps) - 1) * self.stride",
        "last_start = 0",
        "Sequences that end in the next page can be sampled before it is there.",
        "sampleable when the last row lands (DESIGN 6)",
    ),
    Mutant(
        "evicted_page_keeps_all_but_its_first_transition",
        _REPLAY,
        "return (pages[:, None] * starts_in_page + starts[None]).reshape(-1)",
        "return (pages[:, None] * starts_in_page + starts[None] // starts_in_page).reshape(-1)",
        "Of a page only the first sequence gets a mass, or loses it.",
        "evicting a page invalidates what starts in it (DESIGN 6)",
    ),
    Mutant(
        "no_error_no_priority",
        _APEX,
        "jnp.maximum(jnp.abs(td.errors[0]), _SMALLEST_PRIORITY)",
        "jnp.abs(td.errors[0])",
        "A transition that was once without an error is never drawn again.",
        "every transition keeps a probability above 0 (Schaul et al. 2016, section 3.3)",
    ),
)
