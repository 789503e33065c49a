"""A small, quick server: `quick.py --port N [--delay S] [--workers N] [--deaf] [--daemon]`."""

from __future__ import annotations

import argparse
import http.server
import os
import signal
import sys
import time


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--deaf", action="store_true")
    parser.add_argument("--daemon", action="store_true")
    arguments = parser.parse_args()
    if arguments.daemon:  # out of its session, and nobody's child
        if os.fork():
            os._exit(0)
        os.setsid()
        if os.fork():
            os._exit(0)
    for _ in range(arguments.workers):
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.setsid()
            time.sleep(3600)
    if arguments.deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("loading", flush=True)
    time.sleep(arguments.delay)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", arguments.port), Handler)
    print("listening", flush=True)
    if not arguments.deaf:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    server.serve_forever()
    sys.exit(0)


if __name__ == "__main__":
    main()
