"""The serving of this host: its slots, and who is told what happens to their env servers."""

from learner.reporting.env_servers import EnvServerRegistry
from learner.reporting.events import Events
from learner.saving.restoring import restore_streams
from learner.serving.batching import free_running, lock_step, rounds
from learner.serving.core import Serving
from learner.serving.hub import Hub
from learner.serving.leases import SlotTable, session_seed
from learner.session.geometry import Geometry
from seedrl.checkpoints import Checkpoint
from seedrl.config import Config
from seedrl.spec_json import saved_spec


def slot_table(config: Config, geometry: Geometry, session_number: int) -> SlotTable:
    """The slots of this host; `session_number`: of its sessions in this run."""
    place = geometry.place
    host = "" if place.is_first else f" host {place.host_index}"
    return SlotTable(
        training=geometry.training_slots,
        evaluation=geometry.evaluation_slots,
        # Nothing that a killed session has not saved may decide on seeds: its own would recur.
        seed=session_seed(config.seed, f"session {session_number}{host}"),
        num_devices=len(geometry.inference),
    )


def serving_hub(
    config: Config,
    geometry: Geometry,
    slots: SlotTable,
    checkpoint: Checkpoint | None,
    events: Events,
) -> Hub:
    """The hub of this host, where streams resume if they can."""
    meta = {} if checkpoint is None else checkpoint.meta
    deadline = config.serving.batch_deadline_seconds
    free = free_running(deadline)
    rule = {"asynchronous": free, "synchronous": rounds(), "deterministic": lock_step()}
    serving = Serving(
        slots,
        page_steps=geometry.page_steps,
        rule=rule[config.learning.schedule],
        evaluation_rule=free,
    )
    if checkpoint is not None:
        restore_streams(checkpoint, serving, config)
    spec = saved_spec(meta["env_spec"]) if "env_spec" in meta else None
    attendance = EnvServerRegistry(
        events,
        training_slots=geometry.training_slots,
        evaluation_slots=geometry.evaluation_slots,
        step_deadline_seconds=config.serving.step_deadline_seconds,
    )
    return Hub(serving, config.environment, spec=spec, attendance=attendance)
