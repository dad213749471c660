"""What takes a run's scalars besides `metrics.jsonl`."""

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

Hyperparameter: TypeAlias = bool | float | str


class Writer(Protocol):
    """Used by one thread, which it neither ends nor makes wait."""

    def add(self, scalars: Mapping[str, float], step: int) -> None:
        """Takes scalars by their tags, `group/name`."""
        ...

    def describe(
        self, hyperparameters: Mapping[str, Hyperparameter], scores: Sequence[str]
    ) -> None:
        """Takes what the run was configured with; comes once.

        Args:
          hyperparameters: by name.
          scores: tags of the scalars by whose last values runs are compared.
        """
        ...

    def close(self) -> None:
        """Nothing more comes."""
        ...
