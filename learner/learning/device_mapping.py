"""How programs and arrays are laid over devices, the one place that calls pmap, and if they fit."""

import functools
import operator
from collections.abc import Callable
from collections.abc import Sequence as Listed
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from learner.learning.learn_step import AXIS, LearnPrograms
from seedrl.errors import ConfigError
from seedrl.replay.experience import Scale
from seedrl.types import Array, Page, Tree


class MappedPrograms(NamedTuple):
    """The learning thread's programs over n devices."""

    devices: Listed[jax.Device]  # of this host that learn, in the order of their shards
    inference: Listed[jax.Device]  # that act, in the order of their numbers
    # (shard [1, ...], pages [I, ...], plan) -> shard, on the device of that shard, which the pages
    # must be on, too; see `learner.learning.page_routing`. Consumes the shard.
    insert: Callable[..., Any]
    # (pages [I, ...], rows [R] int32) -> pages [R, ...], copies, where the pages are.
    pick: Callable[[Tree, Any], Tree]
    # (state, replay [n, ...], draw [n, ...], env_steps) -> (state, replay, numbers). Consumes
    # `state` and `replay`. State and numbers are replicated. Of several hosts each gives and gets
    # its own shards, and all must call it.
    learn: Callable[..., Any]
    local_part: Callable[[Array], Array]  # of a replicated leaf: that on the first device
    # params -> [actor_params], copies for acting, on each of its devices; see `Agent`. Copies,
    # because acting reads them while the next learning step consumes the original: sharing the
    # buffer raised errors on one device and crashed the process on four. Of local parts, because a
    # replicated leaf brings its mesh into the type of all that is computed from it, and acting
    # would be compiled again.
    publish: Callable[[Tree], Listed[Tree]]
    trace: Callable[..., object]  # of shapes of `learn`'s arguments: raises mistakes, runs nothing
    lower: Callable[..., Any]  # `learn` for such shapes, to be compiled


def map_programs(
    programs: LearnPrograms,
    devices: Listed[jax.Device],
    inference: Listed[jax.Device] = (),
    everywhere: Listed[jax.Device] = (),
) -> MappedPrograms:
    """Maps the programs of one device over `devices` of this host.

    Args:
      inference: those that act, by default the first one.
      everywhere: devices of all hosts, in their order; by default there is one host.
    """
    # `jax.pmap` is today `jit(shard_map(..., check_vma=False))`; swapping that in changes this
    # expression only. The mean of gradients over the devices (`over_devices`) makes n equal to one.
    learn = jax.pmap(
        programs.learn,
        axis_name=AXIS,
        in_axes=(None, 0, 0, None),
        out_axes=(None, 0, None),
        devices=everywhere or devices,
        donate_argnums=(0, 1),  # else state and replay would be there twice
    )
    is_shared = len(everywhere) > len(devices)
    lower = functools.partial(_lowered, learn, everywhere if is_shared else ())
    # One shard is all of the replay, and stays laid out as the update gives it.
    whole = NamedSharding(Mesh(np.array(devices), (AXIS,)), PartitionSpec(AXIS))
    acting = inference or devices[:1]
    return MappedPrograms(
        devices=devices,
        inference=acting,
        # A program of one device, compiled for each: pages arrive for one shard at a time.
        insert=jax.jit(
            functools.partial(_insert, programs.insert),
            donate_argnums=(0,),
            out_shardings=whole if len(devices) == 1 else None,
        ),
        pick=jax.jit(_pick),
        learn=learn,
        local_part=operator.methodcaller("addressable_data", 0),
        publish=_publish(programs.actor_params, devices, acting),
        # Under another trace a pmap over several hosts takes this one's devices for all.
        trace=lower if is_shared else functools.partial(jax.eval_shape, learn),
        lower=lower,
    )


def _lowered(learn: Any, everywhere: Listed[jax.Device], *shapes: Tree) -> Any:
    """`learn` lowered for shapes of its arguments; `everywhere`: of several hosts all devices."""
    if not everywhere:
        return learn.lower(*shapes)
    # Over several hosts pmap makes a global array of each argument but of jax's abstract arrays.
    # They must name the mesh, or the first update would be compiled again.
    mesh = Mesh(np.array(everywhere), (AXIS,)).abstract_mesh

    def abstract(leaf: Any, rows: tuple[int, ...] = ()) -> Any:
        shape = (*rows, *leaf.shape[len(rows) :])
        sharding = NamedSharding(mesh, PartitionSpec(*[None] * len(shape)))
        return jax.core.ShapedArray(shape, leaf.dtype, sharding=sharding)

    state, replay, draw, env_steps = shapes
    whole = functools.partial(abstract, rows=(len(everywhere),))
    return learn.lower(
        jax.tree.map(abstract, state),
        jax.tree.map(whole, replay),
        jax.tree.map(whole, draw),
        abstract(env_steps),
    )


