"""Runs in the history: stored, listed, found, tagged, pinned."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import msgspec
import pytest

from backends.bench.results import RunStatus
from backends.errors import UsageError
from backends.storage.bench_tables import BENCH_TABLES
from backends.storage.database import Database
from backends.storage.failure import StorageError
from backends.storage.history import Filter, History, RunNotFound
from backends.storage.samples import SampleWriter, read_lines, sample_path
from tests.bench_data.runs import run


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with History(Database(tmp_path / "history.db", [BENCH_TABLES])) as opened:
        yield opened


def test_a_run_comes_back_as_it_was(history: History) -> None:
    stored = run(1, repetitions=2)
    history.save(stored)
    assert history.load(stored.run_id) == stored


def test_at_home(own_home: Path) -> None:
    with History.at_home() as history:
        history.save(run(1))
    assert (own_home / "data" / "history.db").exists()


def test_a_run_can_be_stored_as_it_grows(history: History) -> None:
    done = run(1)
    history.save(msgspec.structs.replace(done, status=RunStatus.BROKEN, steps=done.steps[:1]))
    history.tag(done.run_id, ["keep"])
    history.note(done.run_id, "looks odd")
    history.pin(done.run_id)
    history.save(done)
    (row,) = history.runs()
    assert (row.status, row.steps, row.tags, row.notes, row.baseline) == (
        "complete", 2, ("keep",), 1, True,
    )  # fmt: skip


def test_rows_say_what_a_list_needs(history: History) -> None:
    history.save(run(1, streams=(1, 64), repetitions=3))
    (row,) = history.runs()
    assert row.gpus == "8 x NVIDIA H200"
    assert (row.steps, row.repetitions, row.valid) == (2, 3, True)
    assert row.output_tokens_per_s == pytest.approx(3200, rel=0.05)
    assert row.total_tokens_per_s == pytest.approx(6400, rel=0.05)


def test_newest_first_whatever_the_time_zone(history: History) -> None:
    zone = timezone(timedelta(hours=9))
    early, late = run(1), run(2)
    early = msgspec.structs.replace(
        early,
        started_utc=datetime(2026, 3, 1, 20, 0, tzinfo=zone),  # 11:00 UTC
    )
    late = msgspec.structs.replace(late, started_utc=datetime(2026, 3, 1, 11, 30, tzinfo=UTC))
    history.save(early)
    history.save(late)
    assert [row.run_id for row in history.runs()] == [late.run_id, early.run_id]


def test_search(history: History) -> None:
    history.save(run(1, plan="sweep"))
    history.save(run(2, plan="100%_open", profile="qwen"))
    history.tag(run(1).run_id, ["before-fix"])
    history.note(run(2).run_id, "power cap was 450 W")

    def found(**which: str) -> list[str]:
        return [row.run_id[-1] for row in history.runs(Filter(**which))]  # type: ignore[arg-type]

    assert found(search="sweep glm") == ["1"]
    assert found(search="BEFORE") == ["1"]
    assert found(search="cap 450") == ["2"]
    assert found(search="100%_") == ["2"]
    assert found(search="h200") == ["2", "1"]
    assert found(search="' OR 1=1 --") == []
    assert found(tag="before-fix") == ["1"]
    assert found(profile="qwen") == ["2"]
    assert found(plan="sweep") == ["1"]


def test_names_of_runs(history: History) -> None:
    runs = [run(n) for n in range(3)]
    for one in runs:
        history.save(one)
    history.tag(runs[0].run_id, ["golden"])
    assert history.resolve("last") == runs[2].run_id
    assert history.resolve("last~2") == runs[0].run_id
    assert history.resolve("tag:golden") == runs[0].run_id
    assert history.resolve(runs[1].run_id) == runs[1].run_id
    assert history.resolve(runs[1].run_id[:-1]) == runs[1].run_id


@pytest.mark.parametrize("name", ["", "nothing", "last~9", "last~x", "tag:none", "2026", "%", "_"])
def test_names_that_mean_no_single_run(history: History, name: str) -> None:
    for number in range(2):
        history.save(run(number))
    with pytest.raises(RunNotFound):
        history.resolve(name)


def test_tags_come_and_go(history: History) -> None:
    history.save(run(1))
    history.tag(run(1).run_id, ["b", "a", "a"])
    assert history.runs()[0].tags == ("a", "b")
    history.tag(run(1).run_id, ["a", "never-there"], remove=True)
    assert history.runs()[0].tags == ("b",)


@pytest.mark.parametrize("tag", ["", " ", "a,b", "x" * 61, "red\x1b[31m", "a\x1fb"])
def test_what_cannot_be_a_tag(history: History, tag: str) -> None:
    history.save(run(1))
    with pytest.raises(UsageError):
        history.tag(run(1).run_id, [tag])


def test_notes_are_kept_in_order_and_clean(history: History) -> None:
    history.save(run(1))
    history.note(run(1).run_id, "first")
    history.note(run(1).run_id, "sec\x1b[31mond")
    assert [note.text for note in history.notes(run(1).run_id)] == ["first", "second"]
    with pytest.raises(RunNotFound):
        history.note("nothing", "x")


def test_a_baseline_is_one_a_profile_and_plan(history: History) -> None:
    first, second, other = run(1), run(2), run(3, profile="qwen")
    for one in (first, second, other):
        history.save(one)
    assert history.baseline_of(second) is None
    history.pin(first.run_id)
    history.pin(other.run_id)
    assert history.baseline_of(second) == first.run_id
    history.pin(second.run_id)
    assert history.baseline_of(first) == second.run_id
    assert {row.run_id for row in history.baselines()} == {second.run_id, other.run_id}
    assert history.unpin(second.run_id)
    assert not history.unpin(second.run_id)


def test_a_deleted_run_takes_everything_along(history: History) -> None:
    history.save(run(1))
    run_id = run(1).run_id
    history.tag(run_id, ["a"])
    history.note(run_id, "n")
    history.pin(run_id)
    with SampleWriter(history.samples_of(run_id)) as writer:
        writer.write([b"{}"])
    history.delete(run_id)
    assert history.runs() == []
    assert not history.samples_of(run_id).exists()
    with history.database.reading() as connection:
        for table in ("bench_document", "bench_step", "bench_tag", "bench_note", "bench_baseline"):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] == 0
    with pytest.raises(RunNotFound):
        history.delete(run_id)


def test_a_damaged_document_is_said(history: History) -> None:
    history.save(run(1))
    with history.database.writing() as connection:
        connection.execute("UPDATE bench_document SET body = ?", (zlib.compress(b'{"a": 1}'),))
    with pytest.raises(StorageError) as caught:
        history.load(run(1).run_id)
    assert "damaged" in caught.value.title
    assert len(history.runs()) == 1


def test_a_newer_document_is_said(history: History) -> None:
    history.save(run(1))
    with history.database.writing() as connection:
        connection.execute("UPDATE bench_document SET schema = 99")
    with pytest.raises(StorageError) as caught:
        history.load(run(1).run_id)
    assert "newer" in caught.value.title


@pytest.mark.parametrize("run_id", ["../../etc/x", "", "a/b", ".hidden", "x" * 101, "a\n"])
def test_a_run_id_is_a_plain_file_name(history: History, run_id: str) -> None:
    with pytest.raises(StorageError):
        history.save(msgspec.structs.replace(run(1), run_id=run_id))
    with pytest.raises(StorageError):
        sample_path(run_id)


def test_other_programs_can_read_the_tables(history: History) -> None:
    history.save(run(1))
    other = sqlite3.connect(history.database.path)
    rows = other.execute("SELECT label, output_tokens_per_s FROM bench_step").fetchall()
    other.close()
    assert [row[0] for row in rows] == ["1 streams", "64 streams"]


def test_samples_survive_what_cuts_them_off(tmp_path: Path) -> None:
    path = tmp_path / "samples" / "x.jsonl.gz"
    writer = SampleWriter(path)
    writer.write(b'{"id": %d}' % n for n in range(1000))
    writer.flush()
    flushed = path.stat().st_size
    writer.write(b'{"id": %d}' % n for n in range(1000, 2000))
    writer.close()
    writer.close()
    assert len(list(read_lines(path))) == 2000
    whole = path.read_bytes()
    path.write_bytes(whole[:flushed])
    assert list(read_lines(path))[-1] == b'{"id": 999}'
    path.write_bytes(whole[: (flushed + len(whole)) // 2])
    lines = list(read_lines(path))
    assert lines[:1000] == [b'{"id": %d}' % n for n in range(1000)]
    assert all(line.endswith(b"}") for line in lines)


def test_samples_are_readable_by_gzip(tmp_path: Path) -> None:
    import gzip

    path = tmp_path / "x.jsonl.gz"
    with SampleWriter(path) as writer:
        writer.write([b"1", b"2"])
    assert gzip.decompress(path.read_bytes()) == b"1\n2\n"


def test_samples_are_never_overwritten(tmp_path: Path) -> None:
    SampleWriter(tmp_path / "x.gz").close()
    with pytest.raises(StorageError):
        SampleWriter(tmp_path / "x.gz")


def test_what_are_no_samples(tmp_path: Path) -> None:
    (tmp_path / "x.gz").write_bytes(b"plain text")
    with pytest.raises(StorageError):
        list(read_lines(tmp_path / "x.gz"))
    with pytest.raises(StorageError):
        list(read_lines(tmp_path / "nothing"))
