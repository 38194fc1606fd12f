"""Debian's Chromium without a window, driven by its DevTools protocol over a socket, no package.

While `make serve` runs, this makes the picture of its page for README:

    python tests/chromium.py http://127.0.0.1:8080 tests/page.png
"""

import base64
import itertools
import json
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# without a sandbox, since root has none; and nothing that asks for addresses outside
FLAGS = """--headless --no-sandbox --remote-debugging-pipe --no-first-run --disable-gpu
--disable-quic --disable-sync --disable-background-networking --disable-component-update
--hide-scrollbars""".split()
# it reads commands from 3 and writes answers to 4, each with a zero behind it
START = 'exec chromium "$@" 3<&{0} 4>&{0}'
COMMENT = "Thank you for the column, but Ruth is a shameless reporter."
PICTURE = {"width": 700, "height": 400, "deviceScaleFactor": 1, "mobile": False}


class Chromium:
    """A browser with one page. script: JavaScript that is run before the page's own."""

    def __init__(self, address, script=""):
        self.socket, theirs = socket.socketpair()
        self.socket.settimeout(60)
        self.answers, self.count, self.session = self.socket.makefile("rb"), 0, {}
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        flags = [*FLAGS, f"--user-data-dir={self.profile.name}"]
        command = ["bash", "-c", START.format(theirs.fileno()), "chromium", *flags]
        with theirs:
            self.process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], stderr=subprocess.DEVNULL
            )
        target = self.ask("Target.createTarget", url="about:blank")
        self.session = self.ask("Target.attachToTarget", **target, flatten=True)
        self.ask("Page.enable")  # or no script is run
        self.ask("Page.addScriptToEvaluateOnNewDocument", source=script)
        self.ask("Page.navigate", url=address)
        self.wait_for("document.readyState === 'complete'")

    def ask(self, method, **parameters):
        """What the browser answers to a command of its protocol."""
        self.count += 1
        message = {"id": self.count, "method": method, "params": parameters, **self.session}
        self.socket.sendall(json.dumps(message).encode() + b"\0")
        while (answer := self.read()).get("id") != self.count:
            pass  # an event
        return answer["result"]

    def read(self):
        """The next message; ValueError where the browser has ended."""
        read = iter(lambda: self.answers.read(1), b"")
        return json.loads(b"".join(itertools.takewhile(b"\0".__ne__, read)))

    def value(self, expression):
        """What an expression of JavaScript is on the page."""
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        return answer["result"].get("value")

    def wait_for(self, expression):
        """Return when this is true on the page; AssertionError after ten seconds."""
        for _ in range(100):
            if self.value(expression):
                return
            time.sleep(0.1)
        raise AssertionError(f"not {expression}: {self.value('document.body.innerText')}")

    def write(self, text):
        """Put a text where the cursor is, in place of all that is there."""
        self.value("document.activeElement.select()")
        self.ask("Input.insertText", text=text)

    def press(self, key, text=""):
        """Press a key, which writes this text."""
        self.ask("Input.dispatchKeyEvent", type="keyDown", key=key, text=text)

    def close(self):
        self.process.terminate()
        self.process.wait(60)
        self.socket.close()
        self.profile.cleanup()


def main(address, picture):
    page = Chromium(address)
    page.ask("Emulation.setDeviceMetricsOverride", **PICTURE)
    page.write(COMMENT)
    page.wait_for("said.textContent && words.textContent")
    time.sleep(1)  # until nothing moves
    image = page.ask("Page.captureScreenshot", captureBeyondViewport=True)["data"]
    Path(picture).write_bytes(base64.b64decode(image))
    page.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
