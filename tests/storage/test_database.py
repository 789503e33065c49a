"""The database: versions, migrations with a backup, several writers, kills, a full disk."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from backends.storage.database import BACKUPS_KEPT, Database, NewerDatabase, TableGroup
from backends.storage.failure import DiskFull, StorageError

ONE = TableGroup("things", ("CREATE TABLE things_item (n INTEGER NOT NULL);",))
TWO = TableGroup("things", (*ONE.migrations, "ALTER TABLE things_item ADD COLUMN word TEXT;"))
OTHER = TableGroup("others", ("CREATE TABLE others_item (n INTEGER);",))


def count(database: Database) -> int:
    with database.reading() as connection:
        return int(connection.execute("SELECT count(*) FROM things_item").fetchone()[0])


def backups(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.backup.db"))


def test_a_new_file_is_private_and_has_no_backup(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "history.db"
    with Database(path, [ONE, OTHER]) as database:
        assert database.version_of("things") == 1
        assert database.version_of("nothing") == 0
    assert path.stat().st_mode & 0o777 == 0o600
    assert backups(path.parent) == []


def test_a_migration_keeps_data_and_is_backed_up(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    with Database(path, [ONE]) as database, database.writing() as connection:
        connection.execute("INSERT INTO things_item VALUES (7)")
    with Database(path, [TWO, OTHER]) as database, database.reading() as connection:
        assert tuple(connection.execute("SELECT n, word FROM things_item").fetchone()) == (7, None)
    (backup,) = backups(tmp_path)
    old = sqlite3.connect(backup)
    assert old.execute("SELECT * FROM things_item").fetchall() == [(7,)]
    old.close()


def test_groups_change_independently(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    Database(path, [ONE, OTHER]).close()
    with Database(path, [TWO]) as database:
        assert database.version_of("things") == 2
        assert database.version_of("others") == 1


def test_old_backups_go(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    Database(path, [ONE]).close()
    for year in range(2001, 2006):
        (tmp_path / f"history-{year}0101T000000-before-things-1.backup.db").write_text("")
    Database(path, [TWO]).close()
    kept = backups(tmp_path)
    assert len(kept) == BACKUPS_KEPT
    assert kept[-1].name.endswith("before-things-2.backup.db")


def test_a_failed_migration_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    Database(path, [ONE]).close()
    broken = TableGroup("things", (*TWO.migrations, "INSERT INTO nowhere VALUES (1);"))
    with pytest.raises(StorageError):
        Database(path, [broken])
    with Database(path, [ONE]) as database:
        assert database.version_of("things") == 1


def test_a_newer_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    Database(path, [TWO]).close()
    with pytest.raises(NewerDatabase) as caught:
        Database(path, [ONE])
    assert "version 2" in caught.value.detail


def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(StorageError) as caught:
        Database(path, [ONE])
    assert "damaged" in caught.value.title


def test_a_failed_transaction_stores_nothing(tmp_path: Path) -> None:
    with Database(tmp_path / "history.db", [ONE]) as database:
        with pytest.raises(StorageError), database.writing() as connection:
            connection.executemany("INSERT INTO things_item VALUES (?)", [(1,), (None,)])
        assert count(database) == 0


def test_a_full_disk_is_said_and_what_was_stored_stays(tmp_path: Path) -> None:
    with Database(tmp_path / "history.db", [TWO]) as database:
        with database.writing() as connection:
            connection.execute("INSERT INTO things_item VALUES (1, 'kept')")
            pages = connection.execute("PRAGMA page_count").fetchone()[0]
            connection.execute(f"PRAGMA max_page_count = {pages + 2}")
        with pytest.raises(DiskFull) as caught, database.writing() as connection:
            connection.execute("INSERT INTO things_item VALUES (2, ?)", ("x" * 1_000_000,))
        assert "no space left" in caught.value.title
        assert count(database) == 1


def test_several_processes_write_at_once(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    code = (
        "import sys\nfrom pathlib import Path\nfrom tests.storage.test_database import *\n"
        "with Database(Path(sys.argv[1]), [TWO]) as database:\n"
        "    for n in range(25):\n"
        "        with database.writing() as connection:\n"
        "            connection.execute('INSERT INTO things_item VALUES (?, ?)', (n, 'x'))\n"
    )
    # They also create and migrate it at once.
    processes = [
        subprocess.Popen([sys.executable, "-c", code, str(path)], stderr=subprocess.PIPE)
        for _ in range(4)
    ]
    for process in processes:
        _, said = process.communicate(timeout=100)
        assert process.returncode == 0, said.decode()
    with Database(path, [TWO]) as database:
        assert count(database) == 100


def test_threads_share_one(tmp_path: Path) -> None:
    with Database(tmp_path / "history.db", [ONE]) as database:

        def write() -> None:
            for n in range(20):
                with database.writing() as connection:
                    connection.execute("INSERT INTO things_item VALUES (?)", (n,))

        threads = [threading.Thread(target=write) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert count(database) == 80


def test_a_killed_process_loses_at_most_its_open_transaction(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    code = (
        "import sys\nfrom pathlib import Path\nfrom tests.storage.test_database import *\n"
        "database = Database(Path(sys.argv[1]), [ONE])\nn = 0\n"
        "while True:\n"
        "    with database.writing() as connection:\n"
        "        connection.execute('INSERT INTO things_item VALUES (?)', (n,))\n"
        "    print(n, flush=True)\n    n += 1\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    stored = int(process.stdout.readline())
    time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    process.wait()
    stored = max([stored, *(int(line) for line in process.stdout if line.endswith("\n"))])
    process.stdout.close()
    with Database(path, [ONE]) as database, database.reading() as connection:
        rows = [row[0] for row in connection.execute("SELECT n FROM things_item ORDER BY n")]
        assert rows == list(range(len(rows)))
        assert len(rows) > stored
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"


def test_another_process_never_takes_the_log_away_from_an_open_one(tmp_path: Path) -> None:
    """Opening it twice in one process must not drop the locks that keep others from its log."""
    path = tmp_path / "history.db"
    other = (
        "import sqlite3, sys\n"
        "c = sqlite3.connect(sys.argv[1])\n"
        "c.execute('INSERT INTO things_item VALUES (2)')\n"
        "c.commit()\n"
        "c.close()\n"
    )
    with Database(path, [ONE]) as first:
        with first.writing() as connection:
            connection.execute("INSERT INTO things_item VALUES (1)")
        with Database(path, [ONE]) as second:
            assert count(second) == 1
            subprocess.run([sys.executable, "-c", other, str(path)], check=True, timeout=60)
            assert path.with_name("history.db-shm").exists(), "the log is gone under us"
            assert count(second) == 2
        assert count(first) == 2
