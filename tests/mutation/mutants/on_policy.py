"""Bugs in V-trace, in GAE, in IMPALA and PPO, and in the on-policy queue."""

from tests.mutation.mutant import Mutant

_VTRACE = "seedrl/rl/vtrace.py"
_IMPALA = "seedrl/agents/impala_functions.py"
_GAE = "seedrl/rl/gae.py"
_SURROGATE = "seedrl/rl/surrogate.py"
_PPO = "seedrl/agents/ppo/functions.py"
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
        "extras=categorical.log_probability(logits, action),",
        "extras=categorical.log_probability(logits, jnp.argmax(logits, -1).astype(jnp.int32)),",
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
        "entropy=jnp.mean(trained * categorical.entropy(logits)),",
        "entropy=jnp.mean(weights[None] * categorical.entropy(logits)),",
        "The entropy of rows counts whose action is ignored.",
        "an action taken on LAST is ignored (DESIGN 4)",
    ),
    Mutant(
        "gae_bootstraps_past_last",
        _GAE,
        "advantage = jnp.where(is_trained, delta + decay * later, 0.0)",
        "advantage = delta + decay * later",
        "A LAST row bootstraps from the next episode.",
        "nothing crosses the end of an episode (DESIGN 4)",
    ),
    Mutant(
        "gae_truncation_is_termination",
        _GAE,
        "discount = gamma * timesteps.discount[1:]",
        "discount = gamma * (timesteps.step_type[1:] != StepType.LAST)",
        "A truncated episode is taken for one that terminated.",
        "truncation bootstraps (DESIGN 4)",
    ),
    Mutant(
        "gae_targets_of_the_new_row",
        _GAE,
        "advantages + values[:-1], is_trained)",
        "advantages + values[1:], is_trained)",
        "Value targets take the value of the next row.",
        "the target is A + V (Schulman et al. 2017)",
    ),
    Mutant(
        "advantage_normalized_over_the_wrong_axis",
        _SURROGATE,
        "centred = advantages - mean_of(advantages, is_trained)",
        "centred = advantages - jnp.mean(advantages, axis=0, where=is_trained, keepdims=True)",
        "Advantages of each sequence are centred apart.",
        "advantages are normalised over all rows of a minibatch",
    ),
    Mutant(
        "ignored_rows_dilute_means",
        _SURROGATE,
        "count = jnp.maximum(jnp.sum(is_trained, dtype=jnp.float32), 1.0)",
        "count = jnp.float32(is_trained.size)",
        "Means are divided by all rows, those of ignored actions too.",
        "an action taken on LAST is ignored (DESIGN 4)",
    ),
    Mutant(
        "clipped_gain_is_the_larger",
        _SURROGATE,
        "return jnp.minimum(ratios * advantages, clipped * advantages)",
        "return clipped * advantages",
        "A ratio that has gone too far the wrong way has no gradient back.",
        "the lesser of both (Schulman et al. 2017, equation 7)",
    ),
    Mutant(
        "value_clip_takes_the_nearer",
        _SURROGATE,
        "return jnp.maximum(square, jnp.square(near - targets))",
        "return jnp.square(near - targets)",
        "A value that is far from its old one is not drawn back.",
        "the larger of both squares (Huang et al. 2022, detail 9)",
    ),
    Mutant(
        "advantages_of_the_new_critic",
        _PPO,
        "estimated = _advantages(objective, steps.extras.value, steps.timestep)\n"
        "    output, _ = network.unroll(params, sequence.carry.network, "
        "inputs_of_sequence(sequence))\n",
        "output, _ = network.unroll(params, sequence.carry.network, "
        "inputs_of_sequence(sequence))\n"
        "    estimated = _advantages(objective, output.value, steps.timestep)\n",
        "Each minibatch has advantages of its own, by the newest critic.",
        "all epochs share the same advantages",
    ),
    Mutant(
        "ppo_stores_the_greedy_action",
        _PPO,
        "extras=Acted(policy.log_probability(said, action), said.value),",
        "extras=Acted(policy.log_probability(said, policy.drawn(said, 0 * exploration, key)), "
        "said.value),",
        "The log-probability of the likeliest action is stored, not of the executed one.",
        "with unchanged parameters every ratio is 1",
    ),
    Mutant(
        "gaussian_without_its_deviation",
        "seedrl/rl/gaussian.py",
        "0.5 * jnp.square(distance) + log_std + 0.5",
        "0.5 * jnp.square(distance) + 0.5",
        "The density of an action is that of a deviation of 1.",
        "ln N(a; μ, σ²) has -ln σ",
    ),
    Mutant(
        "next_batch_is_stopped_too",
        _PPO,
        "has_stopped = is_far | (state.extras == state.updates)",
        "has_stopped = is_far | (state.extras >= 0)",
        "Once a batch was stopped, nothing is learned any more.",
        "what remains of a batch is left out",
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
