"""Tables of tuning: runs of the checklist, snapshots taken before changes, and their results."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from backends.storage.database import Database, TableGroup

TUNING_TABLES: Final = TableGroup(
    "tuning",
    (
        """
        CREATE TABLE tuning_run (
            run_id INTEGER PRIMARY KEY,
            host TEXT NOT NULL,
            at_utc TEXT NOT NULL,
            boot_id TEXT NOT NULL,
            verdicts TEXT NOT NULL,
            facts BLOB NOT NULL
        );
        CREATE INDEX tuning_run_host ON tuning_run (host, at_utc);
        CREATE TABLE tuning_snapshot (
            snapshot_id TEXT PRIMARY KEY,
            host TEXT NOT NULL,
            at_utc TEXT NOT NULL,
            boot_id TEXT NOT NULL,
            operator TEXT NOT NULL,
            body BLOB NOT NULL,
            results BLOB,
            rolled_back_utc TEXT
        ) WITHOUT ROWID;
        CREATE INDEX tuning_snapshot_host ON tuning_snapshot (host, at_utc);
        """,
        "ALTER TABLE tuning_snapshot ADD COLUMN back BLOB;",
    ),
)
RUNS_KEPT: Final = 50
"""A host; the oldest go."""
MAX_FACTS_BYTES: Final = 128 << 20


@dataclass(frozen=True, slots=True)
class StoredRun:
    """One run of the checklist."""

    run_id: int
    host: str
    at_utc: str
    boot_id: str
    verdicts: str
    """JSON: verdict by check."""


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """One snapshot; `body`, `results` and `back` are JSON of `backends.tuning.snapshot`.

    Attributes:
        results: What came of the change; a fix that was at work last stands as begun.
        back: What came of taking it back, the same way; None where that was never begun.
    """

    snapshot_id: str
    host: str
    at_utc: str
    boot_id: str
    operator: str
    body: bytes
    results: bytes | None
    rolled_back_utc: str | None
    back: bytes | None = None


class TuningHistory:
    """What was judged and what was changed."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    def at_home(cls) -> TuningHistory:
        """In the user's own history."""
        return cls(Database.at_home([TUNING_TABLES]))

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def add_run(self, host: str, boot_id: str, verdicts: str, facts: bytes) -> int:
        """Keep a run; gives its number."""
        with self._database.writing() as connection:
            cursor = connection.execute(
                "INSERT INTO tuning_run (host, at_utc, boot_id, verdicts, facts)"
                " VALUES (?, ?, ?, ?, ?)",
                (host, _now(), boot_id, verdicts, zlib.compress(facts, 6)),
            )
            connection.execute(
                "DELETE FROM tuning_run WHERE host = ? AND run_id NOT IN"
                " (SELECT run_id FROM tuning_run WHERE host = ? ORDER BY run_id DESC LIMIT ?)",
                (host, host, RUNS_KEPT),
            )
            return int(cursor.lastrowid or 0)

    def runs(self, host: str) -> list[StoredRun]:
        """The runs of a host, newest first."""
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT run_id, host, at_utc, boot_id, verdicts FROM tuning_run"
                " WHERE host = ? ORDER BY run_id DESC",
                (host,),
            ).fetchall()
        return [StoredRun(*row) for row in rows]

    def facts_of(self, run_id: int) -> bytes | None:
        """The facts document of a run."""
        with self._database.reading() as connection:
            row = connection.execute(
                "SELECT facts FROM tuning_run WHERE run_id = ?", (run_id,)
            ).fetchone()
        return zlib.decompressobj().decompress(row[0], MAX_FACTS_BYTES) if row else None

    def add_snapshot(
        self, snapshot_id: str, host: str, boot_id: str, operator: str, body: bytes
    ) -> None:
        """Keep a snapshot, before anything is changed."""
        with self._database.writing() as connection:
            connection.execute(
                "INSERT INTO tuning_snapshot VALUES (?, ?, ?, ?, ?, ?, NULL, NULL, NULL)",
                (snapshot_id, host, _now(), boot_id, operator, body),
            )

    def set_results(self, snapshot_id: str, results: bytes) -> None:
        """Keep what came of it."""
        with self._database.writing() as connection:
            connection.execute(
                "UPDATE tuning_snapshot SET results = ? WHERE snapshot_id = ?",
                (results, snapshot_id),
            )

    def set_back(self, snapshot_id: str, results: bytes) -> None:
        """Keep what came of taking it back so far."""
        with self._database.writing() as connection:
            connection.execute(
                "UPDATE tuning_snapshot SET back = ? WHERE snapshot_id = ?",
                (results, snapshot_id),
            )

    def set_rolled_back(self, snapshot_id: str) -> None:
        """Note that it was taken back."""
        with self._database.writing() as connection:
            connection.execute(
                "UPDATE tuning_snapshot SET rolled_back_utc = ? WHERE snapshot_id = ?",
                (_now(), snapshot_id),
            )

    def snapshots(self, host: str) -> list[StoredSnapshot]:
        """The snapshots of a host, newest first."""
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT * FROM tuning_snapshot WHERE host = ?"
                " ORDER BY at_utc DESC, snapshot_id DESC",
                (host,),
            ).fetchall()
        return [StoredSnapshot(*row) for row in rows]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
