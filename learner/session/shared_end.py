"""The end of a run that several hosts share: for all of them at the same update."""

from collections.abc import Callable

from learner.multihost.agreement import Hosts
from learner.session.end_of_run import EndOfRun
from seedrl.errors import UserError

# What ends one host alone: the others find that it is lost.
_OWN = (EndOfRun.MISTAKE, EndOfRun.FAILED)


class SharedEnd:
    """Brings the end that this host has come to before the others. Used by the main thread.

    Alone it is over at once.

    Attributes:
      reason: why the run is over for all, in words; empty if that was not agreed.
    """

    def __init__(self, hosts: Hosts):
        self._hosts = hosts
        self.reason = ""

    def is_over(self, ended: EndOfRun | None, why: Callable[[EndOfRun], str]) -> bool:
        """Whether this host stops now.

        Args:
          ended: what it has come to by itself.
          why: says so in words.
        """
        agenda = self._hosts.agenda
        if self._hosts.is_alone or ended in _OWN:
            return ended is not None
        if ended is not None and not agenda.wants_end:
            agenda.wants_end = f"{ended.name} {why(ended)}"
        return bool(agenda.end)

    def outcome(self) -> EndOfRun | None:
        """What all hosts have come to; None if this one ends alone."""
        if not self._hosts.agenda.end:
            return None
        name, _, self.reason = self._hosts.agenda.end.partition(" ")
        return EndOfRun[name]

    def can_save(self) -> bool:
        """Whether there is somebody to save with: all hosts, at the same update."""
        return self._hosts.is_alone or bool(self._hosts.agenda.end)

    def leave(self) -> None:
        """After the last save: what is raised from here on is no failure to hosts that end, too."""
        if self._hosts.agenda.end:
            self._hosts.peers.leave()

    def go_alone(self, failure: BaseException | None) -> None:
        """Ends the others, with why this host ends without them: `failure`, if that is known."""
        text = str(failure or "see its log")
        if failure is not None and not isinstance(failure, UserError):
            text = f"{type(failure).__name__}: {failure}"
        self._hosts.peers.fail(text)
