"""Benchmark runs, for ever: documents, figures to list and search, tags, notes, baselines.

The table group `bench` of the one database. The whole result document is kept compressed; what is
listed, searched and sorted by has columns of its own, so that a list never opens a document.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Final

import msgspec

from backends.bench.results import SCHEMA, RunResult, from_json
from backends.errors import UsageError
from backends.storage.bench_tables import (
    BENCH_TABLES,
    NEWEST_FIRST,
    SAVE_DOCUMENT,
    SAVE_RUN,
    SAVE_STEP,
    SELECT_RUNS,
    RunRow,
    read_row,
    run_values,
    step_values,
)
from backends.storage.database import Database
from backends.storage.failure import StorageError
from backends.storage.samples import check_run_id, sample_path
from backends.text import clean

MAX_DOCUMENT_BYTES: Final = 512 * 1024 * 1024
MAX_TAG_CHARS: Final = 60
MAX_NOTE_CHARS: Final = 4000


@dataclass(frozen=True, slots=True)
class Note:
    """Something that a person wrote about a run."""

    written_utc: datetime
    text: str


@dataclass(frozen=True, slots=True)
class Filter:
    """Which runs to list; empty fields don't restrict."""

    search: str = ""
    """Words that all have to fit: plan, model, profile, host, engine, GPUs, tag, note, id."""
    tag: str = ""
    profile: str = ""
    plan: str = ""
    limit: int = 1000


class RunNotFound(UsageError):
    """No run of that name in the history."""