def _publish(
    actor_params: Callable[[Tree], Tree], devices: Listed[jax.Device], inference: Listed[jax.Device]
) -> Callable[[Tree], Listed[Tree]]:
    """See `MappedPrograms.publish`; for one device that acts it is one program."""

    def copied(params: Tree) -> list[Tree]:
        return [jax.tree.map(jnp.copy, actor_params(params))]

    first = devices[0]
    copy = jax.jit(copied)
    if list(inference) == list(devices) == [first]:
        return copy

    def publish(params: Tree) -> list[Tree]:
        (own,) = copy(params)
        return [own if device == first else jax.device_put(own, device) for device in inference]

    return publish


def _insert(
    insert: Callable[[Tree, Page, Tree], Tree], shard: Tree, pages: Page, plan: Tree
) -> Tree:
    inserted = insert(jax.tree.map(lambda leaf: leaf.reshape(leaf.shape[1:]), shard), pages, plan)
    return jax.tree.map(lambda leaf: leaf[None], inserted)


def _pick(pages: Tree, rows: Array) -> Tree:
    return jax.tree.map(lambda leaf: leaf[rows], pages)


def stack_shards(init: Callable[[], Tree], devices: Listed[jax.Device]) -> Tree:
    """One shard per device, as arrays with a leading device axis, built in place on each device."""
    return jax.pmap(lambda _: init(), axis_name=AXIS, devices=devices)(jnp.arange(len(devices)))


def replicate(
    state: Tree, devices: Listed[jax.Device], everywhere: Listed[jax.Device] = ()
) -> Tree:
    """A copy of `state` on every device; of several hosts `everywhere` are all devices."""
    # Laid out as `MappedPrograms.learn` returns it, or the first update would be compiled twice.
    return _copies(tuple(everywhere or devices))(state, jnp.arange(len(devices)))


@functools.cache
def _copies(devices: tuple[jax.Device, ...]) -> Callable[[Tree, Array], Tree]:
    copies: Callable[[Tree, Array], Tree] = jax.pmap(
        lambda tree, _: jax.tree.map(jnp.copy, tree),
        axis_name=AXIS,
        in_axes=(None, 0),
        out_axes=None,
        devices=devices,
    )
    return copies


def shapes_of(tree: Tree) -> Tree:
    """Shapes, dtypes and places of a tree of arrays, which its owner may consume meanwhile."""
    return jax.tree.map(_shape_of, tree)


def _shape_of(leaf: jax.Array) -> jax.ShapeDtypeStruct:
    # The place of an array that is not committed to a device stays open: to name it would compile
    # another program than the one that runs.
    sharding = leaf.sharding if leaf.committed else None
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding, weak_type=leaf.weak_type)


def rows_on(device: jax.Device, tree: Tree, rows: int) -> Tree:
    """Shapes of N = `rows` of the example `tree`, `[N, ...]`, on `device`."""
    place = SingleDeviceSharding(device)
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((rows, *leaf.shape), leaf.dtype, sharding=place), tree
    )


def update_bytes(compiled: Any) -> int | None:
    """Bytes that a compiled program needs on each device at its worst; None if not known."""
    needed = compiled.memory_analysis()
    if needed is None:
        return None
    # Its arguments with the replay, temporaries, and results that do not take an argument's place.
    results = needed.output_size_in_bytes - needed.alias_size_in_bytes
    return int(needed.argument_size_in_bytes + results + needed.temp_size_in_bytes)


def require_update_memory(compiled: Any, scale: Scale, acting_bytes: int) -> None:
    """Raises ConfigError if the compiled update needs more than a device has.

    `acting_bytes`: of what the device may hold for acting meanwhile.
    """
    # Otherwise the first update would fail, an hour after the start if replay fills slowly.
    needed = update_bytes(compiled)
    if needed is None or (wanted := needed + acting_bytes) <= scale.device_bytes:
        return
    raise ConfigError(
        f"learning.batch_sequences: an update of {scale.batch_per_device} sequences needs "
        f"{wanted / 2**30:.1f} GiB on each device with the replay and what acting holds, but "
        f"{scale.device_name} has {scale.device_bytes / 2**30:.1f} GiB; use fewer sequences, a "
        "smaller replay or more devices"
    )


def require_state_memory(shapes: Tree, scale: Scale) -> None:
    """Raises ConfigError if the learner's state, arrays of these shapes, is more than a device has.

    The shapes follow from an observation that an env server has named.
    """
    wanted = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))
    if wanted > scale.device_bytes:
        raise ConfigError(
            f"agent: for this environment its parameters, with all that learns them, need "
            f"{wanted / 2**30:.1f} GiB on each device, but {scale.device_name} has "
            f"{scale.device_bytes / 2**30:.1f} GiB; use a smaller network or observation"
        )
