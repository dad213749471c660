"""What hosts say to each other while they run, and how each notices that another is lost."""

import contextlib
import json
import logging
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

from learner.multihost.topology import ALONE, Topology
from learner.runtime.watchdog import Watchdog, exit_hung, exit_now
from learner.runtime.worker import ClosedError
from seedrl.exit_codes import ExitCode
from seedrl.wire.printable import printable

_logger = logging.getLogger(__name__)

_LENGTH = struct.Struct("!I")
# What the indices of all hosts' shards take at a save, by far.
LONGEST_BYTES = 1 << 28
_CHUNK_BYTES = 1 << 16
# How long a peer may leave unread what it is sent.
_SEND_SECONDS = 20.0
# Beats: a process that is silent for longer is lost, for whatever reason, since the others wait.
_SILENT_BEATS = 20
_TICK_SECONDS = 0.1
_BLAME_SECONDS = 3.0
# By then a host whose own thread hangs has ended, with a code that says so.
_OTHERS_SECONDS = 30.0


class MessageSocket:
    """A socket that carries JSON objects, each after its length. Any thread sends; one receives.

    Sending never waits for ever: a peer that reads nothing is an OSError after 20 seconds.
    """

    def __init__(self, connection: socket.socket):
        """Takes the socket over."""
        connection.settimeout(_SEND_SECONDS)
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connection
        self._sending = threading.Lock()
        self._received = bytearray()
        self.longest_bytes = LONGEST_BYTES  # of a message that is received

    def fileno(self) -> int:
        """For `select`."""
        return self._socket.fileno()

    def send(self, message: Any) -> None:
        """Sends a message. Raises OSError if the peer is gone or does not read."""
        data = _packed(message)
        with self._sending:
            self._socket.sendall(data)

    def beat(self) -> None:
        """Says that this host is alive, unless something else is being said. Raises as `send`."""
        if self._sending.acquire(blocking=False):
            try:
                self._socket.sendall(_packed({}))
            finally:
                self._sending.release()

    def receive(self) -> Iterator[Any]:
        """What has arrived: call it when the socket is readable; maybe nothing is whole yet.

        Raises EOFError if the peer has closed, OSError if it is gone, ValueError for what is no
        message.
        """
        data = self._socket.recv(_CHUNK_BYTES)
        if not data:
            raise EOFError
        self._received += data
        while len(self._received) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._received)
            if length > self.longest_bytes:
                raise ValueError(f"expected at most {self.longest_bytes:,} bytes, got {length:,}")
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


def _packed(message: Any) -> bytes:
    data = json.dumps(message, separators=(",", ":")).encode()
    return _LENGTH.pack(len(data)) + data


def exit_lost(line: str) -> NoReturn:
    """Ends this process at once, for another host is lost. Nothing is saved.

    Whatever it takes part in, a collective say, may never end: nothing here is waited for.
    """
    exit_now(
        f"learner: error: {line}; the run ends, and its newest checkpoint is that of its last "
        "save: start all hosts again to resume",
        ExitCode.TEMPORARY,
    )
    raise AssertionError("unreachable")