class History:
    """The runs of this user. Calls block for milliseconds: from the event loop use a thread."""

    def __init__(self, database: Database, folder: Path | None = None) -> None:
        """Use `database`; sample files lie in `folder`, beside it by default."""
        self.database = database
        self.folder = folder or database.path.parent

    @classmethod
    def at_home(cls) -> History:
        """The user's own history."""
        return cls(Database.at_home([BENCH_TABLES]))

    def __enter__(self) -> History:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the database."""
        self.database.close()

    def save(self, run: RunResult) -> None:
        """Store a run, or what has come of it until now; tags, notes and baselines stay.

        Raises:
            StorageError: It could not be stored; what was stored before is intact.
        """
        check_run_id(run.run_id)
        body = zlib.compress(msgspec.json.encode(run), 6)
        steps = [step_values(run.run_id, place, step) for place, step in enumerate(run.steps)]
        with self.database.writing() as connection:
            connection.execute(SAVE_RUN, run_values(run))
            connection.execute(SAVE_DOCUMENT, (run.run_id, run.schema, body))
            connection.execute("DELETE FROM bench_step WHERE run_id = ?", (run.run_id,))
            connection.executemany(SAVE_STEP, steps)

    def load(self, run_id: str) -> RunResult:
        """The whole document of a run.

        Raises:
            RunNotFound: No run has that id.
            StorageError: It was written by a newer gpuroom, or is damaged.
        """
        with self.database.reading() as connection:
            row = connection.execute(
                "SELECT schema, body FROM bench_document WHERE run_id = ?", (run_id,)
            ).fetchone()
        if row is None:
            raise RunNotFound(f"No run {clean(run_id, 80)}", hint="`gpuroom bench list` has them.")
        if row["schema"] > SCHEMA:
            raise StorageError(
                f"Run {run_id} was written by a newer gpuroom", hint="Update gpuroom here."
            )
        try:
            unpacker = zlib.decompressobj()
            return from_json(unpacker.decompress(row["body"], MAX_DOCUMENT_BYTES))
        except (zlib.error, msgspec.MsgspecError) as error:
            raise StorageError(f"Run {run_id} is damaged", clean(str(error), 200)) from error

    def runs(self, which: Filter | None = None) -> list[RunRow]:
        """Runs, newest first."""
        which = which or Filter()
        clauses, values = _clauses(which)
        where = f" WHERE {' AND '.join(clauses)}" if clauses else ""
        with self.database.reading() as connection:
            rows = connection.execute(
                f"{SELECT_RUNS}{where}{NEWEST_FIRST} LIMIT ?", (*values, which.limit)
            ).fetchall()
        return [read_row(row) for row in rows]

    def row(self, run_id: str) -> RunRow:
        """The line of one run.

        Raises:
            RunNotFound: No run has that id.
        """
        with self.database.reading() as connection:
            row = connection.execute(f"{SELECT_RUNS} WHERE run_id = ?", (run_id,)).fetchone()
        if row is None:
            raise RunNotFound(f"No run {clean(run_id, 80)}", hint="`gpuroom bench list` has them.")
        return read_row(row)

    def last_of(self, host: str) -> RunRow | None:
        """The newest run of a host; None where there is none."""
        with self.database.reading() as connection:
            row = connection.execute(
                f"{SELECT_RUNS} WHERE host = ?{NEWEST_FIRST} LIMIT 1", (host,)
            ).fetchone()
        return read_row(row) if row is not None else None

    def resolve(self, name: str) -> str:
        """The id that `name` means: an id, its unique beginning, `last`, `last~2`, `tag:NAME`.

        Raises:
            RunNotFound: None, or several.
        """
        with self.database.reading() as connection:
            if name == "last" or name.startswith("last~"):
                back = name.removeprefix("last").removeprefix("~") or "0"
                if not back.isdecimal() or len(back) > 9:
                    raise RunNotFound(f"No run is meant by {clean(name, 40)}")
                found = connection.execute(
                    "SELECT run_id FROM bench_run ORDER BY started_utc DESC, run_id DESC"
                    " LIMIT 1 OFFSET ?",
                    (int(back),),
                ).fetchall()
            elif name.startswith("tag:"):
                found = connection.execute(
                    "SELECT run_id FROM bench_tag JOIN bench_run USING (run_id) WHERE tag = ?"
                    " ORDER BY started_utc DESC, run_id DESC LIMIT 1",
                    (name.removeprefix("tag:"),),
                ).fetchall()
            else:
                found = connection.execute(
                    "SELECT run_id FROM bench_run WHERE substr(run_id, 1, ?) = ?"
                    " ORDER BY run_id = ? DESC LIMIT 3",
                    (len(name), name, name),
                ).fetchall()
        ids = [str(row[0]) for row in found]
        if ids and (len(ids) == 1 or ids[0] == name):
            return ids[0]
        if ids and name:
            raise RunNotFound(f"{clean(name, 80)} is the beginning of several runs", ", ".join(ids))
        raise RunNotFound(
            f"No run {clean(name, 80) or '(empty name)'}", hint="`gpuroom bench list` has them."
        )

    def delete(self, run_id: str) -> None:
        """Forget a run with its tags, notes, samples, and a baseline that it was."""
        with self.database.writing() as connection:
            if not connection.execute("DELETE FROM bench_run WHERE run_id = ?", (run_id,)).rowcount:
                raise RunNotFound(f"No run {clean(run_id, 80)}")
        self.samples_of(run_id).unlink(missing_ok=True)

    def samples_of(self, run_id: str) -> Path:
        """Where the samples of a run lie; the file may not be there."""
        return sample_path(run_id, self.folder)

    def tag(self, run_id: str, tags: Sequence[str], *, remove: bool = False) -> None:
        """Add or remove tags.

        Raises:
            UsageError: A tag that is empty, too long, or has control characters or commas.
        """
        for tag in tags:
            if not tag.strip() or len(tag) > MAX_TAG_CHARS or clean(tag) != tag or "," in tag:
                raise UsageError(
                    f"{clean(tag, 80)!r} cannot be a tag",
                    hint=f"1 to {MAX_TAG_CHARS} characters, no commas, no control characters.",
                )
        statement = (
            "DELETE FROM bench_tag WHERE run_id = ? AND tag = ?"
            if remove
            else "INSERT OR IGNORE INTO bench_tag VALUES (?, ?)"
        )
        self.row(run_id)
        with self.database.writing() as connection:
            connection.executemany(statement, [(run_id, tag) for tag in tags])

    def note(self, run_id: str, text: str) -> None:
        """Add a note to a run."""
        if not text.strip():
            raise UsageError("An empty note says nothing")
        self.row(run_id)
        with self.database.writing() as connection:
            connection.execute(
                "INSERT INTO bench_note (run_id, written_utc, text) VALUES (?, ?, ?)",
                (run_id, _now(), clean(text, MAX_NOTE_CHARS)),
            )

    def notes(self, run_id: str) -> list[Note]:
        """Notes of a run, oldest first."""
        with self.database.reading() as connection:
            rows = connection.execute(
                "SELECT written_utc, text FROM bench_note WHERE run_id = ? ORDER BY id", (run_id,)
            ).fetchall()
        return [Note(datetime.fromisoformat(row[0]), row[1]) for row in rows]

    def pin(self, run_id: str) -> RunRow:
        """Make a run the baseline of its profile and plan; gives its row."""
        row = self.row(run_id)
        with self.database.writing() as connection:
            connection.execute(
                "INSERT INTO bench_baseline VALUES (?, ?, ?, ?) ON CONFLICT (profile, plan_digest)"
                " DO UPDATE SET run_id = excluded.run_id, pinned_utc = excluded.pinned_utc",
                (row.profile, row.plan_digest, run_id, _now()),
            )
        return row

    def unpin(self, run_id: str) -> bool:
        """Let a run be no baseline any more; gives whether it was one."""
        with self.database.writing() as connection:
            statement = "DELETE FROM bench_baseline WHERE run_id = ?"
            return connection.execute(statement, (run_id,)).rowcount > 0

    def baselines(self) -> list[RunRow]:
        """All pinned runs, newest first."""
        with self.database.reading() as connection:
            rows = connection.execute(f"{SELECT_RUNS} WHERE baseline{NEWEST_FIRST}").fetchall()
        return [read_row(row) for row in rows]

    def baseline_of(self, run: RunResult) -> str | None:
        """The run that is pinned for this one's profile and plan."""
        with self.database.reading() as connection:
            row = connection.execute(
                "SELECT run_id FROM bench_baseline WHERE profile = ? AND plan_digest = ?",
                (run.target.profile or "", run.plan.digest),
            ).fetchone()
        return str(row[0]) if row else None


