"""A small systemd for tests: units that really run, from files in a folder of its own.

Installed as `systemd-run`, `systemctl`, `journalctl`, `loginctl` and `id`; FAKE_SYSTEMD names the
folder. A file UNIT.argv there is a unit that exists. It reads EnvironmentFile= as systemd.exec(5)
says, expands `$$` to `$`, and writes down each call.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(os.environ["FAKE_SYSTEMD"])
STARTER = (
    "import os, sys; env = dict(os.environ); "
    "log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND); "
    "os.dup2(log, 1); os.dup2(log, 2); os.execvpe(sys.argv[2], sys.argv[2:], env)"
)


def note(words: list[str], **more: object) -> None:
    with (FOLDER / "calls").open("a") as file:
        file.write(json.dumps({"argv": words, **more}) + "\n")


def unit_file(unit: str) -> Path:
    return FOLDER / f"{unit}.json"


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def environment(path: str) -> dict[str, str]:
    """Values in double quotes; a backslash there keeps only `"`, backslash, backtick and `$`."""
    found, text, at = {}, Path(path).read_text(), 0
    while at < len(text):
        equals = text.index("=", at)
        name, at, value = text[at:equals], equals + 2, ""
        assert text[equals + 1] == '"'
        while text[at] != '"':
            if text[at] == "\\":
                at += 1
                assert text[at] in '"\\`$'
            value += text[at]
            at += 1
        found[name] = value
        at += 2
    return found


def systemd_run(words: list[str]) -> int:
    split = words.index("--")
    options, command = words[:split], [word.replace("$$", "$") for word in words[split + 1 :]]
    named = dict(option.lstrip("-").split("=", 1) for option in options if "=" in option)
    properties = dict(
        option.split("=", 2)[1:] for option in options if option.startswith("--property=")
    )
    env = environment(properties["EnvironmentFile"])
    mode = os.stat(properties["EnvironmentFile"]).st_mode & 0o777
    folder_mode = os.stat(Path(properties["EnvironmentFile"]).parent).st_mode & 0o777
    note(["systemd-run", *words], modes=[mode, folder_mode])
    unit = named["unit"]
    plain = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **env}
    if subprocess.run(["which", command[0]], capture_output=True, env=plain).returncode:
        print(f"Failed to start: executable {command[0]} missing", file=sys.stderr)
        return 1
    begin(unit, command, plain, named.get("working-directory", "/"), named["description"])
    return 0


def begin(unit: str, command: list[str], env: dict[str, str], cwd: str, words: str) -> None:
    log = str(FOLDER / f"{unit}.log")
    child = subprocess.Popen(
        [sys.executable, "-c", STARTER, log, *command], env=env, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=cwd,
    )  # fmt: skip
    stamp = time.strftime("%a %Y-%m-%d %H:%M:%S UTC", time.gmtime())
    told = {"pid": child.pid, "description": words, "at": stamp}
    unit_file(unit).write_text(json.dumps(told))


def show(unit: str) -> None:
    place = unit_file(unit)
    told = json.loads(place.read_text()) if place.exists() else None
    named = (FOLDER / f"{unit}.argv").exists()
    lives = told is not None and alive(told["pid"])
    if told is not None and not lives and not named and not told.get("failed"):
        told = None  # a transient unit that has ended well is forgotten
    print(f"Id={unit}\nLoadState={'loaded' if told or named else 'not-found'}")
    state = "inactive" if told is None or not lives else told.get("state", "active")
    print(f"ActiveState={state}\nControlGroup=\nResult=success")
    print(
        f"MainPID={told['pid'] if told and lives else 0}\nExecMainPID={told['pid'] if told else 0}"
    )
    print("ExecMainCode=0\nExecMainStatus=0")
    print(f"InvocationID={unit}-1\nExecMainStartTimestamp={told['at'] if told else ''}")
    print(f"Description={told['description'] if told else unit}")


def stop(unit: str) -> None:
    told = json.loads(unit_file(unit).read_text())
    pid = told["pid"]
    unit_file(unit).write_text(json.dumps({**told, "state": "deactivating"}))
    os.killpg(pid, signal.SIGTERM)
    deadline = time.monotonic() + 3
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    if alive(pid):
        os.killpg(pid, signal.SIGKILL)
    unit_file(unit).unlink()


def systemctl(words: list[str]) -> int:
    note(["systemctl", *words])
    verb = next(word for word in words if not word.startswith("-"))
    if verb == "list-units":
        for place in sorted(FOLDER.glob("*.service.json")):
            print(f"{place.name.removesuffix('.json')} loaded active running something")
    elif verb == "show":
        show(words[-1])
    elif verb == "start":
        command = json.loads((FOLDER / f"{words[-1]}.argv").read_text())
        begin(words[-1], command, {"PATH": os.environ["PATH"]}, "/", "a unit of the operator's")
    elif verb == "stop":
        stop(words[-1])
    return 0


def journalctl(words: list[str]) -> int:
    unit = next(word for word in words if "unit=" in word).partition("=")[2]
    os.execvp("tail", ["tail", "-n", "+1", "-F", str(FOLDER / f"{unit}.log")])


def main() -> int:
    name, words = Path(sys.argv[0]).name, sys.argv[1:]
    if name == "id":
        print(os.environ.get("FAKE_UID", "0"))
        return 0
    if name == "loginctl":
        note([name, *words])
        print(os.environ.get("FAKE_LINGER", "no"))
        return 0
    return {"systemd-run": systemd_run, "systemctl": systemctl, "journalctl": journalctl}[name](
        words
    )


if __name__ == "__main__":
    sys.exit(main())
