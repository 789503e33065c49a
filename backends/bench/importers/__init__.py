"""Results of other tools, and of other gpurooms, as result documents.

Figures keep their tool's definitions (`docs/results.md` has them side by side), so runs of
different tools are compared only when asked for.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import msgspec

from backends.bench.draft import completed, read_draft
from backends.bench.importers import aiperf, genai_perf, guidellm, records, sglang, vllm
from backends.bench.importers.common import ImportFailed, Object
from backends.bench.results import SCHEMA, RunResult, from_json
from backends.text import clean

__all__ = ["MAX_FILE_BYTES", "ImportFailed", "read_result", "read_result_file"]

MAX_FILE_BYTES: Final = 512 * 1024 * 1024
_TOOLS: Final = (sglang, vllm, guidellm, genai_perf, aiperf, records)


def read_result_file(path: Path) -> RunResult:
    """Read a file of gpuroom, vLLM, SGLang, GuideLLM, AIPerf or GenAI-Perf.

    Records of a run that never came to its end are read with the document beside them.

    Raises:
        ImportFailed: Unreadable, too large, or no such result.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ImportFailed("The file cannot be read", f"{path}: {error.strerror}") from error
    if len(raw) > MAX_FILE_BYTES:
        raise ImportFailed("The file is too large", f"{path}: over {MAX_FILE_BYTES >> 20} MiB")
    draft = read_draft(path) if path.suffix == ".jsonl" else None
    return completed(draft, raw) if draft is not None else read_result(raw, path.stem, str(path))


def read_result(raw: bytes, name: str, where: str = "") -> RunResult:
    """Read a result from its bytes; `name` becomes the plan's, `where` stands in errors."""
    values = _objects(raw, where)
    first = values[0]
    if "run_id" in first and "schema" in first:
        return _own(raw, first, where)
    for tool in _TOOLS:
        if tool.recognises(first):
            run: RunResult = tool.read([v for v in values if tool.recognises(v)], raw, name)
            return run
    raise ImportFailed(
        "No result of a known tool",
        f"{where}: keys {', '.join(clean(key, 40) for key in list(first)[:8])}",
        "Known: gpuroom's own, vllm bench serve, sglang.bench_serving, guidellm, aiperf, "
        "genai-perf.",
    )


def _own(raw: bytes, first: Object, where: str) -> RunResult:
    schema = first.get("schema")
    if isinstance(schema, int) and schema > SCHEMA:
        raise ImportFailed(
            "The result was written by a newer gpuroom",
            f"{where}: schema {schema}, this one knows {SCHEMA}",
            "Update gpuroom here.",
        )
    try:
        return from_json(raw)
    except msgspec.MsgspecError as error:
        raise ImportFailed("The result cannot be read", f"{where}: {error}") from error


def _objects(raw: bytes, where: str) -> list[Object]:
    """One JSON object, or one a line."""
    try:
        value = json.loads(raw)
        values = value if isinstance(value, list) else [value]
    except (ValueError, RecursionError) as whole_error:
        # A last line without its end was cut off by whatever ended its writer.
        whole, _, rest = raw.rpartition(b"\n")
        lines = (whole if whole and not rest.endswith(b"}") else raw).splitlines()
        try:
            values = [json.loads(line) for line in lines if line.strip()]
        except (ValueError, RecursionError):
            raise ImportFailed("The file is no valid JSON", f"{where}: {whole_error}") from None
    objects: list[Object] = [value for value in values if isinstance(value, dict)]
    if not objects:
        raise ImportFailed("The file holds no JSON object", where)
    return objects
