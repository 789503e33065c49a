"""Lines of 64 KiB: what judges them reads their beginning, what searches them reads all."""

from __future__ import annotations

import pytest

from backends.servers import effective
from backends.servers.catalogue import load_catalogue
from backends.servers.configuration import parse_fields
from backends.servers.engines import EngineId
from backends.servers.judge import LogJudge
from backends.servers.lines import LogLine, LogReader
from backends.servers.logfeed import SLICE_BYTES, SLICE_LINES, slices
from backends.servers.logquery import Pattern, Query
from backends.servers.logtext import parse_line
from backends.servers.prefixes import Level

LONG = b"word " * 13_000
KINDS = {
    "plain": LONG,
    "escapes": b"\x1b[31mA\x1b[0m" * 7_000,
    "invalid": b"\xff\xfe " * 20_000,
    "a bar rewritten": b"  3%| | 1/2 [00:01<00:02]\r" * 2_600 + b"and then ",
}


@pytest.mark.parametrize("engine", [None, EngineId.SGLANG, EngineId.VLLM])
def test_a_judge_reads_the_beginning(
    engine: EngineId | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the line is, patterns get at most 4,096 characters; guesses 1,024."""
    judge = LogJudge(load_catalogue(), engine)
    judged: list[LogLine] = []
    guessed: list[int] = []
    monkeypatch.setattr(judge, "_say", lambda line, _: judged.append(line))
    look = judge._guess.look

    def note(text: str, message: str) -> None:
        guessed.extend((len(text), len(message)))
        look(text, message)

    monkeypatch.setattr(judge._guess, "look", note)
    judge.take(parse_line(b"[2026-03-14 09:02:11 TP3] " + LONG, 0))
    judge.settle()
    (line,) = judged
    assert len(line.text) == len(line.message) == 4096
    assert line.message.startswith("word word")
    assert all(size <= 1024 for size in guessed)


@pytest.mark.parametrize("kind", KINDS)
def test_a_search_finds_what_no_screen_shows(kind: str) -> None:
    """At the far end of a line, alone and together with a level."""
    raw = b"ERROR: " + KINDS[kind] + b"needle in it\n"
    if b"\r" in raw:
        raw = raw.replace(b"needle", b"ERROR: needle")
    assert Query(pattern=Pattern("needle in")).wants_raw(raw, 0)
    assert not Query(pattern=Pattern("needle in"), without=True).wants_raw(raw, 0)
    assert not Query(pattern=Pattern("nadel")).wants_raw(raw, 0)
    assert Query(pattern=Pattern("needle"), level=Level.ERROR).wants_raw(raw, 0) is (
        b"\r" not in raw
    )
    assert not Query(pattern=Pattern("needle"), level=Level.CRITICAL).wants_raw(raw, 0)


def test_a_configuration_is_read_so_far() -> None:
    """Of an endless one the beginning counts; nested and quoted values stay whole."""
    text = r"a=1, b='x, \'y', c=[1, (2, 3)], d=Class(e='}'), " + "k=1, " * 40_000
    fields = parse_fields(text)
    assert fields["a"] == "1"
    assert fields["b"] == r"x, \'y"
    assert fields["c"] == "[1, (2, 3)]"
    assert fields["d"] == "Class(e='}')"
    assert parse_fields("a=1, b=2) c=3") == {"a": "1", "b": "2"}


def test_a_judge_reads_the_beginning_of_what_was_overwritten_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each piece before a carriage return is a line of its own, and no longer than others."""
    judge = LogJudge(load_catalogue(), EngineId.VLLM)
    judged: list[LogLine] = []
    monkeypatch.setattr(judge, "_say", lambda line, _: judged.append(line))
    judge.take(parse_line(b"\r".join([LONG[:30_000]] * 3), 0))
    assert [len(line.text) for line in judged] == [1024, 1024, 4096]


@pytest.mark.parametrize("data", [b"", b"\n" * 5_000, b"x" * 50_000, b"word\n" * 9_000, LONG])
def test_a_sink_gets_few_lines_at_a_time(data: bytes) -> None:
    """Between two turns of the event loop lie few bytes, and few lines however short."""
    pieces = list(slices(data))
    assert b"".join(pieces) == data
    assert all(0 < len(piece) <= SLICE_BYTES for piece in pieces)
    assert all(piece.count(b"\n") <= SLICE_LINES for piece in pieces)
    most = max(-(-len(data) // SLICE_BYTES), -(-data.count(b"\n") // SLICE_LINES))
    assert len(pieces) <= 2 * most


def test_a_wrapped_configuration_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many lines a terminal made of it, each of its characters is parsed once or twice."""
    parsed: list[int] = []

    def note(text: str) -> dict[str, str]:
        parsed.append(len(text))
        return parse_fields(text)

    monkeypatch.setattr(effective, "parse_fields", note)
    reader = effective.EffectiveReader(EngineId.SGLANG)
    lines = LogReader(updates=False)
    text = "[2026-03-14 09:02:11] server_args=ServerArgs(a=1\n" + ", b=2\n" * 20_000
    for line in lines.feed(text.encode()):
        assert isinstance(line, LogLine)
        reader.take(line)
    assert reader.values == {"a": "1", "b": "2"}
    assert sum(parsed) < 2 * effective.MAX_READ_CHARS
