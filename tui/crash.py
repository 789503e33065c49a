"""What a crash leaves behind: a file with everything, and two lines on the terminal."""

from __future__ import annotations

import os
import platform
import sys
import traceback
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from backends import paths


def write_report(error: BaseException) -> Path | None:
    """Write the traceback without local values (they may hold secrets); None if that fails."""
    now = datetime.now(UTC)
    lines = [
        f"gpuroom crashed at {now.isoformat(timespec='seconds')}",
        f"python {platform.python_version()} on {platform.platform()}",
        *(f"{name} {_version(name)}" for name in ("gpuroom", "textual", "rich", "asyncssh")),
        f"TERM={os.environ.get('TERM', '')} COLORTERM={os.environ.get('COLORTERM', '')}",
        "",
        *traceback.format_exception(error),
    ]
    place = paths.log_dir() / f"crash-{now:%Y%m%d-%H%M%S}-{os.getpid()}.log"
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("\n".join(lines) + "\n", encoding="utf-8", errors="replace")
    except OSError:
        return None
    return place


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def say(error: BaseException, report: Path | None) -> None:
    """The two lines."""
    print(f"gpuroom crashed: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr)
    where = f"the report is {report}" if report else "the report could not be written"
    print(f"  {where}", file=sys.stderr)
