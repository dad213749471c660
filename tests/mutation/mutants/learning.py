"""Bugs in the update and in how it is laid over devices."""

from tests.mutation.mutant import Mutant

_LEARN_STEP = "learner/learning/learn_step.py"
_OVER_DEVICES = "learner/learning/learn_step.py"
_PASSES = "learner/learning/learn_step.py"
_GRADIENT = "seedrl/agents/gradient_update.py"
_LEARNING = "learner/learning/loop.py"
_MAPPING = "learner/learning/device_mapping.py"
_PAGE_ROUTING = "learner/learning/page_routing.py"

MUTANTS = (
    Mutant(
        "gradient_of_one_device",
        _GRADIENT,
        "gradients, loss = mean(gradients), mean(loss)",
        "loss = mean(loss)",
        "Every device applies its own gradient.",
    ),
    Mutant(
        "momentum_without_a_gradient",
        _GRADIENT,
        "if self.may_train_nothing:",
        "if False:",
        "A batch of which nothing is trained moves the parameters.",
    ),
    Mutant(
        "empty_shard_learned_from",
        _OVER_DEVICES,
        "jnp.where(is_filled, leaf, jnp.zeros_like(leaf))",
        "leaf",
        "The device of a shard without experience shares in the gradient.",
    ),
    Mutant(
        "nan_update_applied",
        _LEARN_STEP,
        "is_applied = over.all_are(is_all_finite((output.guarded, guarded)))",
        "is_applied = jnp.bool_(True)",
        "An update that is not finite is applied.",
    ),
    Mutant(
        "learning_key_not_advanced",
        _LEARN_STEP,
        "LearnerState.of(new, next_key)",
        "LearnerState.of(new, state.key)",
        "Every update draws by the same random numbers.",
    ),
    Mutant(
        "devices_share_a_key",
        _LEARN_STEP,
        "jax.random.split(jax.random.fold_in(key, jax.lax.axis_index(AXIS)))",
        "jax.random.split(key)",
        "All devices draw by the same random numbers.",
    ),
    Mutant(
        "every_minibatch_is_the_first",
        _PASSES,
        """        columns, key = drawn
""",
        """        columns, key = shuffled[0, : weights.shape[0] // minibatches], drawn[1]
""",
        "All passes train the same part of a batch.",
    ),
    Mutant(
        "parameters_published_by_reference",
        _MAPPING,
        "copy = jax.jit(copied)",
        "copy = lambda params: [actor_params(params)]",
        "Acting reads buffers that the next update consumes.",
    ),
    Mutant(
        "published_under_old_version",
        _LEARNING,
        "VersionedParams(own, self._newest, steps)",
        "VersionedParams(own, self._newest - 1, steps)",
        "Parameters are published under the number of the ones before.",
    ),
    Mutant(
        "pages_on_every_shard",
        _PAGE_ROUTING,
        "if owner == shard]",
        "]",
        "Every shard stores the pages of all.",
    ),
    Mutant(
        "stale_page_stored",
        _PAGE_ROUTING,
        "kept = [position for position in range(len(slots)) if position not in stale]",
        "kept = list(range(len(slots)))",
        "Pages that are too old are trained all the same.",
    ),
)
