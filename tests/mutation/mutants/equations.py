"""Bugs in equations, in exploration and in R2D2's loss."""

from tests.mutation.mutant import Mutant

_RETURNS = "seedrl/rl/returns.py"
_Q_LEARNING = "seedrl/rl/q_learning.py"
_R2D2 = "seedrl/agents/r2d2.py"
_INPUTS = "seedrl/agents/inputs.py"
_TARGET_NETWORK = "seedrl/agents/gradient_update.py"
_VALUE_SCALING = "seedrl/rl/value_scaling.py"
_EXPLORATION = "seedrl/rl/exploration.py"

MUTANTS = (
    Mutant(
        "n_step_past_last",
        _RETURNS,
        "ahead = jnp.where(is_last[following], bootstrap_values[following], returns[1:])",
        "ahead = returns[1:]",
        "A return runs on into the next episode.",
    ),
    Mutant(
        "termination_as_truncation",
        _RETURNS,
        "gamma * timesteps.discount[following] * ahead",
        "gamma * ahead",
        "A terminated episode bootstraps from its last observation.",
    ),
    Mutant(
        "last_row_trained",
        _Q_LEARNING,
        "is_trained = steps.timestep.step_type[:num_trained] != StepType.LAST",
        "is_trained = steps.timestep.step_type[:num_trained] >= StepType.FIRST",
        "The ignored action of a LAST row is trained.",
    ),
    Mutant(
        "target_network_chooses",
        _Q_LEARNING,
        "jnp.argmax(q_online, axis=-1)",
        "jnp.argmax(q_target, axis=-1)",
        "The target network chooses the action that it values.",
    ),
    Mutant(
        "textbook_inverse_scaling",
        _VALUE_SCALING,
        "return root * (jnp.abs(root) + 2)",
        "root = jnp.sqrt(linear**2 + 4 * epsilon * jnp.abs(values))\n"
        "        return jnp.sign(values) * (((root - 1) / (2 * epsilon)) ** 2 - 1)",
        "The inverse of h takes the difference of nearly equal numbers.",
    ),
    Mutant(
        "target_parameters_not_used",
        _R2D2,
        "q_target = unrolled_after_burn_in(network, config.burn_in, target, sequence)",
        "q_target = unrolled_after_burn_in(network, config.burn_in, params, sequence)",
        "Bootstrap values come from the online parameters.",
    ),
    Mutant(
        "target_shares_buffers",
        _TARGET_NETWORK,
        "    return jax.tree.map(jnp.copy, params)\n",
        "    return params\n",
        "Parameters and target are one buffer, which an update donates.",
    ),
    Mutant(
        "gradient_through_burn_in",
        _INPUTS,
        """        _, carry = network.unroll(jax.lax.stop_gradient(params), carry, before)
    after = jax.tree.map(lambda leaf: leaf[burn_in:], inputs)
    output, _ = network.unroll(params, jax.lax.stop_gradient(carry), after)
""",
        """        _, carry = network.unroll(params, carry, before)
    after = jax.tree.map(lambda leaf: leaf[burn_in:], inputs)
    output, _ = network.unroll(params, carry, after)
""",
        "The gradient flows through the burn-in.",
    ),
    Mutant(
        "burn_in_trained",
        _R2D2,
        """    steps = sequence.steps
    chex.assert_shape(steps.action, (config.window.length, None))
""",
        """    steps = sequence.steps
    config = type(config)(**{**vars(config), "burn_in": 0})
""",
        "Burn-in rows are part of the loss.",
    ),
    Mutant(
        "weights_not_applied",
        _R2D2,
        "jnp.mean(weights * losses)",
        "jnp.mean(losses)",
        "The loss ignores importance weights.",
    ),
    Mutant(
        "acting_resets_at_last",
        _INPUTS,
        """        is_first=timestep.step_type == StepType.FIRST,
    )
    one_step""",
        """        is_first=timestep.step_type == StepType.LAST,
    )
    one_step""",
        "Acting resets the carry on the last step of an episode.",
    ),
    Mutant(
        "learning_resets_at_last",
        _INPUTS,
        """action[:-1]]),
        reward=timestep.reward,
        is_first=timestep.step_type == StepType.FIRST,
""",
        """action[:-1]]),
        reward=timestep.reward,
        is_first=timestep.step_type == StepType.LAST,
""",
        "Learning resets the carry on the last step of an episode.",
    ),
    Mutant(
        "initial_priority_of_executed_action",
        _R2D2,
        """    td = td_errors(config, q_acting, q_acting, steps)
""",
        """    executed = steps.action[config.burn_in :, :, None]
    executed = jnp.take_along_axis(q_acting, executed, axis=-1)
    executed = jnp.broadcast_to(executed, q_acting.shape)
    td = td_errors(config, q_acting, executed, steps)
""",
        "Initial priorities bootstrap from the executed action.",
    ),
    Mutant(
        "epsilon_ladder_reversed",
        _EXPLORATION,
        "positions = np.arange(num_slots, dtype=np.float64)",
        "positions = np.arange(num_slots, dtype=np.float64)[::-1]",
        "The first slot explores least.",
    ),
)
