"""How the per-device programs are laid over devices: the one place that says pmap."""

import functools
import operator
from collections.abc import Callable
from collections.abc import Sequence as Listed
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from learner.learning.learn_step import AXIS, LearnPrograms
from seedrl.types import Array, Page, Tree


class MappedPrograms(NamedTuple):
    """The learning thread's programs over n devices.

    Attributes:
      devices: those of this host's n devices that learn, in the order of their shards.
      inference: the devices that act, in the order of their numbers.
      insert: `(shard [1, ...], pages [I, ...], plan) -> shard`, on the device of that shard, which
        the pages must be on, too; else see `learner.learning.page_routing`. Consumes the shard.
      pick: `(pages [I, ...], rows [R] int32) -> pages [R, ...]`, copies, where the pages are.
      learn: `(state, replay [n, ...], draw [n, ...], is_enabled) -> (state, replay, numbers)`.
        Consumes `state` and `replay`. State and numbers are replicated. Of several hosts each gives
        and gets its own shards, and all must call it.
      local_part: `leaf -> leaf`, the part of a replicated leaf that lies on the first device.
      publish: `params -> [actor_params]`, copies for acting of what it needs of the local parts of
        parameters, on each of its devices; see `Agent`. Copies, because acting reads them while the
        next learning step consumes the original: sharing the buffer raised errors on one device and
        crashed the process on four. Of local parts, because a replicated leaf brings its mesh into
        the type of all that is computed from it, and acting would be compiled again.
      trace: looks for mistakes in `learn`, by shapes of its arguments, and runs nothing.
      lower: `learn` for such shapes, to be compiled.
    """

    devices: Listed[jax.Device]
    inference: Listed[jax.Device]
    insert: Callable[..., Any]
    pick: Callable[[Tree, Any], Tree]
    learn: Callable[..., Any]
    local_part: Callable[[Array], Array]
    publish: Callable[[Tree], Listed[Tree]]
    trace: Callable[..., object]
    lower: Callable[..., Any]

    @property
    def is_alone(self) -> bool:
        """Whether one device does it all, so that nothing ever moves between devices."""
        return len(self.devices) == 1 and list(self.inference) == list(self.devices)


def map_programs(
    programs: LearnPrograms,
    devices: Listed[jax.Device],
    inference: Listed[jax.Device] = (),
    everywhere: Listed[jax.Device] = (),
) -> MappedPrograms:
    """Maps the programs over `devices`.

    Args:
      programs: of one device.
      devices: of this host.
      inference: those that act, by default the first one.
      everywhere: of all hosts, in their order; by default there is one.

    `jax.pmap` is today `jit(shard_map(..., check_vma=False))`; swapping that in changes one
    expression only. Its `pmean` after the gradient is what makes n devices equal to one. Insertion
    is a program of one device, compiled for each: pages arrive for one shard at a time.
    """
    learn = jax.pmap(
        programs.learn,
        axis_name=AXIS,
        in_axes=(None, 0, 0, None),
        out_axes=(None, 0, None),
        devices=everywhere or devices,
        donate_argnums=(0, 1),
    )
    is_shared = len(everywhere) > len(devices)
    lower = functools.partial(_lowered, learn, everywhere if is_shared else ())
    # One shard is all of the replay, and stays laid out as the update gives it.
    whole = NamedSharding(Mesh(np.array(devices), (AXIS,)), PartitionSpec(AXIS))
    acting = inference or devices[:1]
    return MappedPrograms(
        devices=devices,
        inference=acting,
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
    """`learn` lowered for shapes of its arguments; `everywhere`: of several hosts all devices.

    There pmap makes an array of all hosts of each that it is given, which shapes are not; what is
    abstract in the words of jax it leaves alone. It must name the mesh: else the first update would
    be compiled again.
    """
    if not everywhere:
        return learn.lower(*shapes)
    mesh = Mesh(np.array(everywhere), (AXIS,)).abstract_mesh

    def abstract(leaf: Any, rows: tuple[int, ...] = ()) -> Any:
        shape = (*rows, *leaf.shape[len(rows) :])
        sharding = NamedSharding(mesh, PartitionSpec(*[None] * len(shape)))
        return jax.core.ShapedArray(shape, leaf.dtype, sharding=sharding)

    state, replay, draw, is_enabled = shapes
    whole = functools.partial(abstract, rows=(len(everywhere),))
    return learn.lower(
        jax.tree.map(abstract, state),
        jax.tree.map(whole, replay),
        jax.tree.map(whole, draw),
        abstract(is_enabled),
    )


def _publish(
    actor_params: Callable[[Tree], Tree], devices: Listed[jax.Device], inference: Listed[jax.Device]
) -> Callable[[Tree], Listed[Tree]]:
    """See `MappedPrograms.publish`; for one device that acts it is a program, and no more."""

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
    """A copy of `state` on every device, laid out as `MappedPrograms.learn` returns it.

    Laid out otherwise, the first update would be compiled once more than all that follow. Of
    several hosts `everywhere` are all devices, and each gives what is the same on all of them.
    """
    return _copies(tuple(everywhere or devices))(state, jnp.arange(len(devices)))


@functools.cache
def _copies(devices: tuple[jax.Device, ...]) -> Callable[[Tree, Array], Tree]:
    """Compiled once for states of one structure."""
    copies: Callable[[Tree, Array], Tree] = jax.pmap(
        lambda tree, _: jax.tree.map(jnp.copy, tree),
        axis_name=AXIS,
        in_axes=(None, 0),
        out_axes=None,
        devices=devices,
    )
    return copies
