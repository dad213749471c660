"""Bugs in V-trace, in IMPALA and in the on-policy queue."""

from tests.mutation.mutant import Mutant

_VTRACE = "seedrl/rl/vtrace.py"
_IMPALA = "seedrl/agents/impala_functions.py"
_MEMORY = "seedrl/replay/queue_memory.py"
_INDEX = "seedrl/replay/queue_index.py"
_LIMITER = "seedrl/replay/queue_limiter.py"

MUTANTS = (
    Mutant(
        "vtrace_correction_one_row_late",
        _VTRACE,
        "ahead = jnp.concatenate([corrections[1:], jnp.zeros((1, batch_size))])",
        "ahead = corrections",
        "The advantage takes the correction of its own row for that of the next.",
        "q_t is made of v_{t+1} (Espeholt et al. 2018, section 4.2)",
    ),
    Mutant(
        "vtrace_trace_of_the_next_row",
        _VTRACE,
        "decays = discount * settings.trace_lambda * weights.c",
        "decays = discount * settings.trace_lambda * jnp.roll(weights.c, -1, axis=0)",
        "Traces are cut by the ratio of the next row.",
        "c_s to c_{t-1} weight δ_t (Espeholt et al. 2018, equation 1)",
    ),
    Mutant(
        "vtrace_bootstraps_past_last",
        _VTRACE,
        "jnp.where(is_trained, jnp.exp(jnp.where(is_trained, log_ratios, 0.0)), 0.0)",
        "jnp.exp(log_ratios)",
        "A LAST row bootstraps from the next episode.",
        "nothing crosses the end of an episode (DESIGN 4)",
    ),
    Mutant(
        "vtrace_baselines_bootstrap_past_last",
        _VTRACE,
        "ones = is_trained.astype(ratios.dtype)",
        "ones = jnp.ones_like(ratios)",
        "Without correction a LAST row bootstraps from the next episode.",
        "nothing crosses the end of an episode (DESIGN 4)",
    ),
    Mutant(
        "vtrace_truncation_is_termination",
        _VTRACE,
        "discount = settings.gamma * timesteps.discount[1:]",
        "discount = settings.gamma * (timesteps.step_type[1:] != StepType.LAST)",
        "A truncated episode is taken for one that terminated.",
        "truncation bootstraps (DESIGN 4)",
    ),
    Mutant(
        "vtrace_lambda_left_out_of_the_advantage",
        _VTRACE,
        "returns = reward + discount * (values[1:] + settings.trace_lambda * ahead)",
        "returns = reward + discount * (values[1:] + ahead)",
        "The advantage takes v of the next row whatever λ is: SEED RL's way.",
        "on policy the advantage is GAE(λ)",
    ),
    Mutant(
        "behaviour_is_the_greedy_action",
        _IMPALA,
        "extras=log_probability(logits, action),",
        "extras=log_probability(logits, jnp.argmax(logits, axis=-1).astype(jnp.int32)),",
        "The log-probability of the likeliest action is stored, not of the executed one.",
        "with unchanged parameters every ratio is 1",
    ),
    Mutant(
        "ratio_upside_down",
        _IMPALA,
        "log_ratios = jax.lax.stop_gradient(log_policy) - steps.extras[:num_rows]",
        "log_ratios = steps.extras[:num_rows] - jax.lax.stop_gradient(log_policy)",
        "The ratio is μ / π.",
        "the ratio is π / μ (Espeholt et al. 2018, section 4.1)",
    ),
    Mutant(
        "entropy_is_minimised",
        _IMPALA,
        "- objective.entropy_cost * parts.entropy",
        "+ objective.entropy_cost * parts.entropy",
        "The loss punishes entropy.",
        "the entropy of the policy is maximised (Espeholt et al. 2018, section 4.2)",
    ),
    Mutant(
        "ignored_actions_trained",
        _IMPALA,
        "entropy=jnp.mean(trained * _entropy(logits)),",
        "entropy=jnp.mean(weights[None] * _entropy(logits)),",
        "The entropy of rows counts whose action is ignored.",
        "an action taken on LAST is ignored (DESIGN 4)",
    ),
    Mutant(
        "sequence_trained_twice",
        _INDEX,
        "np.array([self._waiting.popleft() for _ in range(self._batch)], np.int32)",
        "np.array([*self._waiting][: self._batch], np.int32)",
        "A batch stays in the queue and is drawn again.",
        "each sequence is trained exactly once",
    ),
    Mutant(
        "newest_sequence_first",
        _INDEX,
        "self._waiting.popleft()",
        "self._waiting.pop()",
        "The newest sequences are drawn first.",
        "in order of arrival",
    ),
    Mutant(
        "waiting_sequences_overwritten",
        _INDEX,
        "places = (self._num_inserted + np.cumsum(is_ours) - 1) % self._capacity",
        "places = (self._num_drawn + np.cumsum(is_ours) - 1) % self._capacity",
        "What arrives is written over what waits.",
        "each sequence is trained exactly once",
    ),
    Mutant(
        "queue_not_time_major",
        _MEMORY,
        "jnp.swapaxes(pool[draw], 0, 1)",
        "jnp.reshape(pool[draw], (pool.shape[1], draw.shape[0], *pool.shape[2:]))",
        "Rows of several sequences are mixed.",
        "a sequence is consecutive steps of one stream (DESIGN 6)",
    ),
    Mutant(
        "queue_forgets_what_is_on_its_way",
        _LIMITER,
        "return self.completed - self.taken < self.ahead_updates * self._batch",
        "return self.held < self.ahead_updates * self.batch_per_device",
        "Acting waits for what has arrived alone, and what is on its way is not bounded.",
        "acting is ahead by `replay.ahead_updates` at most",
    ),
    Mutant(
        "queue_dealt_by_slot",
        "seedrl/replay/queue.py",
        "            shard_of=by_turns,\n",
        "",
        "A shard whose slots are slow stops the others for ever.",
        "at every moment acting or learning may continue",
    ),
)
