"""What hosts say to each other while they run, and how each notices that another is lost."""

import contextlib
import logging
import selectors
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from learner.hosts.host_loss import exit_lost, why_lost
from learner.hosts.messages import MessageSocket
from learner.hosts.place import ALONE, Place
from learner.threads.worker import ClosedError
from seedrl.wire.printable import printable

_logger = logging.getLogger(__name__)

# Beats: a process that is silent for longer is lost, for whatever reason, since the others wait.
SILENT_BEATS = 20
_TICK_SECONDS = 0.1
_BLAME_SECONDS = 3.0
_LONGEST_PROBLEM = 1000


class Peers:
    """This host's connections to the others, all of them through the first host.

    What hosts do together they name by a tag, in which all of them must agree; any number of
    threads may gather, each under tags of its own. Owns one thread and the sockets; alone neither.

    A host that falls silent, or is gone without a farewell, is lost: `on_loss` is called, by
    default `exit_lost`, in each process that is left, by the thread that notices it. The first host
    notices it of all others, and they of the first.

    Attributes:
      place: this host's.
      left: why hosts have left before the end that all agreed on, by their indices.
      is_ending: whether this host has an end of its own to report, and so no other one is lost.
    """

    def __init__(
        self,
        place: Place = ALONE,
        links: Mapping[int, MessageSocket] | None = None,
        *,
        beat_seconds: float = 1.0,
        silent_beats: int = SILENT_BEATS,
        on_loss: Callable[[str], object] = exit_lost,
    ):
        """Starts to listen.

        Args:
          place: this host's.
          links: of the first host one to each other one, of these one to the first.
          beat_seconds: how often a host says that it is alive.
          silent_beats: how many of these may be missing in a row.
          on_loss: takes a line that names the host.
        """
        self.place = place
        self.left: dict[int, str] = {}
        self.is_ending = False
        self._links = dict(links or {})
        self._beat_seconds, self._silent_beats = beat_seconds, silent_beats
        self._silent = dict.fromkeys(self._links, 0)  # beats since something was heard
        self._on_loss = on_loss
        self._changed = threading.Condition()  # guards what follows
        self._given: dict[str, dict[int, Any]] = {}
        self._gathered: dict[str, list[Any]] = {}
        self._waiting: dict[str, str] = {}  # tags, by the names of the threads that wait
        self._is_closed = self._has_lost = False
        self._thread = threading.Thread(target=self._run, name="hosts", daemon=True)
        if self._links:
            self._thread.start()

    def gather(self, tag: str, value: Any, look: Callable[[], object] = lambda: None) -> list[Any]:
        """What all hosts give under this tag, in their order; waits for them.

        Args:
          tag: never used before.
          value: anything that JSON can hold.
          look: called several times a second meanwhile; may raise.

        Raises ClosedError if a host has left.
        """
        if self.place.num_hosts == 1:
            return [value]
        self._give(tag, value, told=range(1, self.place.num_hosts))
        return self._awaited(tag, look)

    def collect(self, tag: str, value: Any) -> list[Any]:
        """As `gather`, for the first host alone: the others get nothing, and do not wait.

        What is large goes to one host, then, and not to all.
        """
        if self.place.num_hosts == 1:
            return [value]
        self._give(tag, value, told=())
        return self._awaited(tag) if self.place.is_first else []

    def waited_for(self, thread: str = "") -> list[int]:
        """Hosts that a thread, by default this one, waits for; of others than the first: that one.

        Empty if it does not wait.
        """
        with self._changed:
            tag = self._waiting.get(thread or threading.current_thread().name)
            if tag is None or tag in self._gathered:
                return []
            given = self._given.get(tag, {})
            asked = range(self.place.num_hosts) if self.place.is_first else [0]
            return [index for index in asked if index not in given]

    def leave(self, reason: str) -> None:
        """Says farewell: this host ends, and is not lost. Nothing can be gathered any more."""
        self._say_last({"left": self.place.host_index, "reason": reason})

    def fail(self, problem: str) -> None:
        """Says that this host ends of an error, which ends the others at once, in one line."""
        why = f"has failed: {printable(problem, _LONGEST_PROBLEM)}"
        self._say_last({"lost": self.place.host_index, "why": why})

    def _say_last(self, message: Mapping[str, Any]) -> None:
        # They end too, maybe before all have heard it: this host has an end of its own to report.
        self.is_ending = True
        for index in list(self._links):
            self._send(index, message)
        self.close()

    def close(self) -> None:
        """Ends the connections without a farewell, which the others take for a loss."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        for link in self._links.values():
            link.shut()
        if self._thread.ident is None or self._thread is threading.current_thread():
            return
        self._thread.join()
        for link in self._links.values():
            link.close()

    def blamed(self, body: Callable[[], object]) -> Callable[[], object]:
        """`body`, whose error is put down to another host where one is lost in these seconds.

        What a collective raises when a peer has died may come before anybody has noticed that.
        """
        if self.place.num_hosts == 1:
            return body

        def run() -> object:
            try:
                return body()
            except ClosedError:
                raise
            except Exception:
                time.sleep(_BLAME_SECONDS)
                raise

        return run

    def _give(self, tag: str, value: Any, told: Sequence[int]) -> None:
        if self.place.is_first:
            self._take(0, tag, value, told)
        else:
            self._send(0, {"tag": tag, "value": value, "told": list(told)})

    def _awaited(self, tag: str, look: Callable[[], object] = lambda: None) -> list[Any]:
        thread = threading.current_thread().name
        self._waiting[thread] = tag
        try:
            while True:
                with self._changed:
                    if tag in self._gathered:
                        return self._gathered.pop(tag)
                    if self.left or self._is_closed:
                        raise ClosedError
                    self._changed.wait(_TICK_SECONDS)
                look()  # without the lock, which the thread that listens needs
        finally:
            self._waiting.pop(thread, None)

    def _take(self, index: int, tag: str, value: Any, told: Sequence[int]) -> None:
        """On the first host: what a host gives. The last one completes it for it and for `told`."""
        with self._changed:
            given = self._given.setdefault(tag, {})
            given[index] = value
            if len(given) < self.place.num_hosts:
                return
            values = [given[each] for each in range(self.place.num_hosts)]
        for other in told:
            self._send(other, {"all": tag, "values": values})
        self._complete(tag, values)

    def _complete(self, tag: str, values: list[Any]) -> None:
        with self._changed:
            self._given.pop(tag, None)
            self._gathered[tag] = values
            self._changed.notify_all()

    def _send(self, index: int, message: Any) -> None:
        try:
            self._links[index].send(message)
        except ConnectionError:
            # What it has said last, a farewell maybe, may be unread yet. The thread that listens
            # reads that first, and then finds that it is gone.
            pass
        except OSError as error:
            self._lose(index, why_lost(error))
        except TypeError as error:
            # Ours, not that of the host which gave the last value of a tag.
            raise RuntimeError(f"expected a value that JSON holds ({error})") from error

    def _run(self) -> None:
        try:
            self._listen_to_all()
        except Exception as error:
            # A defect of ours, say a value that JSON does not hold: without this thread neither
            # this host nor another one would notice anything any more.
            _logger.exception("the thread of the hosts has failed")
            self._end_of(self.place.host_index, f"has failed: {type(error).__name__}: {error}")

    def _listen_to_all(self) -> None:
        with selectors.DefaultSelector() as selector:
            for index, link in self._links.items():
                selector.register(link, selectors.EVENT_READ, index)
            next_beat = time.monotonic() + self._beat_seconds
            while not self._is_closed:
                for key, _ in selector.select(max(0.0, next_beat - time.monotonic())):
                    if not self._listen(key.data):
                        selector.unregister(key.fileobj)
                if time.monotonic() >= next_beat:
                    # From now: time in which this process was suspended is nobody else's silence.
                    next_beat = time.monotonic() + self._beat_seconds
                    self._beat()

    def _beat(self) -> None:
        for index, link in self._links.items():
            if index in self.left or self._is_closed:
                continue
            self._silent[index] += 1
            if self._silent[index] > self._silent_beats:
                seconds = self._silent_beats * self._beat_seconds
                self._lose(index, f"has said nothing for {seconds:.0f} s")
            try:
                link.beat()
            except ConnectionError:
                pass  # see `_send`
            except OSError as error:
                self._lose(index, why_lost(error))

    def _listen(self, index: int) -> bool:
        """Hears one host; whether more is to be expected of it."""
        try:
            messages = self._links[index].receive()
            while (message := next(messages, None)) is not None:
                self._silent[index] = 0
                self._hear(index, message)
            self._silent[index] = 0  # a long message arrives in many parts
        except (EOFError, OSError, ValueError, KeyError, TypeError) as error:
            self._lose(index, why_lost(error))
            return False
        return True

    def _hear(self, index: int, message: Mapping[str, Any]) -> None:
        if "tag" in message:
            self._take(index, str(message["tag"]), message["value"], message["told"])
        elif "all" in message:
            self._complete(str(message["all"]), list(message["values"]))
        elif "lost" in message:
            if int(message["lost"]) == index:
                self._lose(index, str(message["why"]))  # tells the others, too
            else:
                self._has_lost = True
                self._end_of(int(message["lost"]), str(message["why"]))
        elif "left" in message:
            who = int(message["left"])
            with self._changed:
                self.left[who] = str(message["reason"])
                self._changed.notify_all()
            if self.place.is_first:
                for other in self._links.keys() - {who}:
                    self._send(other, message)

    def _lose(self, index: int, why: str) -> None:
        if self._is_closed or self._has_lost or index in self.left:
            return
        self._has_lost = True
        if self.place.is_first:
            for other, link in self._links.items():
                if other != index and other not in self.left:
                    # One that does not hear it will notice by itself, or is lost too.
                    with contextlib.suppress(OSError):
                        link.send({"lost": index, "why": why})
        self._end_of(index, why)

    def _end_of(self, index: int, why: str) -> None:
        if not self.is_ending:
            self._on_loss(f"host {index} of {self.place.num_hosts} is lost: it {why}")
