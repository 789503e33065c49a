"""Runs the micro-measurements in a child: the python that has torch is not always the agent's."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from typing import Any, Dict, Optional

from . import measure_torch

CHECK = "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)"
LIMIT_S = 300.0
MAX_LINES = 20_000
PLACES = ("/opt/venv/bin/python", "/opt/conda/bin/python", "/usr/local/bin/python3")


def register(agent: Any) -> None:
    """Add the methods of this area."""
    agent.methods.add_stream("measure.run", run)


def run(params: Dict[str, Any], stream: Any) -> None:
    """Stream the lines of the measuring program as objects.

    Args:
        params: `python` (the one that has torch; looked for where it is missing), `path` (of a
            model, to be read), `limit_s`.
        stream: Gets the program's messages, and at the end `{"status": ..., "words": ...}`.
    """
    python = params.get("python") or find_python()
    if python is None:
        stream.send({"status": 127, "words": "no python with torch was found"})
        return
    options = json.dumps({"path": params.get("path") or ""})
    child: Any = subprocess.Popen(
        [python, "-", options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    timer = threading.Timer(float(params.get("limit_s", LIMIT_S)), _kill, [child])
    timer.daemon = True
    timer.start()
    words = [b""]
    reader = threading.Thread(target=lambda: words.append(child.stderr.read(65_536)), daemon=True)
    reader.start()
    try:
        child.stdin.write(source().encode("utf-8"))
        child.stdin.close()
        for number, line in enumerate(child.stdout):
            if number >= MAX_LINES:
                break
            try:
                stream.send(json.loads(line.decode("utf-8", "replace")))
            except ValueError:
                continue
        reader.join(2.0)
        said = words[-1].decode("utf-8", "replace").strip().split("\n")[-1][:300]
        stream.send({"status": child.wait(10), "words": said, "python": python})
    finally:
        timer.cancel()
        _kill(child)


def _kill(child: Any) -> None:
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except OSError:
        pass


def find_python() -> Optional[str]:
    """A python here that has torch."""
    names = [sys.executable, *PLACES]
    for folder in os.environ.get("PATH", "").split(":"):
        names += [folder + "/python3", folder + "/python"]
    for name in dict.fromkeys(name for name in names if name):
        if not os.access(name, os.X_OK):
            continue
        try:
            if subprocess.call([name, "-c", CHECK], timeout=10, stderr=subprocess.DEVNULL) == 0:
                return name
        except (OSError, subprocess.TimeoutExpired):
            continue
    return None


def source() -> str:
    """The text of the measuring program, as its loader has it."""
    spec = measure_torch.__spec__
    text = spec.loader.get_source(measure_torch.__name__)  # type: ignore[union-attr]
    return str(text)
