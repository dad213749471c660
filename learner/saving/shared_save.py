"""One checkpoint that all hosts of a run save together: whole with every part, or not there."""

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from learner.hosts.peers import Peers
from learner.hosts.waiting import Clock, Waiting
from learner.learning.learn_step import LearnerState
from learner.saving.digest import digests
from learner.saving.restoring import leaves_by_name
from learner.threads.watchdog import exit_now
from learner.threads.worker import ClosedError
from seedrl import checkpoints
from seedrl.checkpoints import OtherWriters, Written, write_part
from seedrl.errors import CheckpointError, HostLostError
from seedrl.exit_codes import ExitCode

_logger = logging.getLogger(__name__)

# How long a host that ends waits until all others know that they end, too.
_END_SECONDS = 20.0


class SharedSave:
    """Saves as `checkpoints.save` does, called on all hosts, each by a thread of its own.

    The first host writes what all have in common, once all have found that it is the same on all of
    them, bit for bit; each writes its own shards of the replay. The first publishes the checkpoint
    when all have written. The steps of that: `folder` and `done`, gathered by all, and between them
    `parts`, which the first one collects; each of them says what has gone wrong so far. Whatever
    that is, each host takes all steps until it has heard of it, or others would wait for ever.
    """

    def __init__(self, peers: Peers):
        self._peers = peers
        self._num_saves = 0
        self._next_step = "folder"  # which the others wait for

    def waited_for(self, thread: str) -> list[int]:
        """Hosts that the thread which saves waits for."""
        return self._peers.waited_for(thread)

    def require_equal(self, step: int, state: LearnerState) -> None:
        """Begins a save. Ends this process, as each host does, if they have not the same `state`.

        Raises CheckpointError on all hosts if one of them could not look at its own.
        """
        self._num_saves += 1
        problem, digest = "", ""
        try:
            digest = digests(leaves_by_name(state._asdict()))["all"]
        except Exception as error:
            _logger.exception("the digest of a checkpoint could not be computed")
            problem = f"{self._peers.place.name}: {_in_words(error)}"
        answers = self._gather("digest", [problem, step, digest])
        _require_none([answer[0] for answer in answers])
        found = [answer[1:] for answer in answers]
        if all(each == found[0] for each in found):
            return
        self._expect_end_of_all()
        texts = [
            f"host {index} {text[:16]} after {n:,} updates" for index, (n, text) in enumerate(found)
        ]
        exit_now(
            "learner: error: expected the same parameters on all hosts, bit for bit, got digests "
            f"{', '.join(texts)}; the run ends, and nothing of this is saved",
            ExitCode.INTERNAL,
        )

    def _expect_end_of_all(self) -> None:
        """Until no host takes the end of another one for a loss, which would be said instead."""
        self._peers.is_ending = True
        clock = Clock(Waiting(lambda: False, _logger.info, _END_SECONDS, "answer"))
        with contextlib.suppress(CheckpointError, HostLostError):  # it ends, too, or is gone
            self._gather("end", "", lambda: clock.tick("", self._peers.waited_for()))

    def save(
        self,
        directory: Path,
        step: int,
        arrays: Mapping[str, Any],
        meta: dict[str, Any],
        *,
        keep: int | None,
        extra: Mapping[str, np.ndarray] | None = None,
    ) -> Path:
        """See `checkpoints.save`; comes after `require_equal`.

        Raises CheckpointError on all hosts if one of them could not write.
        """
        extra = extra or {}
        if not self._peers.place.is_first:
            return self._save_part(directory, step, meta, extra)
        self._next_step = "folder"
        others = OtherWriters(self._begin, lambda: self._collect_parts(meta))
        meta = {**meta, "hosts": self._peers.place.num_hosts}
        try:
            path = checkpoints.save(
                directory, step, arrays, meta, keep=keep, extra=extra, others=others
            )
        except Exception as error:
            self._end_early(_in_words(error))
            raise
        self._gather("done", "")
        return path

    def _save_part(
        self, directory: Path, step: int, meta: Mapping[str, Any], extra: Mapping[str, np.ndarray]
    ) -> Path:
        problem, folder = self._gather("folder", ["", ""])[0]
        _require_none([problem])
        try:
            files = write_part(directory / folder, extra, self._peers.place.host_index)
            self._collect(["", files, meta.get("replay_indices")])
        except Exception as error:
            if not isinstance(error, CheckpointError):
                _logger.exception("a part of a checkpoint could not be written")
            self._collect([f"{self._peers.place.name}: {_in_words(error)}", {}, None])
        _require_none(self._gather("done", "")[:1])
        return directory / f"{step:012d}"

    def _begin(self, folder: Path) -> None:
        self._gather("folder", ["", folder.name])
        self._next_step = "parts"

    def _collect_parts(self, meta: Mapping[str, Any]) -> Written:
        indices = meta.get("replay_indices")
        parts = self._collect(["", {}, indices])
        self._next_step = "done"
        _require_none([part[0] for part in parts])
        files = {name: entry for part in parts for name, entry in part[1].items()}
        if indices is None:
            return Written(files, {})
        return Written(files, {"replay_indices": [index for part in parts for index in part[2]]})

    def _end_early(self, problem: str) -> None:
        """On the first host: takes the steps that are left of a save that has failed."""
        if self._next_step == "folder":
            self._gather("folder", [problem, ""])
            return
        if self._next_step == "parts":
            self._collect([problem, {}, None])
        self._gather("done", problem)

    def _gather(
        self, step: str, value: Any, look: Callable[[], object] = lambda: None
    ) -> list[Any]:
        with _leaving_is_a_problem():
            return self._peers.gather(f"save {self._num_saves} {step}", value, look)

    def _collect(self, part: Any) -> list[Any]:
        with _leaving_is_a_problem():
            return self._peers.collect(f"save {self._num_saves} parts", part)


@contextlib.contextmanager
def _leaving_is_a_problem() -> Iterator[None]:
    try:
        yield
    except ClosedError as error:
        raise CheckpointError("another host has left: nothing can be saved") from error


def _in_words(error: Exception) -> str:
    """What has gone wrong; never nothing, which would say that nothing has."""
    return str(error) if isinstance(error, CheckpointError) else f"{type(error).__name__}: {error}"


def _require_none(problems: Sequence[str]) -> None:
    for problem in filter(None, problems):
        raise CheckpointError(problem)
