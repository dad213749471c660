"""Bugs in SAC: its policy, its targets, its losses."""

from tests.mutation.mutant import Mutant

_POLICY = "seedrl/rl/tanh_gaussian.py"
_TARGETS = "seedrl/rl/soft_q_learning.py"
_SAC = "seedrl/agents/sac/functions.py"
_CONFIG = "seedrl/agents/sac/config.py"

MUTANTS = (
    Mutant(
        "tanh_correction_left_out",
        _POLICY,
        "return jnp.sum(gaussian - log_slope, axis=-1)",
        "return jnp.sum(gaussian, axis=-1)",
        "The log-probability is that of the number before tanh.",
        "log π(a) by the change of variables (Haarnoja et al. 2018b, appendix C)",
    ),
    Mutant(
        "tanh_correction_of_the_action",
        _POLICY,
        "log_slope = 2 * (math.log(2) - pre_tanh - jax.nn.softplus(-2 * pre_tanh))",
        "log_slope = jnp.log(1 - jnp.square(jnp.tanh(pre_tanh)) + 1e-6)",
        "Far out the log-probability is wrong by several nats.",
        "log π(a) is exact for every u",
    ),
    Mutant(
        "target_entropy_sign",
        _CONFIG,
        "target_entropy=-math.prod(shape) if",
        "target_entropy=math.prod(shape) if",
        "The temperature rises until the policy is more random than it can be.",
        "H̄ = -dim (Haarnoja et al. 2018b, appendix D)",
    ),
    Mutant(
        "temperature_gradient_sign",
        _SAC,
        "entropy - objective.target_entropy",
        "objective.target_entropy - entropy",
        "The temperature rises where the entropy is above its target.",
        "J(α) (Haarnoja et al. 2018b, equation 18)",
    ),
    Mutant(
        "sac_trains_last_rows",
        _SAC,
        "is_trained=before(timestep.step_type) != StepType.LAST",
        "is_trained=before(timestep.step_type) <= StepType.LAST",
        "The row after a LAST one bootstraps it from the next episode.",
        "nothing crosses the end of an episode (DESIGN 4)",
    ),
    Mutant(
        "sac_reward_of_the_row_itself",
        _SAC,
        "reward=after(timestep.reward)",
        "reward=before(timestep.reward)",
        "An action is credited with the reward of the one before it.",
        "the reward of an action is in the next row (DESIGN 4)",
    ),
    Mutant(
        "soft_target_without_entropy",
        _TARGETS,
        "values = jnp.min(q_t, axis=0) - temperature * log_probability_t",
        "values = jnp.min(q_t, axis=0)",
        "Later entropy is not part of the value.",
        "soft values (Haarnoja et al. 2018b, equation 3)",
    ),
    Mutant(
        "soft_target_truncation_is_termination",
        _SAC,
        "discount=after(timestep.discount)",
        "discount=after((timestep.step_type != StepType.LAST).astype(jnp.float32))",
        "A truncated episode is taken for one that terminated.",
        "truncation bootstraps (DESIGN 4)",
    ),
    Mutant(
        "soft_target_of_the_larger_critic",
        _TARGETS,
        "values = jnp.min(q_t, axis=0)",
        "values = jnp.max(q_t, axis=0)",
        "Targets are of the critic that overestimates more.",
        "the smaller of two critics (Fujimoto et al. 2018, equation 10)",
    ),
    Mutant(
        "critics_trained_by_the_actor",
        _SAC,
        "q_values = network.q_values(constant.critics, observation, drawn.action)",
        "q_values = network.q_values(params.critics, observation, drawn.action)",
        "The critics learn to be high where the actor goes.",
        "the actor's loss has a gradient for the actor alone",
    ),
    Mutant(
        "temperature_trained_by_the_actor",
        _SAC,
        "temperature = jnp.exp(constant.log_temperature)",
        "temperature = jnp.exp(params.log_temperature)",
        "The temperature also follows the actor's loss, which lowers it without end.",
        "the actor's loss has a gradient for the actor alone",
    ),
    Mutant(
        "sac_acts_with_half_of_the_noise",
        _SAC,
        "noise = exploration[:, None] * jax.random.normal(key, policy.mean.shape)",
        "noise = 0.5 * exploration[:, None] * jax.random.normal(key, policy.mean.shape)",
        "Acting explores less than the policy that is trained.",
        "acting draws from the policy",
    ),
)
