"""Starts of servers: phases and how long each took, so that the next start has an honest time left.

The table group `servers` of the one database.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from backends.storage.database import Database, TableGroup

SERVER_TABLES: Final = TableGroup(
    "servers",
    (
        """
        CREATE TABLE server_start (
            run_id TEXT PRIMARY KEY,
            host TEXT NOT NULL,
            profile TEXT NOT NULL,
            engine TEXT NOT NULL,
            version TEXT,
            started_utc TEXT NOT NULL,
            outcome TEXT NOT NULL,
            cause TEXT,
            took_s REAL NOT NULL,
            phases TEXT NOT NULL
        ) WITHOUT ROWID;
        CREATE INDEX server_start_profile ON server_start (host, profile, started_utc);
        """,
    ),
)
KEPT_PER_PROFILE: Final = 20


@dataclass(frozen=True, slots=True)
class Start:
    """One start, over: it became ready, or it failed.

    Attributes:
        outcome: `ready`, `crashed`, `exited`, `stopped` or `timed-out`.
        phases: Seconds that each phase took.
    """

    run_id: str
    host: str
    profile: str
    engine: str
    version: str | None
    started: datetime
    outcome: str
    cause: str | None
    took_s: float
    phases: Mapping[str, float]


class StartHistory:
    """Earlier starts. Calls block for milliseconds: from the event loop use a thread."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    def at_home(cls) -> StartHistory:
        """The user's own."""
        return cls(Database.at_home([SERVER_TABLES]))

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def save(self, start: Start) -> None:
        """Write a start down; one that is there already is replaced."""
        with self._database.writing() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO server_start VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    start.run_id,
                    start.host,
                    start.profile,
                    start.engine,
                    start.version,
                    start.started.astimezone(UTC).isoformat(),
                    start.outcome,
                    start.cause,
                    start.took_s,
                    json.dumps(dict(start.phases)),
                ),
            )

    def starts(self, host: str, profile: str, limit: int = KEPT_PER_PROFILE) -> list[Start]:
        """Starts of a profile on a host, the newest first."""
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT * FROM server_start WHERE host = ? AND profile = ?"
                " ORDER BY started_utc DESC LIMIT ?",
                (host, profile, limit),
            ).fetchall()
        return [_start(row) for row in rows]

    def phase_durations(self, host: str, profile: str) -> dict[str, list[float]]:
        """Phase -> seconds it took in each earlier start that became ready, the newest first."""
        found: dict[str, list[float]] = {}
        for start in self.starts(host, profile):
            if start.outcome == "ready":
                for phase, took_s in start.phases.items():
                    found.setdefault(phase, []).append(took_s)
        return found


def _start(row: sqlite3.Row) -> Start:
    return Start(
        run_id=row["run_id"],
        host=row["host"],
        profile=row["profile"],
        engine=row["engine"],
        version=row["version"],
        started=datetime.fromisoformat(row["started_utc"]),
        outcome=row["outcome"],
        cause=row["cause"],
        took_s=row["took_s"],
        phases={str(name): float(took) for name, took in json.loads(row["phases"]).items()},
    )
