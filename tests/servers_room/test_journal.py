"""A watch asks the same again and again; the journal still holds what an operator did."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from backends.feeds import Journal, JournalEntry

START = datetime(2026, 3, 14, 9, 26, 53, tzinfo=UTC)


def entry(seconds: int, what: str = "look at glm", **changes: object) -> JournalEntry:
    fields: dict[str, object] = {"asked_by": "watch", "request": "servers.look {}", "result": "ok"}
    at = START + timedelta(seconds=seconds)
    return JournalEntry(at=at, host="gpu01", what=what, **(fields | changes))  # type: ignore[arg-type]


def test_repetitions_of_a_watch_are_counted_and_push_nothing_out() -> None:
    journal = Journal(size=10)
    journal.add(entry(0, "stop glm", changes_host=True))
    for second in range(1, 500):
        journal.add(entry(second))
        journal.add(entry(second, "ask /health on port 30000", request="http.ask {}"))
    kept = list(journal)
    assert [(e.what, e.times) for e in kept] == [
        ("stop glm", 1), ("look at glm", 499), ("ask /health on port 30000", 499),
    ]  # fmt: skip
    assert kept[1].at == START + timedelta(seconds=499)
    assert journal.version == 3


def test_what_differs_or_changes_a_host_or_was_asked_by_a_person_stands_alone() -> None:
    journal = Journal()
    for each in (
        entry(0), entry(1, result="no answer"), entry(2, asked_by="gpus.filter"),
        entry(3, asked_by="gpus.filter"), entry(4, changes_host=True), entry(5, changes_host=True),
    ):  # fmt: skip
        journal.add(each)
    assert [e.times for e in journal] == [1] * 6
