"""Every recorded log, with the verdict that people gave it."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator

import pytest

from backends.servers.catalogue import Catalogue, load_catalogue
from backends.servers.diagnose import diagnose_bytes, diagnose_file
from tests.conftest import SHARED

LOGS = SHARED / "logs"
ENGINES = {"llama.cpp": "llamacpp", "trtllm-serve": "trtllm"}
# The kinds of the index in the catalogue's words, where the words differ.
KINDS = {
    "hang-in-forward -> watchdog timeout": {"watchdog-timeout"},
    "cuda-oom (attention workspace": {"cuda-oom-late"},
    "cuda-oom (compute": {"cuda-oom-buffers"},
    "cuda-oom (KV": {"cuda-oom-buffers"},
}
pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not LOGS.is_dir(), reason="no recordings beside the checkout"),
]


def rows() -> Iterator[dict[str, str]]:
    index = LOGS / "index.tsv"
    if index.is_file():
        with index.open(encoding="utf-8") as lines:
            yield from csv.DictReader(lines, delimiter="\t")


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return load_catalogue()


def number(text: str) -> int | None:
    return None if text == "-" else int(text)


def kinds_of(verdict: str) -> set[str]:
    for start, kinds in KINDS.items():
        if verdict.startswith(start):
            return kinds
    return {re.split(r"[ (]", verdict)[0]}


@pytest.mark.parametrize("row", rows(), ids=lambda row: row["id"])
def test_a_recorded_log_gets_its_verdict(row: dict[str, str], catalogue: Catalogue) -> None:
    verdict = diagnose_file(LOGS / row["file"], catalogue)
    assert verdict.engine == ENGINES.get(row["server"], row["server"])
    assert verdict.outcome == row["outcome"]
    assert verdict.ready_line == number(row["ready_line"])
    assert verdict.evidence is not None
    assert verdict.evidence.line == number(row["evidence_line"])
    if row["outcome"] in ("ready", "loading"):
        assert verdict.cause is None
    else:
        assert verdict.cause in kinds_of(row["verdict"])
        assert verdict.title
    if verdict.version is not None and re.fullmatch(
        r"b?\d+(?:\.\d+)*(?:\.post\d+)?", row["version"]
    ):
        assert verdict.version == row["version"]


# These hold a good run before the one that counts, or begin while the server serves.
READY_BEFORE = ("lc-02", "sg-11")


@pytest.mark.parametrize(
    "row", [row for row in rows() if row["id"] not in READY_BEFORE], ids=lambda row: row["id"]
)
def test_no_beginning_of_a_log_is_called_ready_before_its_time(
    row: dict[str, str], catalogue: Catalogue
) -> None:
    ready = number(row["ready_line"])
    lines = (LOGS / row["file"]).read_bytes().split(b"\n")
    last = len(lines) if ready is None else ready - 1
    for end in range(1, last, max(1, last // 12)):
        verdict = diagnose_bytes(b"\n".join(lines[:end]), catalogue)
        assert verdict.outcome != "ready", f"after {end} lines"


@pytest.mark.parametrize(
    "row", [row for row in rows() if row["outcome"] == "ready"], ids=lambda row: row["id"]
)
def test_a_start_that_succeeds_never_looks_like_a_crash_on_its_way(
    row: dict[str, str], catalogue: Catalogue
) -> None:
    lines = (LOGS / row["file"]).read_bytes().split(b"\n")
    for end in range(1, len(lines), max(1, len(lines) // 15)):
        verdict = diagnose_bytes(b"\n".join(lines[:end]) + b"\n", catalogue)
        assert verdict.outcome in ("loading", "ready"), f"after {end} lines: {verdict.title}"
