"""What produced a run: versions of the server's Python packages, and files that were changed.

A patched library is forgotten by the next day, and then explains nothing. Each installed package
lists its files with their hashes (`RECORD`, PEP 376 and the wheel specification); what differs from
that list was changed by somebody. Functions on a folder, of the standard library alone and in
Python 3.8's syntax, so that an agent can run them on a host.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MAX_RECORD_BYTES: Final = 32 * 1024 * 1024
MAX_FILES: Final = 300_000
MAX_METADATA_BYTES: Final = 64 * 1024
HASHED_SUFFIXES: Final = (".py", ".pyi", ".json", ".toml", ".yaml", ".yml", ".cu", ".cuh", ".h")
"""Files that are hashed. Of others, such as libraries of gigabytes, sizes are compared."""
MAX_HASHED_BYTES: Final = 16 * 1024 * 1024
SERVER_PACKAGES: Final = (
    "sglang", "sgl-kernel", "vllm", "flashinfer-python", "torch", "transformers", "triton",
    "tensorrt-llm", "llama-cpp-python", "xgrammar", "flash-attn", "deep-gemm", "deep-ep",
)  # fmt: skip


@dataclass(frozen=True)
class ChangedFile:
    """A file that is not what its package installed.

    Attributes:
        package: Name of the distribution.
        path: Relative to the folder of packages, with slashes.
        kind: `changed`, `missing`, `added` or `unreadable`.
    """

    package: str
    path: str
    kind: str

    def __str__(self) -> str:
        return f"{self.path} ({self.kind}, {self.package})"


@dataclass(frozen=True)
class Package:
    """An installed distribution."""

    name: str
    version: str
    folder: Path
    """Its `.dist-info`."""
    editable: bool
    """Installed from a source tree, whose files no list tells of."""


def normalised(name: str) -> str:
    """A distribution's name for comparison (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def packages(site_packages: Path) -> list[Package]:
    """Distributions in a folder of packages, by name."""
    found = []
    try:
        entries = sorted(os.scandir(site_packages), key=lambda entry: entry.name)
    except OSError:
        return []
    for entry in entries:
        if not entry.name.endswith(".dist-info") or not entry.is_dir():
            continue
        folder = Path(entry.path)
        name, version = _identity(folder)
        if name:
            direct = _read(folder / "direct_url.json", MAX_METADATA_BYTES)
            editable = re.search(rb'"editable"\s*:\s*true', direct) is not None
            found.append(Package(name, version, folder, editable))
    return found


def versions(site_packages: Path, names: Sequence[str] = SERVER_PACKAGES) -> dict[str, str]:
    """Versions of the named distributions that are there; `(editable)` marks source trees."""
    wanted = {normalised(name) for name in names}
    return {
        package.name: package.version + (" (editable)" if package.editable else "")
        for package in packages(site_packages)
        if normalised(package.name) in wanted
    }


def changed_files(site_packages: Path, names: Sequence[str] = SERVER_PACKAGES) -> list[ChangedFile]:
    """Files of the named distributions that were changed, removed or added since installation.

    Args:
        site_packages: Folder of the server's Python packages.
        names: Distributions to look at; those that are not there are skipped.

    Returns:
        In order of package and path. Files that Python writes itself (`__pycache__`) don't count,
        nor do files outside of the folder, nor source trees (`Package.editable`).
    """
    wanted = {normalised(name) for name in names}
    out: list[ChangedFile] = []
    for package in packages(site_packages):
        if normalised(package.name) in wanted and not package.editable:
            out += sorted(_of_package(site_packages, package), key=lambda item: item.path)
    return out


def _of_package(root: Path, package: Package) -> Iterator[ChangedFile]:
    listed: set[str] = set()
    tops: set[str] = set()
    for path, digest, size in _record(package.folder / "RECORD"):
        if path.startswith(("/", "..")) or "/../" in path or "__pycache__" in path:
            continue
        listed.add(path)
        top = path.split("/", 1)[0]
        if "/" in path and not top.endswith((".dist-info", ".data", ".libs")):
            tops.add(top)
        kind = _state(root / path, digest, size)
        if kind:
            yield ChangedFile(package.name, _shown(path), kind)
    for path in _python_files(root, tops):
        if path not in listed:
            yield ChangedFile(package.name, _shown(path), "added")


def _state(path: Path, digest: str, size: int | None) -> str:
    """What is wrong with one file; empty where nothing is."""
    try:
        found = path.stat().st_size
    except FileNotFoundError:
        return "missing"
    except (OSError, ValueError):
        return "unreadable"
    if size is not None and found != size:
        return "changed"
    if not digest or path.suffix not in HASHED_SUFFIXES or found > MAX_HASHED_BYTES:
        return ""
    algorithm, _, expected = digest.partition("=")
    if algorithm not in ("sha256", "sha384", "sha512"):
        return ""
    try:
        hashed = hashlib.new(algorithm, path.read_bytes()).digest()
    except OSError:
        return "unreadable"
    same = base64.urlsafe_b64encode(hashed).rstrip(b"=").decode() == expected.rstrip("=")
    return "" if same else "changed"


def _record(path: Path) -> Iterator[tuple[str, str, int | None]]:
    """Path, hash and size of each line of a RECORD file."""
    text = _read(path, MAX_RECORD_BYTES).decode("utf-8", "replace")
    for line in text.splitlines()[:MAX_FILES]:
        try:
            row = next(csv.reader([line]), [])
        except csv.Error:
            continue
        if row and row[0]:
            digest = row[1] if len(row) > 1 else ""
            size = row[2] if len(row) > 2 else ""
            yield row[0], digest, int(size) if size.isdecimal() and len(size) < 19 else None


def _python_files(root: Path, tops: Iterable[str]) -> Iterator[str]:
    count = 0
    for top in sorted(tops):
        for folder, inner, files in os.walk(root / top):
            inner[:] = [name for name in inner if name != "__pycache__"]
            for name in files:
                count += 1
                if count > MAX_FILES:
                    return
                if name.endswith(".py"):
                    yield (Path(folder) / name).relative_to(root).as_posix()


def _identity(folder: Path) -> tuple[str, str]:
    """Name and version from METADATA."""
    name = version = ""
    text = _read(folder / "METADATA", MAX_METADATA_BYTES).decode("utf-8", "replace")
    for line in text.splitlines():
        if not line:
            break
        key, _, value = line.partition(":")
        if key == "Name":
            name = _plain(value)
        elif key == "Version":
            version = _plain(value)
    return name, version


def _plain(text: str) -> str:
    """A name or version: what these may consist of, and no more."""
    return re.sub(r"[^A-Za-z0-9._+!-]", "", text)[:120]


def _shown(path: str) -> str:
    """A file name without anything that a terminal would obey."""
    return "".join(c if c.isprintable() else "\ufffd" for c in path[:400])


def _read(path: Path, limit: int) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(limit)
    except OSError:
        return b""
