"""Versions of installed Python packages, and files of theirs that somebody has changed.

A patched library is forgotten by the next day, and then explains nothing. Each installed package
lists its files with their hashes (`RECORD`, PEP 376 and the wheel specification); what differs from
that list was changed. Pure functions on a folder; `register` offers them to the other side.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import re
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from . import rpc

MAX_RECORD_BYTES = 32 * 1024 * 1024
MAX_FILES = 300000
MAX_METADATA_BYTES = 64 * 1024
MAX_MAPS_BYTES = 16 * 1024 * 1024
MAX_REPORTED = 500
HASHED_SUFFIXES = (".py", ".pyi", ".json", ".toml", ".yaml", ".yml", ".cu", ".cuh", ".h")
"""Files that are hashed. Of others, such as libraries of gigabytes, sizes are compared."""
MAX_HASHED_BYTES = 16 * 1024 * 1024


class ChangedFile(NamedTuple):
    """A file that is not what its package installed.

    Attributes:
        package: Name of the distribution.
        path: Relative to the folder of packages, with slashes.
        kind: `changed`, `missing`, `added` or `unreadable`.
    """

    package: str
    path: str
    kind: str


class Package(NamedTuple):
    """An installed distribution.

    Attributes:
        name: As it calls itself.
        version: Likewise.
        folder: Its `.dist-info`.
        editable: Installed from a source tree, whose files no list tells of.
    """

    name: str
    version: str
    folder: Path
    editable: bool


def register(agent: Any) -> None:
    """Add the methods."""
    agent.methods.add("packages.of_process", of_process)
    agent.methods.add("packages.changed", changed, threaded=True)


def changed(params: Dict[str, Any]) -> Dict[str, Any]:
    """Versions and changed files of `names` in the folder `site_packages`."""
    site = Path(os.path.expanduser(str(params["site_packages"])))
    if not site.is_dir():
        raise rpc.RpcError("%s is not a folder" % site)
    names = [str(name) for name in params["names"]]
    files = changed_files(site, names)
    return {
        "versions": versions(site, names),
        "changed": [list(item) for item in files[:MAX_REPORTED]],
        "total": len(files),
    }


def of_process(params: Dict[str, Any]) -> Dict[str, Any]:
    """Folders of packages that a process has libraries from, most used first.

    Read from its memory map: whatever interpreter, environment or container it was started with,
    these are the files that it runs.
    """
    path = "/proc/%d/maps" % int(params["pid"])
    try:
        with open(path, "rb") as file:
            text = file.read(MAX_MAPS_BYTES).decode("utf-8", "replace")
    except OSError as error:
        raise rpc.RpcError("%s: %s" % (path, error.strerror)) from None
    return {"site_packages": site_packages_of(text)}


def site_packages_of(maps: str) -> List[str]:
    """The folders of packages named in the text of a `/proc/PID/maps`."""
    counts: Dict[str, int] = {}
    for found in re.finditer(r"(?m) (/[^\n]*?/(?:site|dist)-packages)/", maps):
        counts[found.group(1)] = counts.get(found.group(1), 0) + 1
    return sorted(counts, key=lambda folder: (-counts[folder], folder))[:20]


def normalised(name: str) -> str:
    """A distribution's name for comparison (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def packages(site_packages: Path) -> List[Package]:
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


def versions(site_packages: Path, names: Sequence[str]) -> Dict[str, str]:
    """Versions of the named distributions that are there; `(editable)` marks source trees."""
    wanted = {normalised(name) for name in names}
    return {
        package.name: package.version + (" (editable)" if package.editable else "")
        for package in packages(site_packages)
        if normalised(package.name) in wanted
    }


def changed_files(site_packages: Path, names: Sequence[str]) -> List[ChangedFile]:
    """Files of the named distributions that were changed, removed or added since installation.

    Args:
        site_packages: Folder of the server's Python packages.
        names: Distributions to look at; those that are not there are skipped.

    Returns:
        In order of package and path. Files that Python writes itself (`__pycache__`) don't count,
        nor do files outside of the folder, nor source trees (`Package.editable`).
    """
    wanted = {normalised(name) for name in names}
    out: List[ChangedFile] = []
    for package in packages(site_packages):
        if normalised(package.name) in wanted and not package.editable:
            out += sorted(_of_package(site_packages, package), key=lambda item: item.path)
    return out


def _of_package(root: Path, package: Package) -> Iterator[ChangedFile]:
    listed: Set[str] = set()
    tops: Set[str] = set()
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


def _state(path: Path, digest: str, size: Optional[int]) -> str:
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


def _record(path: Path) -> Iterator[Tuple[str, str, Optional[int]]]:
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


def _identity(folder: Path) -> Tuple[str, str]:
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
