"""Bugs in the decoder, in its cache, in the objective of tokens, and in GRPO."""

from tests.mutation.mutant import Mutant

_DECODER = "seedrl/networks/decoder.py"
_TOKENS = "seedrl/rl/tokens.py"
_SURROGATE = "seedrl/rl/surrogate.py"
_GRPO = "seedrl/agents/grpo.py"

MUTANTS = (
    Mutant(
        "cache_row_one_token_late",
        _DECODER,
        "is_past = places[None] < cache.lengths[:, None]",
        "is_past = places[None] <= cache.lengths[:, None]",
        "A query also sees what the row held before its reset.",
    ),
    Mutant(
        "padding_of_a_chunk_is_cached",
        _DECODER,
        "places = jnp.where(offsets < counts[:, None], positions, config.context)",
        "places = positions",
        "Rows that get nothing are changed.",
    ),
    Mutant(
        "logits_of_the_end_of_a_chunk",
        _DECODER,
        "last = jnp.maximum(counts - 1, 0)",
        "last = jnp.full_like(counts, ids.shape[1] - 1)",
        "The logits follow the padding of a chunk, not its last token.",
    ),
    Mutant(
        "positions_of_a_chunk_from_zero",
        _DECODER,
        "positions = part.lengths[:, None] + offsets",
        "positions = jnp.broadcast_to(offsets, ids.shape)",
        "Every turn is rotated as if it were the first.",
    ),
    Mutant(
        "queries_share_the_wrong_keys",
        _DECODER,
        "grouped = query.reshape(batch, num_tokens, key.shape[2], -1, dim)",
        "grouped = query.reshape(batch, num_tokens, -1, key.shape[2], dim).swapaxes(2, 3)",
        "Neighbouring query heads have different key heads.",
    ),
    Mutant(
        "log_mu_at_temperature_one",
        _TOKENS,
        "jnp.where(draws, policy.log_probability(ids), 0.0)",
        "jnp.where(draws, Categorical(logits).log_probability(ids), 0.0)",
        "What is stored is not of the distribution that was sampled.",
    ),
    Mutant(
        "leave_one_out_of_all",
        _TOKENS,
        "centred = centred * (size / (size - 1))",
        "centred = centred * 1.0",
        "Leave-one-out compares with a mean that has the sequence itself.",
    ),
    Mutant(
        "capped_ratio_without_gradient",
        _SURROGATE,
        "log_ratios = log_ratios - jax.lax.stop_gradient(excess)",
        "log_ratios = log_ratios - excess",
        "A bad token that has become far more likely is not pushed back.",
    ),
    Mutant(
        "one_bound_for_both_sides",
        _SURROGATE,
        "jnp.clip(ratios, 1.0 - clip_low, 1.0 + clip_high)",
        "jnp.clip(ratios, 1.0 - clip_low, 1.0 + clip_low)",
        "The upper bound of the clip is the lower one's.",
    ),
    Mutant(
        "tokens_of_the_environment_are_trained",
        _GRPO,
        "is_policy = source[:, 1:] == POLICY",
        "is_policy = source[:, 1:] != PADDING",
        "The policy learns to write what the environment wrote.",
    ),
    Mutant(
        "loss_mask_one_token_early",
        _GRPO,
        "is_policy = source[:, 1:] == POLICY",
        "is_policy = source[:, :-1] == POLICY",
        "The mask is of the token that was read, not of the one that was predicted.",
    ),
    Mutant(
        "groups_without_spread_dilute",
        _GRPO,
        "is_trained = is_counted & jnp.repeat(has_spread, config.group)[:, None]",
        "is_trained = is_counted",
        "Groups that teach nothing count in the mean.",
    ),
    Mutant(
        "divergence_to_the_reference_rewarded",
        _GRPO,
        'total += config.kl * distances["reference_kl"]',
        'total -= config.kl * distances["reference_kl"]',
        "The policy is driven away from the reference.",
    ),
)
