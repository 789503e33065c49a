"""The one SQLite file of gpuroom: opening, versions, migrations with a backup, transactions.

Each area owns a group of tables (`TableGroup`) with a version of its own, so that benchmark runs,
server starts and tuning runs live in one file and change independently. Write-ahead logging lets
several gpurooms read and write at once; a process that is killed loses at most its open
transaction.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from backends.errors import RoomError
from backends.paths import data_dir
from backends.storage.failure import StorageError, database_failure, file_failure
from backends.text import clean

FILE_NAME: Final = "history.db"
BUSY_TIMEOUT_MS: Final = 15_000
BACKUPS_KEPT: Final = 3


@dataclass(frozen=True, slots=True)
class TableGroup:
    """The tables of one area.

    Attributes:
        name: Of the area, such as `bench`; its tables begin with it.
        migrations: SQL scripts; the n-th leads from version n to n + 1. Never edited once shipped,
            only added to.
    """

    name: str
    migrations: tuple[str, ...]

    @property
    def version(self) -> int:
        """The version that this gpuroom works with."""
        return len(self.migrations)


class NewerDatabase(StorageError):
    """The file was written by a newer gpuroom, whose tables this one doesn't know."""


class Database:
    """One open file. Calls may come from any thread, one at a time."""

    def __init__(self, path: Path, groups: Sequence[TableGroup]) -> None:
        """Open or create the file and bring its tables up to date.

        Args:
            path: The file; its folder is made.
            groups: The areas that will be used.

        Raises:
            StorageError: It cannot be opened, or a migration failed (nothing was changed then).
            NewerDatabase: A newer gpuroom has written it.
        """
        self.path = path
        self._lock = threading.RLock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Created with the right permissions, since SQLite would take those of the umask. A file
            # that is there is never opened here: closing it would drop the locks of every other
            # connection of this process (POSIX), and others would delete the log under them.
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            os.close(os.open(path, flags, 0o600))
        except FileExistsError:
            pass
        except OSError as error:
            raise file_failure("The history could not be opened", path, error) from error
        self._connection = self._connect()
        try:
            for group in groups:
                self._migrate(group)
        except sqlite3.Error as error:
            self.close()
            raise database_failure(path, error) from error
        except RoomError:
            self.close()
            raise

    @classmethod
    def at_home(cls, groups: Sequence[TableGroup]) -> Database:
        """The user's own history."""
        return cls(data_dir() / FILE_NAME, groups)

    def _connect(self) -> sqlite3.Connection:
        try:
            connection = sqlite3.connect(
                self.path,
                timeout=BUSY_TIMEOUT_MS / 1000,
                isolation_level=None,
                check_same_thread=False,
            )
            connection.row_factory = sqlite3.Row
            connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
        except sqlite3.Error as error:
            raise database_failure(self.path, error) from error
        return connection

    def close(self) -> None:
        """Close the file; a second time does nothing."""
        with self._lock, suppress(sqlite3.Error):
            self._connection.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def version_of(self, group: str) -> int:
        """Version of a group's tables in the file; 0 where it has none."""
        with self._lock:
            try:
                row = self._connection.execute(
                    "SELECT version FROM table_groups WHERE name = ?", (group,)
                ).fetchone()
            except sqlite3.OperationalError:
                return 0
            return int(row[0]) if row else 0

    def _migrate(self, group: TableGroup) -> None:
        found = self.version_of(group.name)
        if found == group.version:
            return
        with self._immediate():
            self._connection.execute(
                "CREATE TABLE IF NOT EXISTS table_groups"
                " (name TEXT PRIMARY KEY, version INTEGER NOT NULL) WITHOUT ROWID"
            )
            # Another process may have been faster: look again, now that we alone can write.
            found = self.version_of(group.name)
            if found > group.version:
                raise NewerDatabase(
                    "The history was written by a newer gpuroom",
                    f"{self.path}: {group.name} tables have version {found}, "
                    f"this gpuroom knows {group.version}",
                    "Update gpuroom here, or set GPUROOM_HOME to another folder.",
                )
            if found == group.version:
                return
            if found > 0:
                self._back_up(f"before-{group.name}-{group.version}")
            for script in group.migrations[found:]:
                for statement in _statements(script):
                    self._connection.execute(statement)
            self._connection.execute(
                "INSERT INTO table_groups VALUES (?, ?)"
                " ON CONFLICT (name) DO UPDATE SET version = excluded.version",
                (group.name, group.version),
            )

    def _back_up(self, label: str) -> Path:
        """Copy what is committed to a file beside; the oldest copies beyond the limit go."""
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        target = self.path.with_name(f"{self.path.stem}-{stamp}-{label}.backup.db")
        source = self._connect()
        try:
            copy = sqlite3.connect(target)
            try:
                source.backup(copy)
            finally:
                copy.close()
        except sqlite3.Error as error:
            with suppress(OSError):
                target.unlink(missing_ok=True)
            raise database_failure(target, error) from error
        finally:
            source.close()
        with suppress(OSError):
            target.chmod(0o600)
        old = sorted(self.path.parent.glob(f"{self.path.stem}-*.backup.db"))
        for path in old[:-BACKUPS_KEPT]:
            with suppress(OSError):
                path.unlink()
        return target

    @contextmanager
    def _immediate(self) -> Iterator[None]:
        """A write transaction, taken at once so that it cannot fail half-way for a lock."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            # Also after a COMMIT that found no space: else the transaction would stay open.
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            raise

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction: all of it is stored, or none.

        Raises:
            StorageError: It could not be stored; says why (no space, held by another process).
        """
        with self._lock:
            try:
                with self._immediate():
                    yield self._connection
            except sqlite3.Error as error:
                raise database_failure(self.path, error) from error

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The connection, to read from.

        Raises:
            StorageError: It could not be read.
        """
        with self._lock:
            try:
                yield self._connection
            except sqlite3.Error as error:
                raise database_failure(self.path, error) from error


def _statements(script: str) -> Iterator[str]:
    """The statements of a script one by one: `executescript` would commit behind our back."""
    statement = ""
    for line in script.splitlines():
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip():
        raise StorageError("A migration is not a complete statement", clean(statement, 80))
