"""A small docker (or podman) for tests: containers that are processes of this machine.

FAKE_DOCKER names a folder with one JSON file a container: `argv`, and what `inspect` is to show
besides. Each call is written down.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

FOLDER = Path(os.environ["FAKE_DOCKER"])
STARTER = (
    "import os, sys; log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND); "
    "os.dup2(log, 1); os.dup2(log, 2); os.execvp(sys.argv[2], sys.argv[2:])"
)


def place_of(name: str) -> Path:
    return FOLDER / f"{name}.json"


def read(name: str) -> dict[str, Any]:
    if not place_of(name).exists():
        print(f"Error: No such container: {name}", file=sys.stderr)
        sys.exit(1)
    value: dict[str, Any] = json.loads(place_of(name).read_text())
    return value


def write(name: str, told: dict[str, Any]) -> None:
    """At once: whoever inspects meanwhile sees the old or the new."""
    new = FOLDER / f".{name}.{os.getpid()}"
    new.write_text(json.dumps(told))
    new.replace(place_of(name))


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def start(name: str) -> None:
    told = read(name)
    command = [sys.executable, "-c", STARTER, str(FOLDER / f"{name}.log"), *told["argv"]]
    child = subprocess.Popen(
        command, start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    told |= {
        "stops": False,
        "pid": child.pid,
        "at": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()),
    }
    write(name, told)


def inspect(name: str) -> dict[str, Any]:
    told = read(name)
    running = alive(told.get("pid", 0))
    podman_stops = told.get("stops") and Path(sys.argv[0]).name == "podman"
    status = (
        ("stopping" if podman_stops else "running")
        if running
        else "exited"
        if "pid" in told
        else "created"
    )
    state = {
        "Status": status, "Running": status == "running", "ExitCode": 0, "OOMKilled": False,
        "Pid": told.get("pid", 0) if running else 0,
        "StartedAt": f"{told.get('at', '0001-01-01T00:00:00')}.123456789Z",
    }  # fmt: skip
    return {
        "Id": hashlib.sha256(name.encode()).hexdigest(), "Name": f"/{name}", "State": state,
        "Path": told["argv"][0], "Args": told["argv"][1:], **told.get("more", {}),
    }  # fmt: skip


def stop(name: str) -> None:
    told = read(name)
    pid = told["pid"]
    write(name, told | {"stops": True})
    os.killpg(pid, signal.SIGTERM)
    deadline = time.monotonic() + 3
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    if alive(pid):
        os.killpg(pid, signal.SIGKILL)


def run(words: list[str]) -> None:
    name = next(word for word in words if word.startswith("--name=")).partition("=")[2]
    image = words.index("image")
    more = {"HostConfig": {"NetworkMode": "host"}}
    place_of(name).write_text(json.dumps({"argv": words[image + 1 :], "more": more}))
    start(name)


def main() -> None:
    verb, words = sys.argv[1], sys.argv[2:]
    with (FOLDER / "calls").open("a") as file:
        file.write(json.dumps([Path(sys.argv[0]).name, verb, *words]) + "\n")
    names = [word for word in words if not word.startswith("-")]
    if verb == "inspect":
        print(json.dumps([inspect(name) for name in names]))
    elif verb == "ps":
        every = [place.stem for place in sorted(FOLDER.glob("*.json"))]
        print("\n".join(name for name in every if alive(read(name).get("pid", 0))))
    elif verb == "start":
        start(names[0])
    elif verb == "run":
        run(words)
    elif verb == "stop":
        stop(names[0])
    elif verb == "logs":
        os.execvp("tail", ["tail", "-n", "+1", "-F", str(FOLDER / f"{names[-1]}.log")])


if __name__ == "__main__":
    main()
