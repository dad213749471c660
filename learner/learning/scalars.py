"""Numbers that a program computes beside its work, on their way to the host."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np

from seedrl.types import Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Scalars(Mapping[str, Array]):
    """Numbers by name, in one array: the host takes as long to fetch one number as all of them.

    Attributes:
      names: of the numbers.
      values: `[M] float32`, in their order.
    """

    names: tuple[str, ...] = field(metadata={"static": True})
    values: Array

    @classmethod
    def of(cls, numbers: Mapping[str, Array]) -> Self:
        """`numbers`, each `[]`, in alphabetical order."""
        names = tuple(sorted(numbers))
        return cls(names, jnp.stack([jnp.asarray(numbers[name], jnp.float32) for name in names]))

    def fetch(self) -> dict[str, float]:
        """The numbers on the host; waits for them."""
        return dict(zip(self.names, np.asarray(self.values).tolist(), strict=True))

    def __getitem__(self, name: str) -> Array:
        if name not in self.names:
            raise KeyError(name)
        return self.values[self.names.index(name)]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)
