"""What runs on the host imports the standard library, pynvml and its own modules alone."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

REMOTE = Path(__file__).resolve().parents[2] / "backends" / "agent" / "remote"
OPTIONAL = {"pynvml", "psutil"}


def imported(path: Path) -> set[str]:
    """First parts of every module that a file imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(node.module or "")
    return names


def test_only_the_standard_library() -> None:
    for path in REMOTE.rglob("*.py"):
        foreign = {
            name
            for name in imported(path)
            if name.split(".")[0] not in {*sys.stdlib_module_names, *OPTIONAL}
            and not name.startswith("backends.agent.remote")
        }
        assert not foreign, f"{path.name} imports {foreign}"
