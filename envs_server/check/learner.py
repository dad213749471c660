"""The learner's side of the wire, played message by message, and the process that is on trial."""

import contextlib
import os
import queue
import shlex
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Self

import grpc

from seedrl.errors import UserError
from seedrl.wire.channel import CONNECT, SERVICE, server_options
from seedrl.wire.printable import printable

MAX_MESSAGE_BYTES = 64 * 2**20
_STREAMS = 16
_END_SECONDS = 5.0
_LAST_LINES = 5  # a usage error has its reason above or below the usage


class _Status(NamedTuple):
    code: grpc.StatusCode
    details: str


class Stream:
    """One stream. Its methods are one thread's; a thread of its own fills the inbox."""

    def __init__(self, requests: Iterator[bytes]) -> None:
        self._inbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._outbox: queue.SimpleQueue[bytes | _Status] = queue.SimpleQueue()
        self._has_ended = False
        threading.Thread(target=self._read, args=(requests,), daemon=True).start()

    def receive(self, seconds: float) -> bytes | None:
        """The next message, None at the end. Raises queue.Empty if none arrives in time."""
        return self._inbox.get(timeout=seconds)

    @property
    def is_quiet(self) -> bool:
        """True if nothing has arrived that was not received."""
        return self._inbox.empty()

    def send(self, message: bytes) -> None:
        """Sends an encoded FromLearner."""
        self._outbox.put(message)

    def end(self, code: grpc.StatusCode, details: str = "") -> None:
        """Ends the stream, once."""
        if not self._has_ended:
            self._has_ended = True
            details = details or f"seedrl check-env-server tries {code.name}"
            self._outbox.put(_Status(code, details))

    def answers(self, context: grpc.ServicerContext) -> Iterator[bytes]:
        """The messages for gRPC to send, until the stream ends on either side."""
        gone = _Status(grpc.StatusCode.CANCELLED, "")
        if not context.add_callback(lambda: self._outbox.put(gone)):
            return
        while not isinstance(item := self._outbox.get(), _Status):
            yield item
        if item.code != grpc.StatusCode.OK:
            context.set_code(item.code)
            context.set_details(item.details)

    def _read(self, requests: Iterator[bytes]) -> None:
        # It raises if the stream is cancelled, by either side.
        with contextlib.suppress(Exception):
            for message in requests:
                self._inbox.put(message)
        self._inbox.put(None)


class PlayedLearner:
    """A gRPC server on a free port of this machine.

    Attributes:
      address: `127.0.0.1:port`.
      streams: those that env servers open, in order.
    """

    def __init__(self) -> None:
        self.streams: queue.SimpleQueue[Stream] = queue.SimpleQueue()
        method: Any = grpc.stream_stream_rpc_method_handler(self._connect)
        name = CONNECT.rpartition("/")[2]
        handler = grpc.method_handlers_generic_handler(SERVICE, {name: method})
        workers = ThreadPoolExecutor(_STREAMS, "played learner")
        self._server = grpc.server(workers, options=server_options(MAX_MESSAGE_BYTES))
        self._server.add_generic_rpc_handlers((handler,))
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def stop(self) -> None:
        """Cuts all streams, and listens no more."""
        self._server.stop(0).wait()

    def _connect(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        stream = Stream(requests)
        self.streams.put(stream)
        yield from stream.answers(context)


class CommandNotFoundError(UserError):
    """The command cannot be started."""


class Process:
    """A command in a process group of its own. Owns it, and the file of its output."""

    def __init__(self, command: str, num_envs: int) -> None:
        """`command`: see `Options.command` of the checker."""
        if "{learner}" not in command:
            command = f"{command} --learner {{learner}} --num-envs {{num_envs}}"
        self._command = command.replace("{num_envs}", str(num_envs))
        self._process: subprocess.Popen[bytes] | None = None
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed at the end

    def start(self, address: str) -> None:
        """Starts it. Raises CommandNotFoundError."""
        command = self._command.replace("{learner}", address)
        try:
            self._process = subprocess.Popen(
                shlex.split(command),
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise CommandNotFoundError(f"cannot start {command!r}: {error}") from error

    def exit_code(self) -> int | None:
        """How it has ended; None while it runs."""
        return self._process.poll() if self._process is not None else None

    def last_words(self) -> str:
        """The last lines that it has printed, each cut, between bars."""
        self._output.seek(0, os.SEEK_END)
        self._output.seek(max(0, self._output.tell() - 4096))
        lines = self._output.read().decode(errors="replace").split("\n")
        return " | ".join([shown for line in lines if (shown := printable(line))][-_LAST_LINES:])

    def ask_to_end(self) -> None:
        """Sends SIGTERM to it and all that it has started."""
        self._signal(signal.SIGTERM)

    def stop(self) -> None:
        """Asks it to end, then kills it with all that it has started."""
        if self._process is not None:
            self.ask_to_end()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_SECONDS)
            self._signal(signal.SIGKILL)
            self._process.wait()
        self._process = None

    def _signal(self, number: int) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._output.close()
