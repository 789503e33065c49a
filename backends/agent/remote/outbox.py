"""Everything that goes out: one thread writes, nobody else ever waits for the far side.

A message that tells a state replaces the one of the same kind that has not left yet, so a slow
reader gets fewer samples and never old ones, and what waits stays small by itself.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import OrderedDict
from typing import Any, Dict, Iterable, Optional

MAX_BYTES = 1024 * 1024
"""The far side takes no longer line; what would be longer is lost there without a word."""
INTERNAL_ERROR = -32603
"""Of JSON-RPC."""


def encode(message: Dict[str, Any]) -> bytes:
    """One message as one line: pure ASCII, no not-a-number (JSON has none)."""
    return json.dumps(message, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"


class Outbox:
    """Queue and writer thread of one file descriptor."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._waiting: "OrderedDict[object, bytes]" = OrderedDict()
        self._wake = threading.Condition()
        self._writing = False
        self._broken = False
        self._count = 0
        threading.Thread(target=self._run, name="outbox", daemon=True).start()

    def notify(self, method: str, params: Dict[str, Any], latest: Optional[str] = None) -> None:
        """Send a notification; with `latest`, in place of the one of that name still waiting."""
        self.send({"jsonrpc": "2.0", "method": method, "params": params}, latest)

    def send(self, message: Dict[str, Any], latest: Optional[str] = None) -> None:
        """Queue one message; never waits. An answer that is too long becomes an error."""
        line = encode(message)
        if len(line) > MAX_BYTES and "result" in message:
            words = "the answer has %d bytes, and %d are the most" % (len(line), MAX_BYTES)
            error = {"code": INTERNAL_ERROR, "message": words}
            line = encode({"jsonrpc": "2.0", "id": message["id"], "error": error})
        with self._wake:
            if self._broken:
                return
            self._count += 1
            key: object = self._count if latest is None else latest
            self._waiting.pop(key, None)
            self._waiting[key] = line
            self._wake.notify_all()

    def drop(self, names: Iterable[str]) -> None:
        """Forget what waits under these names of `latest`."""
        with self._wake:
            for name in names:
                self._waiting.pop(name, None)

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything has left; False where it did not within the time."""
        end = time.monotonic() + timeout_s
        with self._wake:
            while (self._waiting or self._writing) and not self._broken:
                left = end - time.monotonic()
                if left <= 0:
                    return False
                self._wake.wait(left)
        return True

    def _run(self) -> None:
        while True:
            with self._wake:
                self._writing = False
                self._wake.notify_all()
                while not self._waiting:
                    self._wake.wait()
                _, line = self._waiting.popitem(last=False)
                self._writing = True
            try:
                view = memoryview(line)
                while view:
                    view = view[os.write(self._fd, view) :]
            except OSError:
                # The reader is gone; the end of standard input will say so too.
                with self._wake:
                    self._broken = True
                    self._writing = False
                    self._waiting.clear()
                    self._wake.notify_all()
                return
