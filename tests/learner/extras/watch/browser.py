"""A headless Chromium, driven over the pipe of its DevTools protocol."""

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.patience import SECONDS, wait_until

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def find() -> str | None:
    """The path of Chromium, if there is one."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page. Owns the process, whose files are in `folder`.

    Attributes:
      errors: what the page wrote to its console as an error or a warning, and exceptions.
    """

    def __init__(self, folder: Path):
        program = find()
        assert program, "no Chromium"
        to_browser, from_browser = os.pipe(), os.pipe()
        script = 'exec "$@" 3<&"$IN" 4>&"$OUT"'
        options = [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
            "--no-first-run", "--disable-background-networking", "--disable-component-update",
            "--disable-dev-shm-usage", "--hide-scrollbars", f"--user-data-dir={folder}",
        ]  # fmt: skip
        self._process = subprocess.Popen(
            ["bash", "-c", script, "browser", program, *options],
            env={**os.environ, "HOME": str(folder)}
            | {"IN": str(to_browser[0]), "OUT": str(from_browser[1])},
            pass_fds=(to_browser[0], from_browser[1]),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser[0])
        os.close(from_browser[1])
        self._to, self._from = os.fdopen(to_browser[1], "wb"), os.fdopen(from_browser[0], "rb")
        self._answers: dict[int, dict[str, Any]] = {}
        self._arrived = threading.Condition()
        self._loaded = threading.Event()
        self._number = 0
        self._session: str | None = None
        self.errors: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")
        self.show()

    def show(self, width: int = 1400, height: int = 1000, scheme: str = "light") -> None:
        """Sets the size of the screen, in CSS pixels, and the preferred colour scheme."""
        is_phone = width < 600
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_phone}
        self._call("Emulation.setDeviceMetricsOverride", **size)
        self._call("Emulation.setTouchEmulationEnabled", enabled=is_phone)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._call("Emulation.setEmulatedMedia", features=features)

    def drag(self, *points: tuple[float, float]) -> None:
        """Drags the mouse from the first point to the last."""
        kinds = ["mousePressed", *["mouseMoved"] * (len(points) - 1), "mouseReleased"]
        for kind, (x, y) in zip(kinds, [*points, points[-1]], strict=True):
            where = {"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1}
            self._call("Input.dispatchMouseEvent", **where)

    def open(self, url: str) -> None:
        """Goes to a page, and waits until it has loaded."""
        self._loaded.clear()
        self.errors.clear()
        self._call("Page.navigate", url=url)
        assert self._loaded.wait(SECONDS), f"{url} does not load"

    def value(self, expression: str) -> Any:
        """What a JavaScript expression has as its value, as JSON."""
        found = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, expression: str) -> None:
        """Waits until the expression is true."""
        # A look takes the page's own thread, which has to draw.
        told = f"never true: {expression}"
        wait_until(lambda: self.value(expression) is True, told, pause_seconds=0.05)

    def close(self) -> None:
        """Ends the browser."""
        self._to.close()
        self._process.terminate()
        self._process.wait(SECONDS)
        self._reader.join(SECONDS)
        self._from.close()

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._to.write(json.dumps(message).encode() + b"\0")
        self._to.flush()
        with self._arrived:
            found: Callable[[], bool] = lambda: number in self._answers  # noqa: E731
            assert self._arrived.wait_for(found, SECONDS), f"no answer to {method}"
            answer = self._answers.pop(number)
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def _read(self) -> None:
        buffer = b""
        while data := os.read(self._from.fileno(), 2**16):
            *messages, buffer = (buffer + data).split(b"\0")
            for text in messages:
                self._take(json.loads(text))

    def _take(self, message: dict[str, Any]) -> None:
        if "id" in message:
            with self._arrived:
                self._answers[message["id"]] = message
                self._arrived.notify_all()
            return
        method, parameters = message["method"], message.get("params", {})
        if method == "Page.loadEventFired":
            self._loaded.set()
        elif method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(parameters["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning"):
            self.errors.append(json.dumps(parameters["args"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.errors.append(parameters["entry"]["text"])
