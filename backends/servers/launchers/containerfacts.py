"""What `docker inspect` and `podman inspect` print of a container, read. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from typing import Final

import msgspec

from backends.errors import AgentError

_STAMP: Final = re.compile(r"(?P<second>[-\dT:]{19})(?:\.\d+)?(?P<offset>Z|[+-]\d\d:\d\d)")
_VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
_NO_DEVICES: Final = ("", "void", "none")
_PLAIN_RUNTIMES: Final = re.compile(r"^(?:oci|runc|crun|youki|io\.containerd\.runc\.v\d)$")
"""Runtimes that heed no variable (podman calls them `oci`): images of CUDA set it all the same."""
_GPU_DEVICE: Final = re.compile(r"nvidia|/dev/dri|/dev/kfd|gpu=|^/dev/?$|amd\.com/")


class State(msgspec.Struct, frozen=True, rename="pascal"):
    """Whether it runs, and how it ended."""

    status: str = ""
    running: bool = False
    pid: int = 0
    exit_code: int = 0
    started_at: str = ""
    oom_killed: bool = msgspec.field(default=False, name="OOMKilled")

    @property
    def lives(self) -> bool:
        """Whether its process is there; podman's says no word of running while it stops."""
        return (self.running or self.stops) and self.pid > 0

    @property
    def stops(self) -> bool:
        """Whether somebody has it stopped just now; docker does not tell."""
        return self.status == "stopping"


class Published(msgspec.Struct, frozen=True, rename="pascal"):
    """Where the host answers for a port of a container."""

    host_port: str = ""


class Network(msgspec.Struct, frozen=True, rename="pascal"):
    """Its ports."""

    ports: dict[str, list[Published]] = {}

    def published(self, port: int) -> int | None:
        """Where the host answers for a port of the container."""
        for place in self.ports.get(f"{port}/tcp", ()):
            if place.host_port.isdigit():
                return int(place.host_port)
        return None


class Config(msgspec.Struct, frozen=True, rename="pascal"):
    """What it was made with."""

    env: list[str] = []
    create_command: list[str] = []
    """The words that made it; podman keeps them."""


class HostConfig(msgspec.Struct, frozen=True, rename="pascal"):
    """What it may use of the host."""

    device_requests: list[object] = []
    devices: list[object] = []
    binds: list[object] = []
    annotations: dict[str, object] = {}
    runtime: str = ""
    network_mode: str = ""
    privileged: bool = False


class Container(msgspec.Struct, frozen=True, rename="pascal"):
    """One container."""

    id: str
    state: State = State()
    path: str = ""
    args: list[str] = []
    config: Config = Config()
    host_config: HostConfig = HostConfig()
    network_settings: Network = Network()
    name: str = ""

    @property
    def argv(self) -> tuple[str, ...]:
        """What runs in it."""
        return (self.path, *self.args)

    @property
    def sees_gpus(self) -> bool:
        """Whether it was made with access to GPUs."""
        host = self.host_config
        if host.privileged or host.device_requests or asks_for_gpus(self.config.create_command):
            return True
        if any(name.startswith("cdi.k8s.io") for name in host.annotations):
            return True
        places = [_place(device) for device in host.devices]
        places += [str(bind).partition(":")[0] for bind in host.binds]
        if any(_GPU_DEVICE.search(place) for place in places):
            return True
        variables = dict(word.partition("=")[::2] for word in self.config.env)
        visible = variables.get(_VISIBLE)
        if visible is not None and visible.strip() in _NO_DEVICES:
            return False
        if "nvidia" in host.runtime:
            return True
        # A runtime of another name may be NVIDIA's, or heed the variable as it does.
        return visible is not None and bool(host.runtime) and not _is_plain(host.runtime)


def parse(text: str) -> list[Container]:
    """The containers of what `inspect` printed; one that makes no sense hides no other.

    Raises:
        AgentError: It is no such list at all.
    """
    try:
        told = json.loads(text or "[]")
    except (ValueError, RecursionError) as error:
        raise AgentError("the description of a container makes no sense", str(error)) from None
    found: list[Container] = []
    errors: list[str] = []
    for entry in told if isinstance(told, list) else [told]:
        try:
            found.append(msgspec.convert(_without_nulls(entry), Container, strict=False))
        except msgspec.ValidationError as error:
            errors.append(str(error))
    if errors and not found:
        raise AgentError("the description of a container makes no sense", errors[0])
    return found


def asks_for_gpus(command: Sequence[str]) -> bool:
    """Whether a `run` command gives its container access to GPUs."""
    for word, following in pairwise((*command, "")):
        name, equals, value = word.partition("=")
        value = value if equals else following
        if name == "--privileged" and not (equals and value.lower() in ("false", "0")):
            return True
        if name == "--gpus" or (name == "--runtime" and "nvidia" in value):
            return True
        if name == "--device" and _GPU_DEVICE.search(value):
            return True
        if name in ("-v", "--volume") and value.startswith("/dev:"):
            return True
        if name in ("-e", "--env"):
            variable, _, devices = (value if not equals else word[len(name) + 1 :]).partition("=")
            if variable == _VISIBLE and devices.strip() not in _NO_DEVICES:
                return True
    return False


def epoch(text: str) -> float | None:
    """RFC 3339 with up to nine digits of a second: docker's in UTC, podman's with its offset."""
    found = _STAMP.fullmatch(text)
    if found is None:
        return None
    try:
        moment = datetime.fromisoformat(found["second"] + found["offset"].replace("Z", "+00:00"))
    except ValueError:
        return None
    return moment.timestamp() if moment.year > 1 else None


def _is_plain(runtime: str) -> bool:
    return _PLAIN_RUNTIMES.match(runtime.rpartition("/")[2]) is not None


def _place(device: object) -> str:
    """The host's path, or CDI name, of a device."""
    if isinstance(device, dict):
        return str(device.get("PathOnHost") or device.get("pathOnHost") or "")
    return str(device)


def _without_nulls(value: object) -> object:
    """What is said to be nothing is as good as not said."""
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_without_nulls(each) for each in value if each is not None]
    return value
