"""A server that does what a file says: `python scripted.py FILE [--port N] [--worker TITLE]`.

FILE is JSON and is read again all the time: `say` (lines of the log so far), `answers` (path to
code, or to [code, body]; other paths get 404), `busy` (whether it works the CPU).
"""

from __future__ import annotations

import argparse
import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

WORKER = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_DFL); time.sleep(3600)"


class Script:
    """The file, as it was last."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._said = 0

    def read(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self._path.read_text())
        return value

    def play(self) -> None:
        """Print what is to be said by now; work where it is to be busy."""
        while True:
            told = self.read()
            for line in told.get("say", [])[self._said :]:
                print(line, flush=True)
                self._said += 1
            until = time.monotonic() + 0.05
            while told.get("busy") and time.monotonic() < until:
                pass
            time.sleep(0.03)


def handler(script: Script) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = script.read().get("answers", {}).get(self.path, 404)
            code, body = found if isinstance(found, list) else (found, "{}")
            self.send_response(code)
            self.end_headers()
            if code != 204:
                self.wfile.write(body.encode())

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    return Handler


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--port", type=int)
    parser.add_argument("--worker", action="append", default=[])
    arguments = parser.parse_args()
    for title in arguments.worker:
        subprocess.Popen([title, "-c", WORKER], executable=sys.executable)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    script = Script(arguments.file)
    if arguments.port:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", arguments.port), handler(script))
        threading.Thread(target=server.serve_forever, daemon=True).start()
    script.play()


if __name__ == "__main__":
    main()
