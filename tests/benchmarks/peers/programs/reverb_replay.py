"""Reverb: a server in this process, a TrajectoryWriter, and a TrajectoryDataset of batches.

A stream is written row by row; its sequences share the rows in which they overlap. The carry is
written once a stride, with the row in which a sequence begins. Server and client are in one
process, which Reverb takes a shortcut for: it could not be faster.
"""

from collections.abc import Callable
from typing import Any

import reverb
import tensorflow as tf
from answering import answer_measures
from sequences import noise

_PRIORITY_EXPONENT = 0.9
_TABLE = "sequences"


def prepare(command: dict[str, Any]) -> dict[str, Callable[[], float]]:
    """A full table, and what can be measured with it."""
    inserted, batch = command["inserted"], command["batch"]
    server = reverb.Server([table(command)])
    client = reverb.Client(f"localhost:{server.port}")
    insert_sequences = writing(client, command)
    for _ in range(-(-command["capacity"] // inserted)):
        insert_sequences()
    batches = iter(
        reverb.TrajectoryDataset.from_table_signature(
            f"localhost:{server.port}",
            _TABLE,
            # Two to three times the batch, says its documentation.
            max_in_flight_samples_per_worker=2 * batch,
        ).batch(batch, drop_remainder=True)
    )

    def insert() -> float:
        # The server lives as long as somebody holds it.
        assert server.port
        insert_sequences()
        return inserted

    def sample() -> float:
        next(batches)
        return batch

    def update() -> float:
        info = next(batches).info
        priorities = dict(zip(info.key.numpy().tolist(), info.priority.numpy() + 1.0, strict=True))
        client.mutate_priorities(_TABLE, priorities)
        return batch

    return {"insert": insert, "sample": sample, "update": update}


def table(command: dict[str, Any]) -> reverb.Table:
    """An empty table; what one of its items consists of."""
    leading = {"steps": command["length"], "carry": 1}
    signature = {
        part: {
            str(number): tf.TensorSpec([rows, *shape], dtype)
            for number, (shape, dtype) in enumerate(command[part].values())
        }
        for part, rows in leading.items()
    }
    return reverb.Table(
        name=_TABLE,
        sampler=reverb.selectors.Prioritized(_PRIORITY_EXPONENT),
        remover=reverb.selectors.Fifo(),
        max_size=command["capacity"],
        rate_limiter=reverb.rate_limiters.MinSize(1),
        signature=signature,
    )


def writing(client: reverb.Client, command: dict[str, Any]) -> Callable[[], None]:
    """A function that appends rows, a sequence with every stride, and waits for the server."""
    length, stride = command["length"], command["stride"]
    # Names of Reverb's columns may not be paths.
    steps = {str(n): each for n, each in enumerate(noise(command["steps"], stride).values())}
    carry = {str(n): each for n, each in enumerate(noise(command["carry"], 1).values())}
    rows = [{name: leaf[row] for name, leaf in steps.items()} for row in range(stride)]
    first = {name: leaf[0] for name, leaf in carry.items()}
    writer = client.trajectory_writer(num_keep_alive_refs=length)
    written = 0

    def append() -> None:
        nonlocal written
        row = written % stride
        writer.append({"steps": rows[row], "carry": first} if row == 0 else {"steps": rows[row]})
        written += 1

    for _ in range(length - stride):
        append()

    def insert_one() -> None:
        for _ in range(stride):
            append()
        history = writer.history
        first_row = {name: history["carry"][name][-length : 1 - length] for name in carry}
        all_rows = {name: history["steps"][name][-length:] for name in steps}
        writer.create_item(_TABLE, priority=1.0, trajectory={"steps": all_rows, "carry": first_row})

    def insert() -> None:
        for _ in range(command["inserted"]):
            insert_one()
        writer.flush()

    return insert


if __name__ == "__main__":
    answer_measures(prepare)
