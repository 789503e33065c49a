"""Changed files of installed packages, against their RECORD."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from backends.agent.client import AgentClient
from backends.agent.remote.packages import changed_files, packages, site_packages_of, versions
from backends.bench.environment import in_words, local_packages, server_packages
from backends.errors import AgentError
from backends.link.local import LocalTransport


def install(root: Path, name: str, files: dict[str, bytes], version: str = "1.0") -> None:
    """Lay a package down as an installer does."""
    info = root / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\n")
    lines = []
    for path, data in files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(data)}")
    lines += [f"{info.name}/METADATA,,", f"{info.name}/RECORD,,", "../../../bin/tool,sha256=x,1"]
    (info / "RECORD").write_text("\n".join(lines) + "\n")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    install(
        tmp_path, "sglang",
        {"sglang/__init__.py": b"a = 1\n", "sglang/srt/a.py": b"b = 2\n",
         "sglang/srt/lib.so": b"\x7fELF" + b"0" * 100},
    )  # fmt: skip
    install(tmp_path, "other", {"other/__init__.py": b""})
    return tmp_path


def found(site: Path) -> list[tuple[str, str]]:
    return [(item.path, item.kind) for item in changed_files(site, ["SGLang"])]


def test_an_untouched_package_has_none(site: Path) -> None:
    assert found(site) == []


def test_a_change_of_the_same_length_is_seen(site: Path) -> None:
    (site / "sglang/srt/a.py").write_bytes(b"b = 3\n")
    assert found(site) == [("sglang/srt/a.py", "changed")]
    (item,) = changed_files(site, ["sglang"])
    assert in_words(item) == "sglang/srt/a.py (changed, sglang)"


def test_removed_and_added_files_are_seen(site: Path) -> None:
    (site / "sglang/srt/a.py").unlink()
    (site / "sglang/srt/patch.py").write_text("")
    (site / "sglang/srt/__pycache__").mkdir()
    (site / "sglang/srt/__pycache__/a.cpython-311.pyc").write_text("")
    (site / "sglang/srt/notes.txt").write_text("")
    assert found(site) == [("sglang/srt/a.py", "missing"), ("sglang/srt/patch.py", "added")]


def test_a_library_is_compared_by_its_size(site: Path) -> None:
    (site / "sglang/srt/lib.so").write_bytes(b"\x7fELF" + b"1" * 100)
    assert found(site) == []
    (site / "sglang/srt/lib.so").write_bytes(b"\x7fELF")
    assert found(site) == [("sglang/srt/lib.so", "changed")]


def test_other_packages_are_left_alone(site: Path) -> None:
    (site / "other/__init__.py").write_text("changed")
    assert found(site) == []
    assert [item.package for item in changed_files(site, ["other"])] == ["other"]


def test_source_trees_have_no_list_and_say_so(site: Path) -> None:
    (site / "sglang-1.0.dist-info/direct_url.json").write_text(
        '{"dir_info": {"editable": true}, "url": "file:///root/sglang"}'
    )
    (site / "sglang/srt/a.py").write_bytes(b"")
    assert found(site) == []
    assert versions(site, ["sglang"]) == {"sglang": "1.0 (editable)"}


def test_versions_are_those_asked_for(site: Path) -> None:
    assert local_packages(site).versions == {"sglang": "1.0"}
    assert versions(site, ["other", "absent"]) == {"other": "1.0"}
    assert [package.name for package in packages(site)] == ["other", "sglang"]


def test_a_hostile_record_reads_nothing_outside(site: Path) -> None:
    record = site / "sglang-1.0.dist-info/RECORD"
    record.write_text(
        "/etc/passwd,sha256=x,1\n../x,sha256=x,1\na/../../x,sha256=x,1\n\n,,\n"
        f"sglang/__init__.py,md5=x,{'9' * 40}\n\x00,x\n"
    )
    found = changed_files(site, ["sglang"])
    assert {item.kind for item in found} <= {"added", "missing", "unreadable", "changed"}
    assert all(item.path.isprintable() and ".." not in item.path for item in found)


def test_no_folder_no_packages(tmp_path: Path) -> None:
    assert packages(tmp_path / "none") == []
    assert changed_files(tmp_path / "none", ["sglang"]) == []


def test_metadata_is_cleaned(tmp_path: Path) -> None:
    info = tmp_path / "sglang-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: sglang\nVersion: 1.0\x1b[31m; rm\n\n")
    assert versions(tmp_path, ["sglang"]) == {"sglang": "1.031mrm"}


def test_folders_that_a_process_has_mapped() -> None:
    maps = (
        "7f00-7f01 r-xp 0 08:01 1   /opt/v env/lib/python3.12/site-packages/torch/lib/a.so\n"
        "7f02-7f03 r-xp 0 08:01 2   /opt/v env/lib/python3.12/site-packages/torch/lib/b.so\n"
        "7f04-7f05 r-xp 0 08:01 3   /usr/lib/python3/dist-packages/x.so\n"
        "7f06-7f07 r-xp 0 08:01 4   /usr/lib/libc.so\n7f08-7f09 rw-p 0 00:00 0 [heap]\n"
    )
    assert site_packages_of(maps) == [
        "/opt/v env/lib/python3.12/site-packages", "/usr/lib/python3/dist-packages",
    ]  # fmt: skip


@pytest_asyncio.fixture
async def agent() -> AsyncIterator[AgentClient]:
    client = AgentClient(
        LocalTransport(), on_notification=lambda method, params: None, python=sys.executable
    )
    await client.start(30.0)
    yield client
    await client.close()


async def test_a_real_agent_looks_at_a_real_process(agent: AgentClient) -> None:
    """This very process has msgspec's library mapped."""
    found = await server_packages(agent, os.getpid(), ["msgspec"])
    assert found is not None
    assert found.versions["msgspec"]
    assert found.site_packages in sys.path
    assert found.changed_in_words() == ()


async def test_a_process_without_such_packages(agent: AgentClient) -> None:
    assert await server_packages(agent, os.getpid(), ["no-such-package"]) is None


async def test_a_process_that_is_gone(agent: AgentClient) -> None:
    process = await asyncio.create_subprocess_exec("true")
    await process.wait()
    with pytest.raises(AgentError):
        await server_packages(agent, process.pid, ["msgspec"])
