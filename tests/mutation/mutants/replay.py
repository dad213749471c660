"""Bugs in the paged replay, in priorities and in importance weights."""

from tests.mutation.mutant import Mutant

_INDEX = "seedrl/replay/index.py"
_REPLAY = "seedrl/replay/buffer.py"
_PLACEMENT = "seedrl/replay/buffer.py"
_PRIORITIES = "seedrl/rl/priorities.py"
_IMPORTANCE = "seedrl/rl/priorities.py"

MUTANTS = (
    Mutant(
        "link_from_wrong_page",
        _INDEX,
        "previous = entry.serials[-1] if entry.serials else None",
        "previous = entry.serials[0] if entry.serials else None",
        "A page is linked to an older page than its predecessor.",
    ),
    Mutant(
        "completed_one_page_early",
        _INDEX,
        "first_page = entry.num_pages - self._pages_per_sequence\n",
        "first_page = entry.num_pages - self._pages_per_sequence + 1\n",
        "A sequence can be sampled before its last page is there.",
    ),
    Mutant(
        "cut_stream_goes_on",
        _INDEX,
        "        self._streams.pop(int(stream), None)\n",
        "        int(stream)\n",
        "The index keeps streams that were cut.",
    ),
    Mutant(
        "evicted_sequence_keeps_mass",
        _REPLAY,
        'weights = state.sampling_weight.at[sequences_of(page)].set(0.0, mode="drop")',
        "weights = state.sampling_weight",
        "What was overwritten can still be sampled.",
    ),
    Mutant(
        "padding_page_inserted",
        _PLACEMENT,
        'pool[None].at[0, index].set(new, mode="drop")[0]',
        'pool[None].at[0, index].set(new, mode="clip")[0]',
        "Padding overwrites the last page of the pool.",
    ),
    Mutant(
        "rows_off_by_one",
        _REPLAY,
        "offset = rows % page_steps",
        "offset = (rows + 1) % page_steps",
        "A sequence's rows are rotated within each page.",
    ),
    Mutant(
        "sampled_carries_swapped",
        _REPLAY,
        'lambda pool: pool.at[index // starts_in_page].get(mode="clip"), state.pages.carry',
        'lambda pool: pool.at[index[::-1] // starts_in_page].get(mode="clip"), state.pages.carry',
        "Sequences of a batch get each other's carry.",
    ),
    Mutant(
        "uniform_sampling",
        _REPLAY,
        "stratified_draw(state.sampling_weight, key, batch_size)",
        "stratified_draw((state.sampling_weight > 0).astype(jnp.float32), key, batch_size)",
        "Priorities are ignored.",
    ),
    Mutant(
        "priority_to_wrong_sequence",
        _REPLAY,
        'weights = state.sampling_weight.at[index].set(new, mode="drop")',
        'weights = state.sampling_weight.at[index[::-1]].set(new, mode="drop")',
        "New priorities are written to other sequences of the batch.",
    ),
    Mutant(
        "update_revives_evicted",
        _REPLAY,
        "new = jnp.where((new > 0) & (old > 0), new, old)",
        "new = jnp.where(new > 0, new, old)",
        "An update makes a page sampleable in which no sequence starts.",
    ),
    Mutant(
        "alpha_not_applied",
        _PRIORITIES,
        "weight = jnp.power(jnp.where(is_positive, priority, 1.0), exponent)",
        "weight = jnp.where(is_positive, priority, 1.0)",
        "Priorities are not raised to alpha.",
    ),
    Mutant(
        "nan_priority_stored",
        _PRIORITIES,
        "is_valid = jnp.isfinite(priority) & (priority >= 0)",
        "is_valid = ~(priority < 0)",
        "A priority that is not a number enters.",
    ),
    Mutant(
        "weight_exponent_sign",
        _IMPORTANCE,
        "is_drawn, -exponent * jnp.log(",
        "is_drawn, exponent * jnp.log(",
        "Importance weights grow with the probability.",
    ),
    Mutant(
        "probability_not_normalised",
        "seedrl/replay/sampling.py",
        "return index, sampling_weight[index] / jnp.where(total > 0, total, 1.0)",
        "return index, sampling_weight[index]",
        "A draw reports its mass instead of its probability.",
    ),
)
