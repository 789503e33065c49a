"""What is sent: its size, its syntax, and that nothing but comments was left out."""

from __future__ import annotations

import ast
import dis
import json
import re
import shutil
import subprocess
import sys
import types
import zlib
from pathlib import Path

import pynvml
import pytest

from backends.agent import loader
from backends.errors import AgentError

REMOTE = sorted(loader.REMOTE.glob("*.py"))
MAX_PAYLOAD = 60_000


def old_python() -> str | None:
    """A python3.8 of this machine."""
    found = sorted(Path.home().glob(".pyenv/versions/3.8*/bin/python3.8"))
    return str(found[-1]) if found else shutil.which("python3.8")


def structure(source: str) -> str:
    """A module's syntax tree without docstrings and their stand-ins."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [  # type: ignore[attr-defined]
                line
                for line in body
                if not (
                    isinstance(line, ast.Expr)
                    and isinstance(line.value, ast.Constant)
                    and (isinstance(line.value.value, str) or line.value.value == 0)
                )
            ]
    return ast.dump(tree)


def statement_lines(source: str) -> set[int]:
    return {node.lineno for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt)}


@pytest.mark.parametrize("path", REMOTE, ids=lambda path: path.stem)
def test_remote_modules_are_python_3_8(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    ast.parse(source, feature_version=(3, 8))
    imported = {
        alias.name.split(".")[0]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import)
        for alias in node.names
    } | {
        (node.module or "").split(".")[0]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and node.level == 0
    }
    assert imported <= sys.stdlib_module_names | {"psutil", "pynvml"}


@pytest.mark.parametrize("path", [*REMOTE, Path(pynvml.__file__)], ids=lambda path: path.stem)
def test_stripping_leaves_out_nothing_that_runs(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    stripped = loader.strip(source)
    assert structure(stripped) == structure(source)
    assert statement_lines(source) - statement_lines(stripped) <= {1}
    assert not re.search(r"(?m)^\s*#", stripped)


def test_the_quick_way_leaves_out_nothing_that_runs_either() -> None:
    source = Path(pynvml.__file__).read_text(encoding="utf-8")
    stripped = loader.strip_quickly(source)
    assert structure(stripped) == structure(source)
    assert len(stripped) < 0.8 * len(source)


def test_strip_keeps_strings_and_continuations() -> None:
    source = (
        'x = "a # b"  # c\ny = (1 +\n     2)\nz = 1 if x else \\\n    2\ndef f():\n    """doc"""\n'
    )
    stripped = loader.strip(source)
    names: dict[str, object] = {}
    exec(stripped, names)
    assert (names["x"], names["y"], names["z"]) == ("a # b", 3, 1)
    assert "doc" not in stripped


def test_payload_is_small_and_made_once() -> None:
    first = loader.build_payload()
    assert len(first) <= MAX_PAYLOAD
    assert loader.build_payload() == first
    assert b"'" not in loader.STUB.encode()
    assert not set('$!"\n\\`') & set(loader.STUB)


def test_every_core_module_travels_and_no_other() -> None:
    rest = loader.build_payload().partition(b"\n")[2]
    first = zlib.decompressobj()
    first.decompress(rest)
    second = first.unused_data.partition(b"\n")[2]
    modules = json.loads(zlib.decompressobj().decompress(second))
    ours = {f"{loader.PACKAGE}.{name}" for name in loader.CORE}
    assert set(modules) == ours | {loader.PACKAGE, "pynvml"}
    assert "NVIDIA" in modules["pynvml"].split("\n")[0]
    assert "Redistribution" in modules["pynvml"].split("\n")[0]


def _globals_used(code: types.CodeType) -> set[str]:
    """Names that a function, or one within it, takes from its module."""
    used = {
        i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    }
    return used.union(*(_globals_used(c) for c in code.co_consts if isinstance(c, types.CodeType)))


def test_the_pynvml_that_travels_works_and_has_all_that_the_agent_names() -> None:
    module = types.ModuleType("pynvml_as_sent")
    sys.modules[module.__name__] = module
    try:
        exec(loader._pynvml_source(), module.__dict__)
        text = "".join(path.read_text(encoding="utf-8") for path in REMOTE)
        named = set(re.findall(r"\w+", text)) & {n for n in dir(pynvml) if n[:4].lower() == "nvml"}
        assert len(named) > 80
        assert named - set(dir(module)) == set()
        code = compile(loader._pynvml_source(), "pynvml", "exec")
        inside = set().union(
            *(_globals_used(c) for c in code.co_consts if isinstance(c, types.CodeType))
        )
        cut = set(dir(pynvml)) - set(dir(module))
        assert inside & cut == set(), "a kept function needs one that was cut"
        assert {n for n in cut if n.startswith(("NVML_ERROR_", "NVMLError"))} == set()
        assert issubclass(module.NVMLError_GpuIsLost, module.NVMLError)
    finally:
        del sys.modules[module.__name__]


def test_what_the_agent_calls_is_in_pynvml() -> None:
    """A name that is misspelt would be taken for an old driver."""
    text = "".join(path.read_text(encoding="utf-8") for path in REMOTE)
    names = set(re.findall(r"\bnvml(?:Device|System|Init|Shutdown|Memory)\w*", text))
    names |= set(re.findall(r"\bNVML_[A-Z][A-Z0-9_]+", text))
    assert [name for name in sorted(names) if not hasattr(pynvml, name)] == []
    assert len(names) > 60


@pytest.mark.real
def test_the_payload_runs_on_python_3_8() -> None:
    python = old_python()
    if python is None:
        pytest.skip("no python3.8 here")
    process = subprocess.run(
        loader.agent_argv(python),
        input=loader.build_payload() + b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n',
        capture_output=True,
        timeout=60,
    )
    assert process.returncode == 0, process.stderr
    after = process.stdout.partition(loader.MARKER + b"\n")[2].splitlines()
    hello = json.loads(after[0])
    assert hello["method"] == "hello"
    assert hello["params"]["python"].startswith("3.8.")
    assert any(json.loads(line).get("id") == 1 for line in after)


def test_an_unknown_module_is_refused() -> None:
    for name in ("nothing_here", "../client", "Worker"):
        with pytest.raises(AgentError):
            loader.pack_area(name)
