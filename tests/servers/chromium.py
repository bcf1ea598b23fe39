"""Headless Chromium, driven over a pipe with its own protocol: opens pages, presses keys, takes pictures."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from queue import Empty, Queue
from typing import Any

from servers.programs import program
from waiting import HANG_SECONDS, soon

ARGUMENTS = shlex.split(
    "--headless=new --no-sandbox --disable-gpu --hide-scrollbars --no-first-run --disable-extensions --mute-audio "
    "--disable-background-networking --disable-component-update --disable-sync --disable-dev-shm-usage "
    "--host-resolver-rules='MAP * ~NOTFOUND , EXCLUDE 127.0.0.1' --force-color-profile=srgb --remote-debugging-pipe"
)
# what it reads commands from, and writes answers to, are the descriptors 3 and 4
START = """
import fcntl, os, sys
reading, writing = (fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3])
os.dup2(reading, 3)
os.dup2(writing, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
KEYS = {"Enter": "\r", "Escape": "", "PageDown": "", "PageUp": ""}


class Browser:
    """One page of a browser."""

    def __init__(self, reading: int, writing: int) -> None:
        self._writing = os.fdopen(writing, "wb", buffering=0)
        self._numbers = itertools.count(1)
        self._answers: dict[int, Queue[dict[str, Any]]] = {}
        self.events: list[dict[str, Any]] = []
        self._thread = threading.Thread(target=self._listen, args=(reading,), daemon=True)
        self._thread.start()
        self._session = ""

    def begin(self) -> None:
        """Open an empty page."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command of the protocol, and its result."""
        number = next(self._numbers)
        waiting = self._answers[number] = Queue()
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._writing.write(json.dumps(message).encode() + b"\0")
        try:
            answer = waiting.get(timeout=HANG_SECONDS)
        except Empty:
            raise TimeoutError(f"no answer to {method}") from None
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    def size(self, width: int, height: int, *, scale: float = 1) -> None:
        """Make the page so large."""
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
        )

    def open(self, url: str) -> None:
        """Go to an address."""
        self.send("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression; promises are awaited."""
        told = self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in told:
            raise RuntimeError(str(told["exceptionDetails"]))
        return told["result"].get("value")

    def wait(self, script: str) -> None:
        """Wait until a JavaScript expression is true."""

        def holds() -> bool:
            with contextlib.suppress(RuntimeError):  # the page is being replaced
                return bool(self.run(f"!!({script})"))
            return False

        assert soon(holds), f"never true: {script}; the page says {self.text()[:500]!r}"

    def text(self) -> str:
        """All that can be read."""
        return str(self.run("document.body.innerText"))

    def press(self, key: str) -> None:
        """Press a key."""
        text = KEYS.get(key, key if len(key) == 1 else "")
        more = {"text": text} if text else {}
        codes = {"ArrowRight": 39, "ArrowLeft": 37, "ArrowUp": 38, "ArrowDown": 40, "Enter": 13, "Escape": 27}
        code = {"windowsVirtualKeyCode": codes[key]} if key in codes else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, **more, **code)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key, **code)

    def screenshot(self) -> bytes:
        """What is to be seen, as PNG."""
        return base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"])

    def complaints(self) -> list[str]:
        """What the page wrote to the console as errors: scripts that failed, and what the policy has blocked."""
        told = []
        for event in self.events:
            if event["method"] == "Runtime.exceptionThrown":
                told.append(str(event["params"]["exceptionDetails"]))
            elif event["method"] == "Log.entryAdded" and event["params"]["entry"]["level"] == "error":
                told.append(event["params"]["entry"]["text"])
        return told

    def requested(self) -> list[str]:
        """The addresses that the page has asked for."""
        return [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]

    def close(self) -> None:
        """Forget the browser, which has ended."""
        self._writing.close()
        self._thread.join(HANG_SECONDS)

    def _listen(self, reading: int) -> None:
        buffer = b""
        with os.fdopen(reading, "rb", buffering=0) as stream:
            while data := stream.read(1 << 16):
                *messages, buffer = (buffer + data).split(b"\0")
                for message in map(json.loads, messages):
                    if "id" in message:
                        self._answers.pop(message["id"]).put(message)
                    else:
                        self.events.append(message)


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """A browser, until the end of the block."""
    path = program("chromium", "apt chromium")
    to_it, from_us = os.pipe()
    to_us, from_it = os.pipe()
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as folder:
        process = subprocess.Popen(
            [sys.executable, "-c", START, str(to_it), str(from_it), path, *ARGUMENTS, f"--user-data-dir={folder}"],
            pass_fds=(to_it, from_it),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "HOME": folder},
        )
        os.close(to_it)
        os.close(from_it)
        opened = Browser(to_us, from_us)
        try:
            opened.begin()
            yield opened
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            opened.close()
