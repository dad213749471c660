"""What the agents' own metrics mean, by name: what `UpdateOutput.metrics` holds."""

R2D2 = {
    "q_mean": (
        "R2D2, Ape-X and SAC: mean Q-value, R2D2's in scaled space, Ape-X's of trained time steps"
    ),
    "q_max": "R2D2 and Ape-X: largest Q-value, R2D2's in scaled space",
    "td_error_mean": "R2D2, Ape-X and SAC: mean |δ| of the trained time steps",
    "td_error_max": "R2D2, Ape-X and SAC: largest |δ|",
    "target_mean": "R2D2, Ape-X and SAC: mean target of the trained time steps",
    "trained_fraction": "share of time steps after the burn-in that are trained; LAST is not",
}
# Of both actor-critics, unless said otherwise.
IMPALA = {
    "policy_loss": (
        "IMPALA: mean of -log π(a) times its advantage; PPO and GRPO: minus the clipped gain"
    ),
    "value_loss": "mean of half the squared error of V",
    "entropy": "mean entropy of the policy, in nats; SAC's of actions in [-1, 1]",
    "entropy_cost": "weight of the entropy, with `entropy_cost_decay_steps`",
    "value_mean": "mean V in scaled rewards; of PPO, the one stored when acting",
    "advantage_size": "mean |advantage|; of IMPALA with its ratio, of PPO before it is normalised",
    "behaviour_kl": (
        "estimate of KL(μ, π), of the policy that acted and the present one: the mean of "
        "ratio - 1 - log ratio over trained time steps"
    ),
    "ratio_max": "largest ratio π(a)/μ(a)",
    "return_std": (
        "with `normalize_rewards`: the std of the discounted sums of rewards, by "
        "which rewards were divided"
    ),
    "ratio_clipped_fraction": "IMPALA: share of ratios above ρ̄",
    "ratio_low_fraction": "IMPALA: share of ratios below 0.5",
}
PPO = {
    "clip_fraction": (
        "share of ratios further from 1 than PPO's `clip`, or GRPO's `clip_low` and `clip_high`"
    ),
    "explained_variance": (
        "PPO: 1 - Var(target - V) / Var(target), by V when acting; 1 is a perfect critic, 0 or "
        "less one that is no better than a constant"
    ),
}
SAC = {
    "critic_loss": "SAC: half the squared errors of both critics, mean over time steps",
    "actor_loss": "SAC: mean of α log π(a) - min Q(a)",
    "temperature_loss": "SAC: ln α times the entropy beyond its target, mean over time steps",
    "temperature": "SAC: α, the weight of the entropy",
}
GRPO = {
    "return_mean": "GRPO: mean sum of rewards of a rollout",
    "groups_with_spread": "GRPO: share of groups whose rollouts differ in reward; the others have "
    "no advantages, except with `gae`",
    "truncated_fraction": "GRPO: share of rollouts that a length limit cut",
    "trained_tokens": "GRPO: tokens of an update that have a gradient",
    "cap_fraction": "GRPO: share of ratios above `ratio_cap`",
    "mismatch_kl": "GRPO: estimate of KL(μ, π) over tokens that the updated parameters sampled "
    "themselves: 0 but for rounding",
    "mismatch_max": "GRPO: largest |log π - log μ| of these tokens",
    "reference_kl": "GRPO: with `kl`, divergence from the first parameters",
}
