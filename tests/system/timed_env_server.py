"""An env server that writes down when each of its streams got how far.

`python -m tests.system.timed_env_server FOLDER ARGUMENTS…`: a file there, with the number of the
process as its name, gets a list for each stream and what happened in it; ARGUMENTS are those of
`python -m envs_server`, which it is otherwise.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, NamedTuple

from envs_server import client
from envs_server.__main__ import main
from seedrl.wire.framing import ActionsPayload, ToEnvServer, ToLearner, WireError
from seedrl.wire.learner_connection import LearnerConnection
from seedrl.wire.seedrl_pb2 import FromEnvServer


class Stream(NamedTuple):
    """A stream as its env server has seen it, on the clock of all processes of the machine.

    Attributes:
      hello: when Hello was given to the transport.
      assigned: when Assign arrived; None if it did not.
      answered: when the first actions arrived.
      ended: when the stream ended; None while it has not.
    """

    hello: float
    assigned: float | None = None
    answered: float | None = None
    ended: float | None = None


class TimedConnection(LearnerConnection):
    """Keeps the line of its stream in the file of the process up to date."""

    folder: Path
    earlier: ClassVar[list[Stream]] = []

    def put(self, message: ToLearner) -> None:
        """Sends it."""
        if isinstance(message, FromEnvServer) and message.HasField("hello"):
            self._write(Stream(time.monotonic()))
        super().put(message)

    def messages(self) -> Iterator[ToEnvServer | WireError]:
        """What arrives."""
        stream = self.earlier[-1]
        try:
            for message in super().messages():
                if stream.assigned is None:
                    stream = self._write(stream._replace(assigned=time.monotonic()), again=True)
                elif stream.answered is None and isinstance(message, ActionsPayload):
                    stream = self._write(stream._replace(answered=time.monotonic()), again=True)
                yield message
        finally:
            self._write(stream._replace(ended=time.monotonic()), again=True)

    def _write(self, stream: Stream, *, again: bool = False) -> Stream:
        self.earlier[-1 if again else len(self.earlier) :] = [stream]
        new = self.folder / f"{os.getpid()}.new"
        new.write_text(json.dumps(self.earlier))
        new.replace(new.with_suffix(".json"))
        return stream


def streams(folder: Path) -> dict[int, list[Stream]]:
    """What such env servers have written, by process."""
    files = folder.glob("*.json")
    return {
        int(file.stem): [Stream(*line) for line in json.loads(file.read_text())] for file in files
    }


if __name__ == "__main__":
    TimedConnection.folder = Path(sys.argv[1])
    client.LearnerConnection = TimedConnection  # type: ignore[misc]
    main(sys.argv[2:])
