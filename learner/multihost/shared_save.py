"""One checkpoint that all hosts of a run save together: whole with every part, or not there."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from learner.multihost.peers import Peers
from learner.runtime.watchdog import exit_now
from learner.runtime.worker import ClosedError
from seedrl.checkpoints import publishing, seal, write_arrays
from seedrl.errors import CheckpointError
from seedrl.exit_codes import ExitCode

_logger = logging.getLogger(__name__)


class _AllKnowError(CheckpointError):
    """A save has failed, and each host has raised this."""


class SharedSave:
    """Saves as `checkpoints.save` does, called on all hosts, each by a thread of its own.

    The first host writes what all have in common, each its own shards of the replay. All take the
    same steps:

    | step | the first host gives | others give |
    |---|---|---|
    | digest | of its state | of their state |
    | folder | where it is written | nothing |
    | parts | its page indices | names and sums of their files, their page indices |
    | done | nothing: it is published | nothing |

    A host on which something goes wrong gives the problem in its next step, which ends the save on
    all hosts: none waits for a step that another does not take.
    """

    def __init__(self, peers: Peers):
        self._peers = peers

    def require_equal(self, step: int, digest: Callable[[], str]) -> None:
        """Begins a save of update `step`. Ends the processes of all hosts if digests differ."""
        found = self._attempt(lambda: [step, digest()])
        if all(each == found[0] for each in found):
            return
        # No host takes the end of another one, which may come first, for a loss.
        self._peers.leave()
        texts = [
            f"host {index} {text[:16]} after {n:,} updates" for index, (n, text) in enumerate(found)
        ]
        exit_now(
            "learner: error: expected the same parameters on all hosts, bit for bit, got digests "
            f"{', '.join(texts)}; the run ends, and nothing of this is saved",
            ExitCode.INTERNAL,
        )

    def save(
        self,
        directory: Path,
        step: int,
        arrays: Mapping[str, Any],
        meta: Mapping[str, Any],
        *,
        keep: int,
        extra: Mapping[str, np.ndarray] | None = None,
    ) -> Path:
        """See `checkpoints.save`; comes after `require_equal`. Raises on all hosts alike."""
        indices = meta.get("replay_indices")
        if not self._peers.topology.is_first:
            folder = directory / str(self._give()[0])
            part = self._peers.topology.process_index
            self._attempt(lambda: [write_arrays(folder, {}, extra or {}, part=part), indices])
            self._give()
            return directory / f"{step:012d}"

        def save_all() -> str:
            # Published at its end: what a host that dies before leaves is never read.
            with publishing(directory, step, keep=keep) as folder:
                (folder / "extra").mkdir()
                self._give(folder.name)
                write_arrays(folder, arrays, extra or {})
                parts = self._give([{}, indices])
                entries = {name: entry for part in parts for name, entry in part[0].items()}
                records = {**meta, "hosts": self._peers.topology.process_count}
                if indices is not None:
                    records["replay_indices"] = [each for part in parts for each in part[1]]
                seal(folder, step, records, entries)
            return str(directory / f"{step:012d}")

        return Path(self._attempt(save_all)[0])

    def _attempt(self, work: Callable[[], Any]) -> list[Any]:
        # Gives what `work` returns or raises. Raises CheckpointError if it is raised anywhere.
        try:
            value = work()
        except _AllKnowError:
            raise
        except Exception as error:
            if not isinstance(error, CheckpointError):
                _logger.exception("a part of a checkpoint could not be written")
            # Never empty, which would say that nothing is wrong.
            text = str(error) if isinstance(error, CheckpointError) else ""
            text = text or f"{type(error).__name__}: {error}"
            return self._give(problem=f"{self._peers.topology.name}: {text}")
        return self._give(value)

    def _give(self, value: Any = None, problem: str = "") -> list[Any]:
        # The next step: what all give. Raises CheckpointError if one of them has a problem.
        try:
            answers = self._peers.gather("save", [problem, value])
        except ClosedError as error:
            raise _AllKnowError("the hosts have parted: nothing can be saved") from error
        for each, _ in answers:
            if each:
                raise _AllKnowError(each)
        return [value for _, value in answers]
