"""What produced a run: versions of the server's packages on its host, and files changed in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from backends.agent.remote import packages
from backends.agent.remote.packages import ChangedFile
from backends.errors import AgentError
from backends.text import clean

SERVER_PACKAGES: Final = (
    "sglang", "sgl-kernel", "vllm", "flashinfer-python", "torch", "transformers", "triton",
    "tensorrt-llm", "llama-cpp-python", "xgrammar", "flash-attn", "deep-gemm", "deep-ep",
)  # fmt: skip
"""Distributions that decide how a server serves."""
SCAN_S: Final = 120.0
"""Hashing a large installation from a cold disk takes a while."""


class Agent(Protocol):
    """What can be asked on a host."""

    async def request(
        self, method: str, params: Mapping[str, object] | None = None, timeout_s: float = 10.0
    ) -> object:
        """Ask; raises AgentError."""
        ...


@dataclass(frozen=True, slots=True)
class ServerPackages:
    """What a server's Python packages are.

    Attributes:
        site_packages: The folder they lie in.
        versions: Distribution to version; `(editable)` marks source trees.
        changed: Files that are not what was installed.
        total: How many there are; `changed` may be cut.
    """

    site_packages: str
    versions: dict[str, str]
    changed: tuple[ChangedFile, ...]
    total: int

    def changed_in_words(self) -> tuple[str, ...]:
        """For `Environment.changed_files`."""
        words = tuple(in_words(item) for item in self.changed)
        more = self.total - len(words)
        return (*words, f"and {more} more") if more > 0 else words


def in_words(item: ChangedFile) -> str:
    """Such as `sglang/srt/a.py (changed, sglang)`."""
    return f"{item.path} ({item.kind}, {item.package})"


def local_packages(site_packages: Path, names: Sequence[str] = SERVER_PACKAGES) -> ServerPackages:
    """Look at a folder of packages on this machine. Reads many files: not from the event loop."""
    found = packages.changed_files(site_packages, names)
    return ServerPackages(
        str(site_packages), packages.versions(site_packages, names), tuple(found), len(found)
    )


async def server_packages(
    agent: Agent, pid: int, names: Sequence[str] = SERVER_PACKAGES
) -> ServerPackages | None:
    """Look at the packages that a server's process uses, on its host.

    Args:
        agent: Of the host.
        pid: Of the server or one of its workers.
        names: Distributions to look at.

    Returns:
        None where the process uses no folder of packages with one of them.

    Raises:
        AgentError: The process is gone or may not be looked at, or the agent is gone.
    """
    answer = await agent.request("packages.of_process", {"pid": pid})
    folders = answer.get("site_packages") if isinstance(answer, dict) else None
    for folder in folders if isinstance(folders, list) else []:
        if not isinstance(folder, str):
            continue
        answer = await agent.request(
            "packages.changed", {"site_packages": folder, "names": list(names)}, SCAN_S
        )
        found = _decoded(folder, answer)
        if found.versions:
            return found
    return None


def _decoded(folder: str, answer: object) -> ServerPackages:
    if not isinstance(answer, dict):
        raise AgentError("the agent's answer about packages cannot be read")
    versions, changed = answer.get("versions"), answer.get("changed")
    files = [
        ChangedFile(*(clean(part, 400) for part in item))
        for item in (changed if isinstance(changed, list) else [])[: packages.MAX_REPORTED]
        if isinstance(item, list) and len(item) == 3 and all(isinstance(p, str) for p in item)
    ]
    total = answer.get("total")
    return ServerPackages(
        clean(folder, 400),
        {
            clean(name, 120): clean(version, 120)
            for name, version in (versions if isinstance(versions, dict) else {}).items()
            if isinstance(name, str) and isinstance(version, str)
        },
        tuple(files),
        total if isinstance(total, int) else len(files),
    )
