"""Bugs in acting: what is gathered, scattered and stored for each slot, and who may act when."""

from tests.mutation.mutant import Mutant

_ACT_STEP = "learner/acting/act_step.py"
_LIMITER = "seedrl/replay/rate_limiter.py"
_EVALUATION = "learner/acting/evaluator.py"


MUTANTS = (
    Mutant(
        "carry_stored_after_the_step",
        _ACT_STEP,
        "_write(state.open_carry, agent.stored_carry(carry), (first_rows,))",
        "_write(state.open_carry, agent.stored_carry(output.carry), (first_rows,))",
        "A page keeps the carry from after its first step.",
    ),
    Mutant(
        "carry_rows_swapped",
        _ACT_STEP,
        "unpacked(_rows(state.carry, slots), carries_of_slots, 1)",
        "unpacked(_rows(state.carry, slots[::-1]), carries_of_slots, 1)",
        "Slots of a batch act with each other's carry.",
    ),
    Mutant(
        "padding_writes_slot_0",
        _ACT_STEP,
        "_write(state.carry, output.carry, (slots,))",
        "_write(state.carry, output.carry, (slots % num_slots,))",
        "Padding overwrites the carry of slot 0.",
    ),
    Mutant(
        "evaluation_stored",
        _ACT_STEP,
        "_write(state.open_steps, step, (slots, positions))",
        "_write(state.open_steps, step, (jnp.minimum(slots, num_training - 1), positions))",
        "Rows of evaluation slots are written into a training slot's page.",
    ),
    Mutant(
        "stored_actions_of_neighbours",
        _ACT_STEP,
        "StoredStep(timestep, output.action,",
        "StoredStep(timestep, jnp.roll(output.action, 1),",
        "The action that is stored is that of the next slot in the batch.",
    ),
    Mutant(
        "version_stored_late",
        _ACT_STEP,
        "output.action, versions, output.extras",
        "output.action, versions + 1, output.extras",
        "The version that is stored is not the one that acted.",
    ),
    Mutant(
        "batches_share_a_key",
        _ACT_STEP,
        "key = jnp.stack([state.key[0], state.key[1] ^ numbers[0]])",
        "key = state.key",
        "Every batch explores by the same random numbers.",
    ),
    Mutant(
        "steps_owed_before_ready",
        _LIMITER,
        "if not self.is_ready:\n            return self._replace(early_steps",
        "if not True:\n            return self._replace(early_steps",
        "Steps from before learning was possible are owed.",
    ),
    Mutant(
        "update_before_it_is_owed",
        _LIMITER,
        "return self.is_ready and self.owed_steps >= self.update_steps",
        "return self.is_ready and self.owed_steps > 0",
        "Learning runs up to a batch ahead.",
    ),
    Mutant(
        "evaluation_counts_begun_episodes",
        _EVALUATION,
        "if slot in self._counting and self.counts(slot)",
        "if self.counts(slot)",
        "Episodes that began with other parameters count in a round.",
    ),
    Mutant(
        "evaluation_thaws",
        _EVALUATION,
        "self._round.change(live_slots)",
        "self._round = Round(latest, live_slots, self._episodes)",
        "A round whose slots change continues with newer parameters.",
    ),
)
