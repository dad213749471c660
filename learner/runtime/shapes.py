"""The shapes of what one thread owns, for another that compiles for it."""

import jax
from jax.sharding import SingleDeviceSharding

from seedrl.types import Tree


def shapes_of(tree: Tree) -> Tree:
    """Shapes, dtypes and places of a tree of arrays, which its owner may consume meanwhile.

    Of an array that is not committed to a device the place stays open: to name it would ask for
    another program than the one that runs.
    """
    return jax.tree.map(_shape_of, tree)


def _shape_of(leaf: jax.Array) -> jax.ShapeDtypeStruct:
    sharding = leaf.sharding if leaf.committed else None
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding, weak_type=leaf.weak_type)


def rows_on(device: jax.Device, tree: Tree, rows: int) -> Tree:
    """Shapes of N = `rows` of what `tree` is an example of, `[N, ...]`, on `device`."""
    place = SingleDeviceSharding(device)
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((rows, *leaf.shape), leaf.dtype, sharding=place), tree
    )
