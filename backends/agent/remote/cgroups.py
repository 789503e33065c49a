"""Control groups of version 2, of version 1, and of both at once, as a host has them mounted."""

from __future__ import annotations

import os
from typing import List, NamedTuple, Optional

ROOT = "/sys/fs/cgroup"


class Hierarchy(NamedTuple):
    """One mounted tree of control groups, and where a process is in it."""

    mount: str
    own: str
    """The folder of the process's group; `mount` itself where it is in the top one."""
    name: str
    """`unified` (version 2) or the controllers of a version 1 tree."""


def hierarchies(proc: str = "/proc/self") -> List[Hierarchy]:
    """The trees that are mounted here, for one process."""
    paths = {}
    try:
        with open(proc + "/cgroup") as file:
            for line in file:
                _, names, path = line.rstrip("\n").split(":", 2)
                paths[names or "unified"] = path
        with open(proc + "/mountinfo") as file:
            mounts = [line.split() for line in file]
    except (OSError, ValueError):
        return []
    found = []
    for words in mounts:
        if len(words) < 9 or "-" not in words[6:]:
            continue
        kind, _, options = words[words.index("-", 6) + 1 :][:3]
        if kind not in ("cgroup", "cgroup2"):
            continue
        for names, path in paths.items():
            if (kind == "cgroup2") != (names == "unified"):
                continue
            if names != "unified" and not set(names.split(",")) <= set(options.split(",")):
                continue
            # In a container the mount may begin below the top of the tree.
            top = words[3].rstrip("/")
            inside = path[len(top) :] if path == top or path.startswith(top + "/") else path
            if "/../" not in inside + "/":
                mount = words[4]
                found.append(Hierarchy(mount, (mount + inside).rstrip("/"), names))
    return found


def parents(proc: str = "/proc/self") -> List[str]:
    """Folders in which a group for a server may be made, the best first.

    At the top of the unified tree it is no part of the login session, whose end may kill everything
    in it. Of version 1 the tree that counts memory is the useful one; below its own place, since
    somebody's limits may hold there.
    """
    found = hierarchies(proc)
    unified = [place for place in found if place.name == "unified"]
    memory = [place for place in found if "memory" in place.name.split(",")]
    places = [folder for place in unified for folder in (place.mount, place.own)]
    counted = [place.own for place in memory]
    return list(dict.fromkeys(counted + places if memory else places))


def of(pid: int, root: str = "/proc") -> Optional[str]:
    """The folder of a process's group; None where it is in none but the top ones."""
    found = hierarchies("%s/%d" % (root, pid))
    order = ("unified", "name=systemd", "memory")
    found = [place for place in found if place.name in order and place.own != place.mount]
    for place in sorted(found, key=lambda place: order.index(place.name)):
        if os.path.isdir(place.own):
            return place.own
    return None


def of_unit(path: str) -> str:
    """The folder of a unit's group, which systemd keeps in a tree of its own in version 1.

    Args:
        path: As in version 2: `/sys/fs/cgroup/system.slice/...`.
    """
    inside = path[len(ROOT) :] if path.startswith(ROOT + "/") else ""
    for tree in ("", "/systemd", "/unified"):
        place = ROOT + tree + inside
        if inside and os.path.exists(place + "/cgroup.procs"):
            return place
    return path


def members(path: Optional[str]) -> List[int]:
    """Processes in a group and in those below it."""
    if not path:
        return []
    found: List[int] = []
    for place, _, _ in os.walk(path):
        try:
            with open(place + "/cgroup.procs") as file:
                found += [int(line) for line in file]
        except (OSError, ValueError):
            continue
    return found
