"""Tables of micro-measurements: what was measured on a host, and what experiments came to."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from backends.storage.database import Database, TableGroup

MEASUREMENT_TABLES: Final = TableGroup(
    "measurement",
    (
        """
        CREATE TABLE measurement (
            measurement_id INTEGER PRIMARY KEY,
            host TEXT NOT NULL,
            at_utc TEXT NOT NULL,
            boot_id TEXT NOT NULL,
            parts TEXT NOT NULL,
            facts BLOB NOT NULL
        );
        CREATE INDEX measurement_host ON measurement (host, at_utc);
        CREATE TABLE measurement_experiment (
            experiment_id INTEGER PRIMARY KEY,
            host TEXT NOT NULL,
            at_utc TEXT NOT NULL,
            boot_id TEXT NOT NULL,
            operator TEXT NOT NULL,
            body BLOB NOT NULL
        );
        CREATE INDEX measurement_experiment_host ON measurement_experiment (host, at_utc);
        """,
    ),
)
KEPT: Final = 200
"""Measurements of a host; the oldest go."""
MAX_FACTS_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class StoredMeasurement:
    """One measurement; `facts` is JSON of a facts document."""

    measurement_id: int
    host: str
    at_utc: str
    boot_id: str
    parts: str
    """Names with blanks between them."""
    facts: bytes


@dataclass(frozen=True, slots=True)
class StoredExperiment:
    """One experiment; `body` is JSON of `backends.tuning.measurements.experiment`."""

    experiment_id: int
    host: str
    at_utc: str
    boot_id: str
    operator: str
    body: bytes


class MeasurementHistory:
    """What was measured and tried."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    def at_home(cls) -> MeasurementHistory:
        """In the user's own history."""
        return cls(Database.at_home([MEASUREMENT_TABLES]))

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def add(self, host: str, boot_id: str, parts: str, facts: bytes) -> int:
        """Keep a measurement; gives its number."""
        with self._database.writing() as connection:
            cursor = connection.execute(
                "INSERT INTO measurement (host, at_utc, boot_id, parts, facts)"
                " VALUES (?, ?, ?, ?, ?)",
                (host, _now(), boot_id, parts, zlib.compress(facts, 6)),
            )
            connection.execute(
                "DELETE FROM measurement WHERE host = ? AND measurement_id NOT IN"
                " (SELECT measurement_id FROM measurement WHERE host = ?"
                " ORDER BY measurement_id DESC LIMIT ?)",
                (host, host, KEPT),
            )
            return int(cursor.lastrowid or 0)

    def measurements(self, host: str, limit: int = KEPT) -> list[StoredMeasurement]:
        """Of a host, newest first."""
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT * FROM measurement WHERE host = ? ORDER BY measurement_id DESC LIMIT ?",
                (host, limit),
            ).fetchall()
        return [_measurement(row) for row in rows]

    def measurement(self, measurement_id: int) -> StoredMeasurement | None:
        """One of them, of any host."""
        with self._database.reading() as connection:
            row = connection.execute(
                "SELECT * FROM measurement WHERE measurement_id = ?", (measurement_id,)
            ).fetchone()
        return _measurement(row) if row else None

    def add_experiment(self, host: str, boot_id: str, operator: str, body: bytes) -> int:
        """Keep an experiment; gives its number."""
        with self._database.writing() as connection:
            cursor = connection.execute(
                "INSERT INTO measurement_experiment (host, at_utc, boot_id, operator, body)"
                " VALUES (?, ?, ?, ?, ?)",
                (host, _now(), boot_id, operator, body),
            )
            return int(cursor.lastrowid or 0)

    def experiments(self, host: str) -> list[StoredExperiment]:
        """Of a host, newest first."""
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT * FROM measurement_experiment WHERE host = ? ORDER BY experiment_id DESC",
                (host,),
            ).fetchall()
        return [StoredExperiment(*row) for row in rows]


def _measurement(row: tuple[int, str, str, str, str, bytes]) -> StoredMeasurement:
    facts = zlib.decompressobj().decompress(row[5], MAX_FACTS_BYTES)
    return StoredMeasurement(row[0], row[1], row[2], row[3], row[4], facts)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
