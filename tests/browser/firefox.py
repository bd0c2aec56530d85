"""The system's Firefox, driven through its own WebDriver BiDi (https://w3c.github.io/webdriver-bidi).

Playwright drives only a Firefox that it has built itself.
"""

from __future__ import annotations

import base64
import itertools
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

from tests.browser.apps import PATIENCE_S, wait_until

LISTENING = re.compile(r"WebDriver BiDi listening on (ws://\S+)")


class Firefox:
    """One window of Firefox. `messages` are the console's warnings and errors, and uncaught errors."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._numbers = itertools.count(1)
        self.messages: list[str] = []
        self._send("session.new", capabilities={})
        self._send("session.subscribe", events=["log.entryAdded"])
        self._window = self._send("browsingContext.getTree")["contexts"][0]["context"]

    def open(self, url: str, width: int = 1280, height: int = 720) -> None:
        """Show a page in a window of this size, and wait until it is loaded."""
        size = {"width": width, "height": height}
        self._send("browsingContext.setViewport", context=self._window, viewport=size)
        self._send("browsingContext.navigate", context=self._window, url=url, wait="complete")

    def run(self, script: str) -> Any:
        """Evaluate a JavaScript expression, and wait for its promise; returns a string, number or boolean."""
        target = {"context": self._window}
        answer = self._send("script.evaluate", expression=script, target=target, awaitPromise=True)
        if answer["type"] == "exception":
            raise AssertionError(answer["exceptionDetails"]["text"])
        return answer["result"].get("value")

    def wait_for(self, selector: str) -> None:
        """Wait until an element matches the selector."""
        wait_until(lambda: self.run(f"document.querySelector({json.dumps(selector)}) !== null"))

    def press(self, key: str) -> None:
        """Press and release a key."""
        actions = [{"type": kind, "value": key} for kind in ("keyDown", "keyUp")]
        keyboard = {"type": "key", "id": "keyboard", "actions": actions}
        self._send("input.performActions", context=self._window, actions=[keyboard])

    def screenshot(self) -> bytes:
        """The window as a PNG file."""
        return base64.b64decode(self._send("browsingContext.captureScreenshot", context=self._window)["data"])

    def _send(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        self._connection.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self._connection.recv(PATIENCE_S))
            if message.get("method") == "log.entryAdded" and message["params"]["level"] in ("warn", "error"):
                self.messages.append(message["params"]["text"])
            if message.get("id") == number:
                assert message["type"] == "success", message
                return message["result"]


@contextmanager
def open_firefox(profile: Path) -> Iterator[Firefox]:
    """Start Firefox with a new profile folder, and end it."""
    program = shutil.which("firefox-esr") or shutil.which("firefox")
    assert program, "Firefox is missing; run: apt-get install -y --no-install-recommends firefox-esr"
    profile.mkdir()
    log = profile / "log.txt"
    arguments = [program, "--headless", "--no-remote", "--profile", str(profile), "--remote-debugging-port", "0"]
    with log.open("wb") as stream, subprocess.Popen(arguments, stdout=stream, stderr=stream) as process:
        try:
            wait_until(lambda: LISTENING.search(log.read_text(errors="replace")) is not None)
            address = LISTENING.search(log.read_text(errors="replace"))
            assert address is not None
            with connect(f"{address[1]}/session", max_size=None) as connection:
                yield Firefox(connection)
        finally:
            process.terminate()
