"""Bugs in SAC: its policy, its targets, its losses."""

from tests.mutation.mutant import Mutant

_POLICY = "seedrl/rl/distributions.py"
_TARGETS = "seedrl/rl/soft_q.py"
_SAC = "seedrl/agents/sac.py"
_TRANSITIONS = "seedrl/agents/sac.py"
_CONFIG = "seedrl/agents/sac.py"

MUTANTS = (
    Mutant(
        "tanh_correction_left_out",
        _POLICY,
        "return jnp.sum(gaussian - log_slope, axis=-1)",
        "return jnp.sum(gaussian, axis=-1)",
        "The log-probability is that of the number before tanh.",
    ),
    Mutant(
        "target_entropy_sign",
        _CONFIG,
        "entropy = -math.prod(shape) if",
        "entropy = math.prod(shape) if",
        "The temperature rises until the policy is more random than it can be.",
    ),
    Mutant(
        "sac_trains_last_rows",
        _TRANSITIONS,
        "is_trained=before(timestep.step_type) != StepType.LAST",
        "is_trained=before(timestep.step_type) <= StepType.LAST",
        "The row after a LAST one bootstraps it from the next episode.",
    ),
    Mutant(
        "soft_target_without_entropy",
        _TARGETS,
        "values = jnp.min(q_t, axis=0) - temperature * log_probability_t",
        "values = jnp.min(q_t, axis=0)",
        "Later entropy is not part of the value.",
    ),
    Mutant(
        "soft_target_truncation_is_termination",
        _TRANSITIONS,
        "discount=after(timestep.discount)",
        "discount=after((timestep.step_type != StepType.LAST).astype(jnp.float32))",
        "A truncated episode is taken for one that terminated.",
    ),
    Mutant(
        "soft_target_of_the_larger_critic",
        _TARGETS,
        "values = jnp.min(q_t, axis=0)",
        "values = jnp.max(q_t, axis=0)",
        "Targets are of the critic that overestimates more.",
    ),
    Mutant(
        "critics_trained_by_the_actor",
        _SAC,
        "network.q_values(constant.critics, seen.memory",
        "network.q_values(params.critics, seen.memory",
        "The critics learn to be high where the actor goes.",
    ),
    Mutant(
        "sac_trains_burn_in_rows",
        _SAC,
        "lambda leaf: leaf[config.burn_in :], sequence.steps",
        "lambda leaf: leaf[: leaf.shape[0] - config.burn_in], sequence.steps",
        "Memories of the trained rows stand beside observations and actions of earlier ones.",
    ),
)