class Peers:
    """This host's connections to the others, all of them through the first host.

    What hosts do together they name by a tag, in which all of them must agree; any number of
    threads may gather, each under tags of its own. Owns one thread, which alone receives, and the
    sockets; alone neither.

    A host that fails, is gone or falls silent before the end that all agreed on is lost: `on_loss`
    is called, by default `exit_lost`, in each process that is left. The first host notices it of
    all others and tells them; they notice it of the first.

    Attributes:
      topology: this host's.
      waiting: names of the threads that wait for other hosts.
    """

    def __init__(
        self,
        topology: Topology = ALONE,
        links: Mapping[int, MessageSocket] | None = None,
        *,
        beat_seconds: float = 1.0,
        on_loss: Callable[[str], object] = exit_lost,
    ):
        """Starts to listen.

        Args:
          topology: this host's.
          links: of the first host one to each other one, of these one to the first.
          beat_seconds: how often a host says that it is alive.
          on_loss: takes a line that names the host.
        """
        self.topology = topology
        self.waiting: set[str] = set()
        self._links = dict(links or {})
        self._beat_seconds, self._on_loss = beat_seconds, on_loss
        self._silent = dict.fromkeys(self._links, 0)  # beats since something was received
        self._changed = threading.Condition()  # guards what follows
        self._given: dict[str, dict[int, Any]] = {}  # on the first host, until all have given
        self._gathered: dict[str, list[Any]] = {}
        self._left: set[int] = set()  # hosts that have come to the end of the run
        # This host ends too, for a reason of its own: no other one is lost any more.
        self._is_ending = False
        self._thread = threading.Thread(target=self._run, name="hosts", daemon=True)
        if self._links:
            self._thread.start()

    def gather(self, tag: str, value: Any, poll: Callable[[], object] = lambda: None) -> list[Any]:
        """What all hosts give under this tag, in their order; waits for them.

        Args:
          tag: never used before.
          value: anything that JSON can hold.
          poll: called several times a second meanwhile; may raise.

        Raises ClosedError if this host ends, or another has left.
        """
        if self.topology.process_count == 1:
            return [value]
        if self.topology.is_first:
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
                    self._changed.wait(_TICK_SECONDS)
                poll()  # without the lock, which the thread that receives needs
        finally:
            self.waiting.discard(name)

    def leave(self) -> None:
        """This host has come to the end of the run, as all do. Nothing can be gathered any more."""
        self._end({"left": self.topology.process_index})

    def fail(self, problem: str) -> None:
        """This host ends before the others, which end at once, each with a line that says why."""
        self._end({"lost": self.topology.process_index, "why": printable(problem, 1000)})

    def close(self) -> None:
        """Ends the connections without a word, which the others take for a loss."""
        with self._changed:
            self._is_ending = True
            self._changed.notify_all()
        for link in self._links.values():
            link.shut()
        if self._thread.ident is None or self._thread is threading.current_thread():
            return
        self._thread.join()
        for link in self._links.values():
            link.close()

    def blamed(self, body: Callable[[], object]) -> Callable[[], object]:
        """`body`, whose errors wait for some seconds, in which a loss ends this process.

        What a collective raises when a peer has died may come before anybody has noticed that.
        """
        if self.topology.process_count == 1:
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

    def end_if_stuck(self, seconds: float, watchdog: Watchdog) -> None:
        """Ends the process if a thread hangs, which can be neither joined nor saved from.

        Called several times a second, by the watchdog's thread. A thread that waits for another
        host, whose own watchdog ends that one first, has half a minute more.
        """
        late = [name for name in watchdog.late(seconds) if name not in self.waiting]
        late = late or watchdog.late(seconds + _OTHERS_SECONDS)
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
        """On the first host: what a host gives. The last one completes it, for all."""
        with self._changed:
            given = self._given.setdefault(tag, {})
            given[index] = value
            if len(given) < self.topology.process_count:
                return
            del self._given[tag]
            values = [given[each] for each in range(self.topology.process_count)]
        for other in self._links:
            self._send(other, {"all": tag, "values": values})
        self._complete(tag, values)

    def _complete(self, tag: str, values: list[Any]) -> None:
        with self._changed:
            self._gathered[tag] = values
            self._changed.notify_all()

    def _send(self, index: int, message: Mapping[str, Any] | None) -> None:
        """`message`: None for a beat."""
        link = self._links[index]
        try:
            link.beat() if message is None else link.send(message)
        except ConnectionError:
            # What it has said last, maybe why it ends, may be unread yet. The thread that receives
            # reads that first, and then finds that it is gone.
            pass
        except OSError as error:
            self._lose(index, f"it does not take what it is sent ({error})")

    def _run(self) -> None:
        try:
            self._receive_all()
        except Exception as error:
            # A defect of ours: without this thread neither this host nor another one would notice
            # anything any more.
            _logger.exception("the thread of the hosts has failed")
            self._lose(self.topology.process_index, f"{type(error).__name__}: {error}")

    def _receive_all(self) -> None:
        with selectors.DefaultSelector() as selector:
            for index, link in self._links.items():
                selector.register(link, selectors.EVENT_READ, index)
            next_beat = time.monotonic() + self._beat_seconds
            while not self._is_ending:
                for key, _ in selector.select(max(0.0, next_beat - time.monotonic())):
                    if not self._receive(key.data):
                        selector.unregister(key.fileobj)
                if time.monotonic() >= next_beat:
                    # From now: time in which this process was suspended is nobody else's silence.
                    next_beat = time.monotonic() + self._beat_seconds
                    self._beat()

    def _beat(self) -> None:
        for index in self._links.keys() - self._left:
            self._silent[index] += 1
            if self._silent[index] > _SILENT_BEATS:
                seconds = _SILENT_BEATS * self._beat_seconds
                self._lose(index, f"it has said nothing for {seconds:.0f} s")
            self._send(index, None)

    def _receive(self, index: int) -> bool:
        """Receives from one host; whether more is to be expected of it."""
        try:
            for message in self._links[index].receive():
                self._handle(message, index)
            self._silent[index] = 0  # a long message arrives in many parts
        except (EOFError, OSError):
            self._lose(index, "it is gone")
            return False
        except (ValueError, KeyError, TypeError) as error:
            self._lose(index, f"it cannot be understood ({type(error).__name__}: {error})")
            return False
        return True

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
        """May be called by two threads at once, one of which sends and one receives."""
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
