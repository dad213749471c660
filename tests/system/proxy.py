"""A TCP proxy of this process whose network can be cut, and heals."""

import contextlib
import socket
import threading


class Proxy:
    """Passes bytes on. A thread for each direction of each connection; `close` ends them all."""

    def __init__(self, port: int) -> None:
        """To `port` of this machine."""
        self._port = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._may_pass = threading.Event()
        self._may_pass.set()
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """From now on nothing passes: a black hole."""
        self._may_pass.clear()

    def heal(self) -> None:
        """What was kept arrives, and all that follows."""
        self._may_pass.set()

    def reset(self) -> None:
        """Ends all connections at once."""
        for end in list(self._open):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Takes no connection any more, and ends those that are open."""
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # which ends an `accept`; to close does not
        self._listening.close()
        self.heal()
        self.reset()

    def _accept(self) -> None:
        while True:
            try:
                one, _ = self._listening.accept()
            except OSError:
                return
            try:
                other = socket.create_connection(("127.0.0.1", self._port))
            except OSError:
                one.close()
                continue
            self._open |= {one, other}
            for source, sink in ((one, other), (other, one)):
                threading.Thread(target=self._pass, args=(source, sink), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(2**16):
                self._may_pass.wait()
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._open.discard(source)
        if sink not in self._open:  # else the other direction still uses both
            source.close()
            sink.close()
