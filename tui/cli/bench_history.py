"""What the commands about earlier runs share: the history, and what a run's name means."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backends.bench.results import RunResult
    from backends.storage.history import History

NAMES = (
    "RUN is an id or its beginning, `last`, `last~1`, `tag:NAME`, or a file: gpuroom's own JSON, "
    "or that of vllm bench serve, sglang.bench_serving, guidellm, aiperf, genai-perf"
)


def open_history() -> History:
    """The user's history."""
    from backends.storage.history import History

    return History.at_home()


def find_run(history: History, name: str) -> RunResult:
    """The run that `name` means, from the history or from a file.

    Raises:
        RunNotFound: None, or several.
        ImportFailed: The file is no result.
    """
    path = Path(name)
    if path.suffix in (".json", ".jsonl") or "/" in name:
        from backends.bench.importers import read_result_file

        return read_result_file(path)
    return history.load(history.resolve(name))


def unfinished_runs(history: History) -> list[Path]:
    """Records of runs that nobody goes on with and that never came into the history."""
    from backends.bench.sink import draft_file, goes_on
    from backends.errors import UsageError

    found = []
    for path in sorted((history.folder / "runs").glob("*.jsonl"))[:1000]:
        try:
            history.row(path.stem)
        except UsageError:
            if not goes_on(path) and (path.stat().st_size or draft_file(path).exists()):
                found.append(path)
    return found


def share(text: str) -> float:
    """Read `3%`, `3 %` or `0.03`.

    Raises:
        ValueError: Neither, or not between 0 and 1.
    """
    stripped = text.strip()
    value = float(stripped[:-1]) / 100 if stripped.endswith("%") else float(stripped)
    if not 0 < value < 1:
        raise ValueError(text)
    return value


def figure(value: float | None, digits: int = 1, scale: float = 1.0) -> str:
    """A number, or a dash where it is absent."""
    return "-" if value is None else f"{value * scale:,.{digits}f}"
