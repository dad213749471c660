"""The replay of a session: its shards on the devices of this host."""

from typing import Literal

import jax
import numpy as np

from learner.acting.actor import page_rows
from learner.learning.device_mapping import stack_shards
from learner.learning.page_routing import ShardedReplay
from learner.saving.restoring import by_field, restore_replay, streams_can_resume
from learner.session.geometry import Geometry
from seedrl.checkpoints import Checkpoint
from seedrl.config import Config
from seedrl.errors import CheckpointError
from seedrl.replay.experience import Experience
from seedrl.types import Page

Resumption = Literal["none", "restored", "redistributed", "filled again"]


def resumption(checkpoint: Checkpoint, geometry: Geometry, config: Config) -> Resumption:
    """What becomes of the replay of a checkpoint, if it has one.

    Shards stay as they are, whichever host has them. Of several hosts that is possible where there
    are as many devices in all, each of which has one; else replay begins empty. So does a queue on
    another number of hosts: each has one of its own, whose size depends on their number.
    """
    if "replay_indices" not in checkpoint.meta:
        return "none"
    fits = len(checkpoint.meta["replay_indices"]) == len(geometry.everywhere)
    if saved_hosts(checkpoint) == geometry.place.num_hosts:
        # Alone it is refused if it does not fit, by the field that has changed.
        return "restored" if fits or geometry.place.num_hosts == 1 else "filled again"
    return "redistributed" if fits and not _is_of_host(config) else "filled again"


def replay_text(checkpoint: Checkpoint | None, geometry: Geometry, config: Config) -> str:
    """What becomes of the replay, for a person; empty if that is as it always is."""
    if checkpoint is None:
        return ""
    of, saved = geometry.place.num_hosts, saved_hosts(checkpoint)
    hosts = f"saved by {saved} host{'s' * (saved > 1)}, now of {of}"
    match resumption(checkpoint, geometry, config):
        case "redistributed":
            return f"its replay is redistributed: {hosts}"
        case "filled again" if of != saved and _is_of_host(config):
            return f"its queue is filled again, for each host has one of its own ({hosts})"
        case "filled again":
            shards = len(checkpoint.meta["replay_indices"])
            return (
                f"its replay is filled again, for its {shards} shards ({hosts}) do not fit "
                f"{len(geometry.everywhere)} devices"
            )
    return ""


def _is_of_host(config: Config) -> bool:
    return bool(getattr(config.replay, "is_of_host", False))


def saved_hosts(checkpoint: Checkpoint) -> int:
    """How many hosts have written it."""
    return int(checkpoint.meta.get("hosts", 1))


def sharded_replay(
    config: Config,
    geometry: Geometry,
    experience: Experience,
    page: Page,
    checkpoint: Checkpoint | None,
    *,
    rungs: int,
) -> ShardedReplay:
    """The replay on this host's devices and its indices: empty, or the checkpoint's if it has one.

    Args:
      rungs: of the ladder of page sizes.
    """
    memory = stack_shards(lambda: experience.memory.init(page), geometry.devices)
    indices = [experience.index() for _ in geometry.devices]
    lanes = [lane for lane in geometry.lanes if lane.role == "training"]
    shards = ShardedReplay(
        memory,
        indices,
        geometry.page_steps,
        most_pages=geometry.training_slots,
        page_rows=sorted({rows for lane in lanes for rows in page_rows(lane.size, rungs)}),
        is_mixed=any(
            len(set(experience.shard_of(lane.slots, 0, len(indices)))) > 1 for lane in lanes
        ),
        starts_in_page=config.agent.window.starts_in_page(geometry.page_steps),
        example_draw=experience.example_draw,
        shard_of=experience.shard_of,
        accounts=experience.accounts,
        stale=experience.stale,
    )
    if checkpoint is None or resumption(checkpoint, geometry, config) in ("none", "filled again"):
        return shards
    try:
        own = _own(geometry)
        saved = restore_replay(checkpoint, memory, own)
        states = checkpoint.meta["replay_indices"]
        for index, state in zip(indices, states if own is None else states[own], strict=True):
            # Otherwise streams resume only under new leases, which have new names.
            index.restore(
                state if streams_can_resume(config, checkpoint) else {**state, "streams": []}
            )
    except (CheckpointError, ValueError) as error:
        sections = ("agent", "replay", "learning.num_devices")
        refusal = CheckpointError(str(error))
        raise by_field(refusal, checkpoint, config, sections) from error
    return shards._replace(memory=jax.tree.map(_in_place_of, saved, memory))


def _in_place_of(saved: np.ndarray, empty: jax.Array) -> jax.Array:
    """The saved leaf where the empty one was: a device need not have memory for both."""
    sharding = empty.sharding
    empty.delete()
    return jax.device_put(saved, sharding)


def _own(geometry: Geometry) -> slice | None:
    """Which of the shards of all hosts are this one's; None for all, where it is alone."""
    if geometry.place.num_hosts == 1:
        return None
    first = geometry.place.host_index * len(geometry.devices)
    return slice(first, first + len(geometry.devices))
