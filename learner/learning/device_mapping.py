"""How the per-device programs are laid over devices: the one place that says pmap."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from learner.learning.learn_step import AXIS, LearnPrograms
from seedrl.types import Tree


class MappedPrograms(NamedTuple):
    """The learning thread's programs over n devices.

    Attributes:
      insert: `(replay [n, ...], pages [I, ...], plan [n, I]) -> replay`. Consumes `replay`. Every
        device sees all pages and keeps those that its plan names.
      learn: `(state, replay [n, ...], draw [n, ...], is_enabled) -> (state, replay, metrics)`.
        Consumes `state` and `replay`. State and metrics are replicated.
      behaviour: `params -> behaviour`, what of them acting needs; see `Agent`.
    """

    insert: Callable[..., Any]
    learn: Callable[..., Any]
    behaviour: Callable[[Tree], Tree]


def map_programs(programs: LearnPrograms, devices: Sequence[jax.Device]) -> MappedPrograms:
    """Maps the programs over `devices`.

    `jax.pmap` is today `jit(shard_map(..., check_vma=False))`; swapping that in changes these two
    expressions only. Its `pmean` after the gradient is what makes n devices equal to one.
    """
    return MappedPrograms(
        insert=jax.pmap(
            programs.insert,
            axis_name=AXIS,
            in_axes=(0, None, 0),
            devices=devices,
            donate_argnums=(0,),
        ),
        learn=jax.pmap(
            programs.learn,
            axis_name=AXIS,
            in_axes=(None, 0, 0, None),
            out_axes=(None, 0, None),
            devices=devices,
            donate_argnums=(0, 1),
        ),
        behaviour=programs.behaviour,
    )


def stack_shards(init: Callable[[], Tree], devices: Sequence[jax.Device]) -> Tree:
    """One shard per device, as arrays with a leading device axis, built in place on each device."""
    return jax.pmap(lambda _: init(), axis_name=AXIS, devices=devices)(jnp.arange(len(devices)))


def replicate(state: Tree, devices: Sequence[jax.Device]) -> Tree:
    """A copy of `state` on every device, laid out as `MappedPrograms.learn` returns it.

    Laid out otherwise, the first update would be compiled once more than all that follow.
    """
    copies = jax.pmap(
        lambda tree, _: jax.tree.map(jnp.copy, tree),
        axis_name=AXIS,
        in_axes=(None, 0),
        out_axes=None,
        devices=devices,
    )
    return copies(state, jnp.arange(len(devices)))


@jax.jit
def _copy(tree: Tree) -> Tree:
    return jax.tree.map(jnp.copy, tree)


def publish(params: Tree, device: jax.Device) -> Tree:
    """A copy of replicated parameters on one device.

    A copy, because acting reads it while the next learning step consumes the original: sharing the
    buffer raised errors on one device and crashed the process on four.
    """
    copy = _copy(jax.tree.map(_first_shard, params))
    # What is there already: with small networks, asking for it takes as long as copying.
    is_there = all(leaf.devices() == {device} for leaf in jax.tree.leaves(copy))
    return copy if is_there else jax.device_put(copy, device)


def _first_shard(leaf: Any) -> Any:
    return leaf.addressable_data(0) if isinstance(leaf, jax.Array) else leaf
