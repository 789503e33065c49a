"""The table of recordings beside the checkout and what is expected of each."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from backends.tuning import readers
from backends.tuning.engine import Options, evaluate


@dataclass(frozen=True, slots=True)
class Expectation:
    """One `check=VERDICT` of the index, and the files it speaks of."""

    id: str
    files: tuple[Path, ...]
    check: str
    verdict: str


def expectations(folder: Path) -> list[Expectation]:
    """Every expectation of `index.tsv`; `check@c12` is judged together with that file."""
    with (folder / "index.tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    paths = {row["id"]: folder / row["file"] for row in rows}
    result = []
    for row in rows:
        own = paths[row["id"]]
        if row["expect"].startswith("parse."):
            what, _, pairs = row["expect"].partition(":")
            result.append(Expectation(row["id"], (own,), what, pairs))
            continue
        for item in row["expect"].split(";"):
            check, _, verdict = item.strip().rpartition("=")
            base, _, partner = check.partition("@")
            if partner in paths:
                result.append(Expectation(row["id"], (own, paths[partner]), base, verdict))
            else:
                result.append(Expectation(row["id"], (own,), check, verdict))
    return result


def judge(files: tuple[Path, ...]) -> dict[str, tuple[str, str]]:
    """Verdict and evidence of each check for these files of one host."""
    texts = [(path.name, path.read_text(encoding="utf-8", errors="replace")) for path in files]
    document = readers.read_texts(texts)
    return {
        f.check: (f.verdict.value, f.evidence)
        for f in evaluate(document, Options(only_touched=True))
    }
