"""The fields of the result document as Markdown, from the classes that define it."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from types import ModuleType

from backends.bench import possible, results


def markdown() -> str:
    """docs/result-document.md: every object of the document with its fields, types and meaning."""
    lines = [
        "# The result document",
        "",
        f"Schema {results.SCHEMA}. Made from the classes that define it by `gpuroom bench export",
        "--schema --markdown`; without `--markdown` that prints its JSON Schema. Times inside a",
        "run are seconds since it began; what could not be had is null, never 0. `docs/bench.md`",
        "defines the metrics. A field is added without a new schema number; one that goes away or",
        "changes its meaning raises it, and older documents are still read.",
    ]
    enums: dict[str, list[str]] = {}
    for module in (results, possible):
        for name, about, fields in _objects(module):
            lines += ["", f"## {name}", "", about, "", "| field | type | meaning |"]
            lines += ["| --- | --- | --- |"]
            lines += [f"| `{field}` | {kind} | {meaning} |" for field, kind, meaning in fields]
        enums |= _enums(module)
    lines += ["", "## Closed sets", "", "| type | values |", "| --- | --- |"]
    lines += [f"| `{name}` | {', '.join(values)} |" for name, values in enums.items()]
    return "\n".join(lines) + "\n"


def _classes(module: ModuleType) -> Iterator[ast.ClassDef]:
    tree = ast.parse(inspect.getsource(module))
    return (node for node in tree.body if isinstance(node, ast.ClassDef))


def _objects(module: ModuleType) -> Iterator[tuple[str, str, list[tuple[str, str, str]]]]:
    for node in _classes(module):
        if "Struct" not in ast.unparse(node.bases[0]):
            continue
        fields = []
        for place, item in enumerate(node.body):
            if isinstance(item, ast.AnnAssign):
                after = node.body[place + 1] if place + 1 < len(node.body) else None
                fields.append(
                    (ast.unparse(item.target), _type(item.annotation), _plain(_string(after)))
                )
        yield node.name, _plain(ast.get_docstring(node) or ""), fields


def _enums(module: ModuleType) -> dict[str, list[str]]:
    found = {}
    for node in _classes(module):
        if node.bases and ast.unparse(node.bases[0]) == "StrEnum":
            found[node.name] = [
                f"`{item.value.value!s}`"
                for item in node.body
                if isinstance(item, ast.Assign) and isinstance(item.value, ast.Constant)
            ]
    return found


def _type(annotation: ast.expr) -> str:
    text = ast.unparse(annotation)
    return f"`{text.replace('None', 'null')}`".replace("|", "or")


def _string(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return str(node.value.value)
    return ""


def _plain(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
