"""What Docker says of itself: `docker info` and its `daemon.json`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from backends.tuning.facts import Fact
from backends.tuning.readers.excerpt import Excerpt

_INFO: Final = re.compile(r"^\s*(?P<name>Cgroup Driver|Runtimes): (?P<value>\S.*)$")
_FILE: Final = re.compile(r"/etc/docker/daemon\.json\s*$")
MAX_LINES: Final = 400


def read_info(excerpt: Excerpt) -> Iterator[Fact]:
    """Cgroup driver and runtimes; CDI devices that Docker found count as a runtime."""
    runtime: Fact | None = None
    for line in excerpt.lines:
        if match := _INFO.match(line.text):
            yield excerpt.fact("docker/present", True, line)
            if match["name"] == "Runtimes":
                named = "nvidia" in match["value"].split()
                runtime = excerpt.fact("docker/nvidia_runtime", named, line)
            else:
                yield excerpt.fact("docker/cgroup_driver", match["value"].strip(), line)
        elif runtime is not None and "cdi: nvidia.com/gpu" in line.text:
            runtime = excerpt.fact("docker/nvidia_runtime", True, line)
    if runtime is not None:
        yield runtime


class _Daemon(msgspec.Struct):
    runtimes: dict[str, object] = {}
    options: list[str] = msgspec.field(name="exec-opts", default_factory=list)
    default: str = msgspec.field(name="default-runtime", default="")


def read_daemon(excerpt: Excerpt) -> Iterator[Fact]:
    """The daemon's configuration, where its name or its words say that it is one."""
    named = excerpt.name.endswith("daemon.json")
    for number, line in enumerate(excerpt.lines):
        if _FILE.search(line.text):
            named = True
        elif line.text.strip() == "{":
            yield from _configuration(excerpt, number, sure=named)
            named = False


def _configuration(excerpt: Excerpt, start: int, *, sure: bool) -> Iterator[Fact]:
    text, depth = "", 0
    for line in excerpt.lines[start : start + MAX_LINES]:
        text += line.text + "\n"
        depth += line.text.count("{") - line.text.count("}")
        if depth <= 0:
            break
    try:
        daemon = msgspec.json.decode(text, type=_Daemon)
    except (msgspec.DecodeError, RecursionError):
        return
    first = excerpt.lines[start]
    runtime = "nvidia-container-runtime" in text or daemon.default == "nvidia"
    drivers = [o.partition("=")[2] for o in daemon.options if o.startswith("native.cgroupdriver=")]
    if sure or runtime or drivers:
        yield excerpt.fact("docker/present", True, first)
        yield excerpt.fact("docker/nvidia_runtime", runtime, first)
        if drivers:
            yield excerpt.fact("docker/cgroup_driver", drivers[-1], first)
