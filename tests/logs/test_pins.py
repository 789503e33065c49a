"""What is kept in view beside a log: errors, each once, and performance warnings."""

from __future__ import annotations

import re

import pytest

from backends.servers.engines import ENGINES
from backends.servers.logpins import _HINTS, Pins
from backends.servers.logquery import ERRORS
from backends.servers.logsieve import GRAVE
from backends.servers.logtext import each_line, parse_line
from backends.servers.phrases import split_alternatives

TRACE = """\
Traceback (most recent call last):
  File "/srv/run.py", line 7, in load
    weights = read(path)
ValueError: cannot read weights
"""
CHAINED = (
    TRACE + "\nDuring handling of the above exception, another exception occurred:\n\n" + TRACE
)
LOGGED = "[2026-03-14 09:02:11 TP3] ERROR: Request r-17 failed\n"
STAMPED = "ERROR 08-02 11:06:19 [core.py:619] "
CASES = {
    "a traceback": (TRACE, 1, "ValueError: cannot read weights"),
    "two": (TRACE + TRACE.replace("ValueError", "KeyError"), 2, "KeyError: cannot read weights"),
    "chained": (CHAINED, 1, "ValueError: cannot read weights"),
    "announced": (LOGGED + TRACE, 1, "Request r-17 failed"),
    "within a message": (
        "[2026-03-14 09:02:11 TP3] Scheduler hit an exception: " + TRACE, 1, "ValueError"
    ),
    "every line stamped": (
        "".join(f"{STAMPED}{line}\n" for line in (TRACE + "and more words\n").splitlines()),
        1, "ValueError: cannot read weights",
    ),
    "by two ranks at once": (
        "(Worker_TP0 pid=1) Traceback (most recent call last):\n"
        "(Worker_TP1 pid=2) Traceback (most recent call last):\n"
        "(Worker_TP0 pid=1) ValueError: one\n(Worker_TP1 pid=2) ValueError: two\n",
        2, "ValueError: two",
    ),
    "no traceback": ("ValueError: bare\n" + LOGGED + LOGGED, 3, "Request r-17 failed"),
    "none": ("all is well, no errors\n[2026-03-14 09:02:11] INFO: fine\n", 0, ""),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_an_error_counts_once_however_many_lines_it_has(name: str, size: int) -> None:
    """Whatever the number of lines that are handed on at a time."""
    text, count, words = CASES[name]
    pins = Pins()
    lines = list(each_line(text.encode(), 0))
    for at in range(0, len(lines), size):
        some = lines[at : at + size]
        pins.take(b"".join(raw for _, raw in some), some[0][0])
    assert pins.errors == count
    titles = [pin.title for pin in pins.pins if pin.error]
    assert not [title for title in titles if title.startswith("Traceback")]
    assert bool(titles) is bool(count)
    assert not words or any(words in title for title in titles)


def test_a_level_in_the_message_counts() -> None:
    """After a prefix that has none, and alone."""
    for prefix in ("", "[2026-03-14 09:02:11 TP3] ", "(Worker_TP0 pid=1) "):
        line = parse_line(f"{prefix}ERROR: Request r-17 failed\n".encode(), 0)
        assert line.level == "error"
        assert line.message == "ERROR: Request r-17 failed"
    assert parse_line(b"[2026-03-14 09:02:11] no ERROR: here\n", 0).level is None


def test_the_sieve_lets_no_grave_line_pass() -> None:
    """What states a level in any form is found in a chunk as it is line by line."""
    lines = [
        b"E1001 16:06:04.537131842 1 a/P.cpp:607] failed\n", b"0.00.160.925 E srv: failed\n",
        b"[rank2]:[E1001 16:06:04.537131842 P.cpp:607] [Rank 2] x\n", b"routine, WEF Ex F_ aE\n",
        b"[12/07/2025-00:20:15] [TRT-LLM] [RANK 1] [E] x\n", b"CRITICAL: x\n", b"step 1\n",
        b"asyncio.exceptions.CancelledError\n", b"KeyboardInterrupt\n", b"W0101 x\n",
        b"2024-10-22 06:31:31.858362: E external/x.cc:485] x\n", b'{"level":"error","msg":"x"}\n',
    ]  # fmt: skip
    data = b"".join(lines)
    found = {data[begin:end] for begin, end in GRAVE.lines(data)}
    wanted = {raw for raw in lines if ERRORS.wants(parse_line(raw, 0))}
    assert len(wanted) == 9
    assert wanted <= found
    assert b"step 1\n" not in found
    assert b"routine, WEF Ex F_ aE\n" not in found


def test_every_advice_has_a_word_of_the_sieve() -> None:
    """Else it would never be looked for: its pattern's letters hold one of the words."""
    for engine in ENGINES.values():
        for advice in engine.advice:
            for choice in split_alternatives(advice.pattern.pattern):
                letters = re.sub(r"\(\?[aims]+\)|\\[bdwsS]|[^A-Za-z_=\- ]", "", choice) + " "
                assert _HINTS.lines(letters.encode()), choice


def test_routine_lines_are_known_again_and_grave_ones_among_them_found() -> None:
    """Lines that differ in digits alone are looked at once; memory for that is bounded."""
    pins = Pins()
    for number in range(3000):
        pins.take(b"[TP%d] step %d, \xff of E%dx\n" % (number % 8, number, number) * 100, 0)
    pins.take(b"[TP1] step 7, E7\n[TP1] step 8, E\nE1001 it broke\n", 0)
    assert pins._routine_bytes < 2 << 20
    assert len(pins._routine) < 10
    pins.take(b"ERROR: step 9\n[TP1] step 10\n", 0)
    assert [pin.title for pin in pins.pins if pin.error][-1] == "ERROR: step 9"
    assert pins.errors == 1


def test_no_line_is_read_further_than_it_must_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a line of 64 KiB a few KiB reach the parser, and 1,024 characters the patterns."""
    import backends.servers.logpins as module

    read: list[int] = []

    def parse(data: bytes, offset: int) -> object:
        read.append(len(data))
        return parse_line(data, offset)

    monkeypatch.setattr(module, "parse_line", parse)
    pins = Pins()
    judged: list[int] = []
    monkeypatch.setattr(pins._phrases, "found_in", lambda text: bool(judged.append(len(text))))
    bar = b"\r".join(b" %d%%|#| %d/99 [00:01<00:02]" % (n, n) for n in range(99)) * 40
    pins.take(b"warn " * 13_000 + b"\n" + bar + b"\rERROR: it broke\n", 0)
    assert max(read) <= 8192
    assert judged
    assert max(judged) <= 1024
    assert [pin.title for pin in pins.pins] == ["ERROR: it broke"]