def _now() -> str:
    return datetime.now(UTC).isoformat()


def _clauses(which: Filter) -> tuple[list[str], list[str]]:
    clauses: list[str] = []
    values: list[str] = []
    for word in which.search.split():
        pattern = "%" + word.replace("\\", "\\\\").replace("%", r"\%").replace("_", r"\_") + "%"
        clauses.append(
            "(plan || ' ' || coalesce(model, '') || ' ' || profile || ' ' || coalesce(host, '')"
            " || ' ' || engine || ' ' || gpus || ' ' || run_id LIKE ? ESCAPE '\\'"
            " OR EXISTS (SELECT 1 FROM bench_tag s WHERE s.run_id = r.run_id"
            " AND s.tag LIKE ? ESCAPE '\\')"
            " OR EXISTS (SELECT 1 FROM bench_note s WHERE s.run_id = r.run_id"
            " AND s.text LIKE ? ESCAPE '\\'))"
        )
        values += [pattern] * 3
    if which.tag:
        clauses.append("EXISTS (SELECT 1 FROM bench_tag s WHERE s.run_id = r.run_id AND s.tag = ?)")
        values.append(which.tag)
    for column, value in (("profile", which.profile), ("plan", which.plan)):
        if value:
            clauses.append(f"{column} = ?")
            values.append(value)
    return clauses, values
