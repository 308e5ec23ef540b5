"""A headless Chromium, spoken to over pipes: what a page does, and how it looks.

The DevTools protocol goes through file descriptors 3 and 4 of the browser, messages ending in a
zero byte, so no port is opened and nothing else is needed.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

EXECUTABLE = shutil.which("chromium") or shutil.which("chromium-browser")
#: A browser starts in a second or two, and in many where others build.
_DEADLINE = 60.0
_FLAGS = (
    "--headless=new",
    "--no-sandbox",  # refused to root otherwise; the page is our own
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


@dataclass
class Browser:
    """One page of one browser.

    Attributes:
        requests: addresses that the page asked for, the page itself included.
        complaints: console messages, log entries and exceptions.
    """

    process: subprocess.Popen[bytes]
    reader: int
    writer: int
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    _session: str | None = None
    _number: int = 0
    _loaded: bool = False
    _rest: bytes = b""

    def start(self) -> None:
        """Open an empty page and listen to all it says."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def open(self, file: Path) -> None:
        """Load a file and wait until all of it is there."""
        self._loaded = False
        self.call("Page.navigate", url=file.as_uri())
        while not self._loaded:
            self._hear()

    def look(self, width: int, *, dark: bool = False, medium: str = "screen") -> None:
        """Choose width, theme and medium."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=900, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=medium, features=[theme])

    def evaluate(self, script: str) -> Any:
        """What an expression is worth in the page."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def screenshot(self, file: Path) -> None:
        """A PNG of the whole page."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(shot["data"]))

    def pdf(self, file: Path) -> None:
        """The page as it is printed."""
        printed = self.call("Page.printToPDF", printBackground=False, preferCSSPageSize=True)
        file.write_bytes(base64.b64decode(printed["data"]))

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Ask the browser, and wait for the answer; what it says meanwhile is kept."""
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        text = json.dumps(message).encode() + b"\0"
        while text:
            text = text[os.write(self.writer, text) :]
        while True:
            heard = self._hear()
            if heard.get("id") == number:
                assert "error" not in heard, f"{method}: {heard['error']}"
                result: dict[str, Any] = heard["result"]
                return result

    def _hear(self) -> dict[str, Any]:
        deadline = time.monotonic() + _DEADLINE
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self.reader], [], [], deadline - time.monotonic())
            assert ready, "the browser says nothing"
            more = os.read(self.reader, 1 << 16)
            assert more, f"the browser ended with {self.process.wait(10)}"
            self._rest += more
        text, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        self._note(message.get("method"), message.get("params") or {})
        return message

    def _note(self, method: str | None, parameters: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method == "Page.loadEventFired":
            self._loaded = True
        elif method in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
            self.complaints.append(json.dumps(parameters))


@contextlib.contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A browser with a profile of its own; ended with all its processes."""
    assert EXECUTABLE
    # A home of its own, too: settings of whoever runs the tests have no say.
    environment = {**os.environ, "HOME": str(profile)}
    to_read, to_write = os.pipe(), os.pipe()
    line = [EXECUTABLE, *_FLAGS, f"--user-data-dir={profile}", "about:blank"]
    # The shell gives the pipes the numbers that the browser expects.
    script = f'exec "$@" 3<&{to_read[0]} 4>&{to_write[1]}'
    process = subprocess.Popen(
        ["bash", "-c", script, "chromium", *line],
        pass_fds=(to_read[0], to_write[1]),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
    )
    os.close(to_read[0])
    os.close(to_write[1])
    found = Browser(process, to_write[0], to_read[1])
    try:
        found.start()
        yield found
    finally:
        os.close(to_read[1])  # it ends by itself when the pipe does
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
        os.close(to_write[0])
