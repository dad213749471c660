"""cpprb's PrioritizedReplayBuffer with a sequence as its item; each is allocated beforehand."""

from collections.abc import Callable
from typing import Any

import numpy as np
from answering import answer_measures
from cpprb import PrioritizedReplayBuffer
from sequences import noise

_PRIORITY_EXPONENT = 0.9


def prepare(command: dict[str, Any]) -> dict[str, Callable[[], float]]:
    """A full buffer, and what can be measured with it."""
    inserted, batch, length = command["inserted"], command["batch"], command["length"]
    fields = {
        **{name: ([length, *shape], dtype) for name, (shape, dtype) in command["steps"].items()},
        **command["carry"],
    }
    # It does not know scalars.
    fields = {name: (shape or [1], dtype) for name, (shape, dtype) in fields.items()}
    environment = {
        name: {"shape": shape, "dtype": np.dtype(dtype)} for name, (shape, dtype) in fields.items()
    }
    buffer = PrioritizedReplayBuffer(command["capacity"], environment, alpha=_PRIORITY_EXPONENT)
    data = noise(fields, inserted)

    def insert() -> float:
        buffer.add(**data)
        return inserted

    def sample() -> float:
        buffer.sample(batch)
        return batch

    def update() -> float:
        drawn = buffer.sample(batch)
        buffer.update_priorities(drawn["indexes"], drawn["weights"] + 1.0)
        return batch

    for _ in range(-(-command["capacity"] // inserted)):
        insert()
    return {"insert": insert, "sample": sample, "update": update}


if __name__ == "__main__":
    answer_measures(prepare)
