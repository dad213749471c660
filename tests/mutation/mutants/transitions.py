"""Bugs in Ape-X: its rows, its targets, its priorities."""

from tests.mutation.mutant import Mutant

_RETURNS = "seedrl/rl/returns.py"
_APEX = "seedrl/agents/apex.py"
_REPLAY = "seedrl/replay/buffer.py"
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
        "transition_without_importance_weight",
        _APEX,
        "mean = jnp.mean(weights * 0.5 * jnp.square(td.errors[0]))",
        "mean = jnp.mean(0.5 * jnp.square(td.errors[0]))",
        "Transitions that are drawn often count as much as others each time.",
        "weights undo the bias of prioritized sampling (Schaul et al. 2016, section 3.4)",
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
)
