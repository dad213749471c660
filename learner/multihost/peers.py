"""What hosts say to each other while they run, and how each notices that another is lost."""

import contextlib
import json
import logging
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from learner.multihost.topology import ALONE, Topology
from learner.runtime.watchdog import Watchdog, exit_hung, exit_now
from learner.runtime.worker import ClosedError
from seedrl.errors import UserError
from seedrl.exit_codes import ExitCode
from seedrl.timing import GRACE_SECONDS, POLL_SECONDS
from seedrl.wire.contract import printable

_logger = logging.getLogger(__name__)

_LENGTH = struct.Struct("!I")
# Far more than the spec of any environment, the longest that hosts tell each other.
LONGEST_BYTES = 1 << 24
_CHUNK_BYTES = 1 << 16
# A host is lost that sends nothing, or leaves unread what it is sent, for longer: all others wait
# for it. Also the margin in which the watchdog of a host that hangs ends that host first.
LOST_SECONDS = 20.0


class MessageSocket:
    """A socket that carries JSON objects, each after its length. Any thread sends; one receives."""

    def __init__(self, connection: socket.socket):
        if connection.family != socket.AF_UNIX:
            # Votes are short, and everyone waits for them.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connection
        self._sending = threading.Lock()
        self._received = bytearray()
        self.limit(LOST_SECONDS, LONGEST_BYTES)

    def limit(self, seconds: float, longest_bytes: int) -> None:
        """How long a peer may neither send nor read, and the length of a message from it."""
        self._socket.settimeout(seconds)
        self._longest_bytes = longest_bytes

    def send(self, message: Any, *, unless_busy: bool = False) -> None:
        """Sends a message; `unless_busy`: only if no other thread is sending.

        Raises OSError if the peer is gone, or reads nothing for too long.
        """
        data = json.dumps(message, separators=(",", ":")).encode()
        if self._sending.acquire(blocking=not unless_busy):
            try:
                self._socket.sendall(_LENGTH.pack(len(data)) + data)
            finally:
                self._sending.release()

    def receive(self) -> Iterator[Any]:
        """Waits for bytes, and gives the messages that are whole now; maybe there is none.

        Raises TimeoutError if nothing comes for too long, EOFError if the peer has closed, OSError
        if it is gone, ValueError for what is no message.
        """
        data = self._socket.recv(_CHUNK_BYTES)
        if not data:
            raise EOFError
        self._received += data
        while len(self._received) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._received)
            if length > self._longest_bytes:
                raise ValueError(f"expected at most {self._longest_bytes:,} bytes, got {length:,}")
            end = _LENGTH.size + length
            if len(self._received) < end:
                return
            try:
                message = json.loads(bytes(self._received[_LENGTH.size : end]))
            except RecursionError as error:
                raise ValueError("expected an object that is not nested so deep") from error
            del self._received[:end]
            if not isinstance(message, dict):
                raise ValueError(f"expected an object, got {type(message).__name__}")
            yield message

    def shut(self) -> None:
        """Ends the connection; a thread that waits for it finds that out, and may still use it."""
        with contextlib.suppress(OSError):  # the peer has closed it
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Ends the connection, and closes the socket, which no thread may use any more."""
        self.shut()
        self._socket.close()


def exit_lost(line: str) -> None:
    """Ends this process at once, because another host is lost. Nothing is saved."""
    # A collective that the lost host takes part in may never end: nothing is waited for.
    exit_now(
        f"learner: error: {line}; the run ends, and its newest checkpoint is that of its last "
        "save: start all hosts again to resume",
        ExitCode.TEMPORARY,
    )


class Peers:
    """This host's connections to the others, all of them through the first host.

    Hosts name what they do together by a tag. Several threads may gather at once, each under tags
    of its own. Owns the sockets, a thread for each that receives, and one that shows that this host
    is alive; alone none of these.

    A host that fails, is gone or falls silent before the end that all agreed on is lost: `on_loss`
    is called, by default `exit_lost`, in each process that is left. The first host notices it of
    all others and tells them; they notice it of the first.
    """

    def __init__(
        self,
        topology: Topology = ALONE,
        links: Mapping[int, MessageSocket] | None = None,
        *,
        lost_seconds: float = LOST_SECONDS,
        on_loss: Callable[[str], object] = exit_lost,
    ):
        # The first host has a link to each other one, these one to the first. `on_loss` takes a
        # line that names the host.
        self.topology = topology
        # Threads that wait for other hosts. Each adds and removes its own name; the watchdog's
        # thread only looks.
        self.waiting: set[str] = set()
        self._links = dict(links or {})
        # Twenty signs of life in that time: a few that are late are no loss.
        self._beat_seconds, self._on_loss = lost_seconds / 20, on_loss
        # One message after the other, as if there were one thread that receives. A host that has
        # its values may leave while others are still being sent theirs: they, and this host, must
        # have these before they learn that it has left.
        self._handling = threading.Lock()
        self._changed = threading.Condition()  # guards what follows
        self._given: dict[str, dict[int, Any]] = {}  # on the first host, until all have given
        self._gathered: dict[str, list[Any]] = {}
        self._left: set[int] = set()  # hosts that have come to the end of the run
        # This host ends too, for a reason of its own: no other one is lost any more.
        self._is_ending = False
        self._threads = [
            threading.Thread(target=self._guarded, args=work, name="hosts", daemon=True)
            for work in [*((self._receive, index) for index in self._links), (self._beat,)]
            if self._links
        ]
        for link in self._links.values():
            link.limit(lost_seconds, LONGEST_BYTES)
        for thread in self._threads:
            thread.start()

    def gather(self, tag: str, value: Any, poll: Callable[[], object] = lambda: None) -> list[Any]:
        """What all hosts give under this tag, in their order; waits for them.

        `value` is anything that JSON can hold; `poll` is called several times a second meanwhile,
        and may raise. Raises ClosedError if this host ends, or another has left.
        """
        # A tag is one thread's of each host, again and again. A round ends for a host before it can
        # give its value of the next, so that two rounds are never mixed.
        if self.topology.process_count == 1:
            return [value]
        if self.topology.is_first:
            with self._handling:
                self._take(0, tag, value)
        else:
            self._send(0, {"tag": tag, "value": value})
        name = threading.current_thread().name
        self.waiting.add(name)
        try:
            while True:
                with self._changed:
                    if tag in self._gathered:
                        return self._gathered.pop(tag)
                    if self._left or self._is_ending:
                        raise ClosedError
                    # Not for ever: `poll`, below, may have to raise.
                    self._changed.wait(POLL_SECONDS)
                poll()  # without the lock, which the thread that receives needs
        finally:
            self.waiting.discard(name)

    def leave(self) -> None:
        """This host has come to the end of the run, as all do. Nothing can be gathered any more."""
        self._end({"left": self.topology.process_index})

    def fail(self, problem: str | BaseException) -> None:
        """This host ends before the others, which end at once, each with a line that says why."""
        if isinstance(problem, BaseException):
            name = "" if isinstance(problem, UserError) else f"{type(problem).__name__}: "
            problem = f"{name}{problem}"
        self._end({"lost": self.topology.process_index, "why": printable(problem, 1000)})

    def close(self) -> None:
        """Ends the connections without a word, which the others take for a loss."""
        with self._changed:
            self._is_ending = True
            self._changed.notify_all()
        for link in self._links.values():
            link.shut()
        if threading.current_thread() not in self._threads:
            for thread in self._threads:
                thread.join()
            for link in self._links.values():
                link.close()

    def blamed(self, body: Callable[[], object]) -> Callable[[], object]:
        """`body`, whose errors wait for some seconds, in which a loss ends this process."""

        def run() -> object:
            try:
                return body()
            except ClosedError:
                raise
            except Exception:
                # What a collective raises when a peer has died may come before that is noticed.
                time.sleep(GRACE_SECONDS)
                raise

        return run if self._links else body

    def end_if_stuck(self, seconds: float, watchdog: Watchdog) -> None:
        """Ends the process if a thread hangs. Called by the watchdog's thread, again and again."""
        # One that waits for another host has more time: the watchdog of that host comes first.
        late = [name for name in watchdog.late(seconds) if name not in self.waiting]
        late = late or watchdog.late(seconds + LOST_SECONDS)
        if late:
            exit_hung(
                f"{' and '.join(late)} finished nothing for {seconds:.0f} seconds "
                "(logging.stuck_seconds)",
                ExitCode.TEMPORARY,
            )

    def _end(self, message: Mapping[str, Any]) -> None:
        if self._is_ending:
            return
        # First: the others end too, maybe before all have received it, and are not lost by that.
        self._is_ending = True
        for index in list(self._links):
            self._send(index, message)
        self.close()

    def _take(self, index: int, tag: str, value: Any) -> None:
        # On the first host: what a host gives. The last one completes it, for all.
        with self._changed:
            given = self._given.setdefault(tag, {})
            given[index] = value
            if len(given) < self.topology.process_count:
                return
            del self._given[tag]
            values = [given[each] for each in range(self.topology.process_count)]
        # Without `_changed`: a host that reads slowly must not keep threads here from looking.
        for other in self._links:
            self._send(other, {"all": tag, "values": values})
        self._complete(tag, values)

    def _complete(self, tag: str, values: list[Any]) -> None:
        with self._changed:
            self._gathered[tag] = values
            self._changed.notify_all()

    def _send(self, index: int, message: Mapping[str, Any], *, unless_busy: bool = False) -> None:
        try:
            self._links[index].send(message, unless_busy=unless_busy)
        except ConnectionError:
            # What it has said last, maybe why it ends, may be unread yet. The thread that receives
            # reads that first, and then finds that it is gone.
            pass
        except OSError as error:
            self._lose(index, f"it does not take what it is sent ({error})")

    def _guarded(self, work: Callable[..., None], *arguments: Any) -> None:
        try:
            work(*arguments)
        except Exception as error:
            # A defect of ours: without this thread neither this host nor another one would notice
            # anything any more.
            _logger.exception("a thread of the hosts has failed")
            self._lose(self.topology.process_index, f"{type(error).__name__}: {error}")

    def _beat(self) -> None:
        while not self._is_ending:
            for index in self._links.keys() - self._left:
                # Whoever sends something else at the moment is heard of by that.
                self._send(index, {}, unless_busy=True)
            with self._changed:
                self._changed.wait_for(lambda: self._is_ending, self._beat_seconds)

    def _receive(self, index: int) -> None:
        # In a thread of its own: from one host, until it is gone or this one ends.
        try:
            while not self._is_ending:
                for message in self._links[index].receive():
                    with self._handling:
                        self._handle(message, index)
        # Not by a clock: of a process that was suspended the kernel has kept what others sent.
        except TimeoutError:
            self._lose(index, "it has said nothing for too long")
        except (EOFError, OSError):
            self._lose(index, "it is gone")
        except (ValueError, KeyError, TypeError) as error:
            self._lose(index, f"it cannot be understood ({type(error).__name__}: {error})")

    def _handle(self, message: Mapping[str, Any], sender: int) -> None:
        if "tag" in message:
            self._take(sender, str(message["tag"]), message["value"])
        elif "all" in message:
            self._complete(str(message["all"]), list(message["values"]))
        elif "lost" in message:
            self._lose(int(message["lost"]), str(message["why"]))
        elif "left" in message:
            who = int(message["left"])
            with self._changed:
                self._left.add(who)
                self._changed.notify_all()
            if self.topology.is_first:
                for other in self._links.keys() - {who}:
                    self._send(other, message)

    def _lose(self, index: int, why: str) -> None:
        # Two threads may come here at once, one of which sends and one receives: the first counts.
        with self._changed:
            if self._is_ending or index in self._left:
                return
            self._is_ending = True
            self._changed.notify_all()
        if self.topology.is_first:
            for other in self._links.keys() - self._left - {index}:
                # One that does not receive it will notice by itself, or is lost too.
                with contextlib.suppress(OSError):
                    self._links[other].send({"lost": index, "why": why})
        self._on_loss(f"host {index} of {self.topology.process_count} is lost: {why}")
