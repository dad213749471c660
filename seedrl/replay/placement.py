"""Writing what arrives into a pool on the device, in place."""

from seedrl.types import Array


def write_rows(pool: Array, new: Array, *, index: Array) -> Array:
    """`pool [P, ...]` with `new [I, ...]` at `index [I] int32`; beyond the pool nothing is written.

    In a shard of one device, as pmap hands it over, XLA:CPU would copy the whole pool first if
    another axis is 1 too (pages of one step, say) and its items have four bytes: with the axis of
    devices dropped its layout is ambiguous. So the axis is added again for the time of writing.
    """
    return pool[None].at[0, index].set(new, mode="drop")[0]
