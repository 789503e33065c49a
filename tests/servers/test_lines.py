# ruff: noqa: E501 - lines of logs
"""Bytes to lines: however they are cut, whatever they hold."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.servers.lines import (
    MAX_LINE_BYTES,
    LineUpdate,
    LogLine,
    LogReader,
)
from backends.servers.prefixes import Level, split_prefix
from tests.conftest import SHARED

MIXED = (
    b"plain\n"
    b"\r  0%|          | 0/58 [00:00<?, ?it/s]\rCapturing (bs=8):   2%|#| 1/58 [00:01<00:57, 1.0s/it]"
    b"glued text\n"
    b"windows\r\n"
    b"\x1b[1;32m(EngineCore pid=7)\x1b[0m INFO 01-01 00:00:00 [a.py:1] colour\n"
    b"(EngineCore pid=7) \rLoading shards:  50% Completed | 1/2 [00:01<00:01, 1.0s/it]\r"
    b"Loading shards: 100% Completed | 2/2 [00:02<00:00, 1.0s/it]\n"
    b"caf\xc3\xa9 \xff broken \xf0\x9f\x9a\x80\n"
    b"\n"
    b"old words\rnew words\n"
    b"no line feed at the end"
)


def lines(data: bytes, *sizes: int) -> list[LogLine]:
    """Feed in pieces of the given sizes, over and over."""
    reader = LogReader(updates=False)
    events = []
    position, turn = 0, 0
    while position < len(data):
        size = sizes[turn % len(sizes)] if sizes else len(data)
        events += reader.feed(data[position : position + size])
        position, turn = position + size, turn + 1
    events += reader.finish()
    assert all(isinstance(event, LogLine) for event in events)
    return [event for event in events if isinstance(event, LogLine)]


def test_lines_count_line_feeds_and_nothing_else() -> None:
    found = lines(MIXED)
    assert [line.number for line in found] == list(range(1, MIXED.count(b"\n") + 2))
    assert [line.complete for line in found] == [True] * MIXED.count(b"\n") + [False]
    assert sum(line.size for line in found) == len(MIXED)
    for line in found:
        raw = MIXED[line.offset : line.offset + line.size]
        assert raw.count(b"\n") == (1 if line.complete else 0)


def test_a_bar_is_folded_and_what_is_glued_to_it_is_the_message() -> None:
    bar = lines(MIXED)[1]
    assert bar.progress is not None
    assert (bar.progress.done, bar.progress.total) == (1, 58)
    assert bar.message == "glued text"
    assert bar.updates == 2
    assert bar.overwritten == ()


def test_what_was_overwritten_is_kept_unless_it_was_a_bar() -> None:
    assert lines(MIXED)[7].overwritten == ("old words",)
    assert lines(MIXED)[7].message == "new words"
    assert lines(MIXED)[4].overwritten == ()


def test_carriage_return_before_line_feed_is_one_line_end() -> None:
    line = lines(MIXED)[2]
    assert (line.text, line.updates, line.overwritten) == ("windows", 0, ())


def test_colours_are_no_part_of_the_text() -> None:
    line = lines(MIXED)[3]
    assert line.source == "EngineCore pid=7"
    assert line.level is Level.INFO
    assert line.message == "colour"
    assert "\x1b" not in line.text


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_the_same_lines_however_the_bytes_are_cut(size: int) -> None:
    assert lines(MIXED, size) == lines(MIXED)


@settings(max_examples=150)
@given(
    st.lists(st.sampled_from([b"\n", b"\r", b"\r\n", b"\x1b[31m", b"ab", b"\xc3\xa9", b"\0",
                              b" 50%|#| 1/2 [00:01<00:01, 1.0s/it]", b"Traceback", b"[", b"("])),
    st.lists(st.integers(1, 9), min_size=1, max_size=4),
)  # fmt: skip
def test_any_bytes_in_any_pieces(parts: list[bytes], sizes: list[int]) -> None:
    data = b"".join(parts)
    whole = lines(data)
    assert lines(data, *sizes) == whole
    assert sum(line.size for line in whole) == len(data)
    for line in whole:
        assert line.text.isprintable()


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.is_dir(), reason="no recordings beside the checkout")
@pytest.mark.parametrize("name", ["sg-01", "vl-05", "tr-01", "tg-01"])
def test_recorded_logs_in_pieces(name: str) -> None:
    data = (SHARED / "logs" / f"{name}.log").read_bytes()
    assert lines(data, 7) == lines(data)
    assert lines(data, 4096) == lines(data)


def test_reading_can_be_taken_up_where_it_stopped() -> None:
    whole = lines(MIXED)
    first = LogReader(updates=False)
    cut = MIXED.index(b"windows") + 3
    before = [event for event in first.feed(MIXED[:cut]) if isinstance(event, LogLine)]
    second = LogReader(number=first.lines, offset=first.offset, updates=False)
    after = [*second.feed(MIXED[first.offset :]), *second.finish()]
    assert [*before, *after] == whole


def test_bars_move_while_their_line_is_written() -> None:
    reader = LogReader()
    assert reader.feed(b"\rLoad:  50%|##| 1/2 [00:01<00:01, 1.0s/it]") == []
    partial = reader.partial()
    assert partial is not None
    assert partial.progress is not None
    assert partial.progress.fraction == 0.5
    assert not partial.complete
    events = reader.feed(b"\rLoad: 100%|####| 2/2 [00:02<00:00, 1.0s/it]")
    assert len(events) == 1
    assert isinstance(events[0], LineUpdate)
    assert events[0].progress.done == 1
    done = reader.feed(b"\n")[0]
    assert isinstance(done, LogLine)
    assert done.progress is not None
    assert done.progress.fraction == 1.0
    assert reader.partial() is None
    assert reader.finish() == []


def test_looking_at_an_unfinished_line_changes_nothing() -> None:
    reader = LogReader(updates=False)
    events = []
    for byte in MIXED:
        events += reader.feed(bytes([byte]))
        reader.partial()
        reader.partial()
    assert [*events, *reader.finish()] == lines(MIXED)


def test_one_endless_line_takes_bounded_memory() -> None:
    reader = LogReader(updates=False)
    block = bytes(range(32, 127)) * 700
    tracemalloc.start()
    for _ in range(400):
        assert reader.feed(block) == []
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4_000_000
    line = reader.finish()[0]
    assert isinstance(line, LogLine)
    assert line.truncated
    assert line.size == 400 * len(block)
    assert len(line.text) <= MAX_LINE_BYTES


def test_ninety_thousand_rewrites_take_bounded_memory() -> None:
    reader = LogReader(updates=False)
    tracemalloc.start()
    for number in range(90_000):
        reader.feed(b"\rstep %d of many, with words" % number)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000
    line = reader.feed(b"\n")[0]
    assert isinstance(line, LogLine)
    assert line.updates == 90_000
    assert len(line.overwritten) == 4


def test_holes_and_wide_characters_are_closed() -> None:
    """Copy-and-truncate leaves NULs; Windows writes two bytes a character."""
    assert lines(b"\0\0\0\0INFO:     hello\n")[0].message == "hello"
    assert lines("Ready\n".encode("utf-16-le"))[0].text == "Ready"


@pytest.mark.parametrize(
    ("text", "message", "level", "source", "rank"),
    [
        ("[2026-06-11 05:11:58 TP1] Memory pool end.", "Memory pool end.", None, "TP1", 1),
        ("[2026-06-11 05:11:58 DP3 TP5 EP5] x", "x", None, "DP3 TP5 EP5", 5),
        ("[2024-10-22 06:31:36] INFO:     Uvicorn", "Uvicorn", "info", None, None),
        ("(Worker_TP1 pid=9) ERROR 10-02 09:15:15 [m.py:1]   File", "  File", "error",
         "Worker_TP1 pid=9", 1),
        ("(VllmWorker rank=2 pid=9) WARNING 06-13 15:32:09 [m.py:527] x", "x", "warning",
         "VllmWorker rank=2 pid=9", 2),
        ("(RayWorkerWrapper pid=9, ip=10.0.0.2) INFO 06-13 15:32:09 a.py:5] x", "x", "info",
         "RayWorkerWrapper pid=9, ip=10.0.0.2", None),
        ("(APIServer pid=1) INFO:     Application startup complete.",
         "Application startup complete.", "info", "APIServer pid=1", None),
        ("[01/05/2026-12:00:10] [TRT-LLM] [RANK 3] [E] x", "x", "error", "TRT-LLM", 3),
        ("[TensorRT-LLM][WARNING] x", "x", "warning", "TensorRT-LLM", None),
        ("[rank2]:[E1001 16:06:04.537131842 ProcessGroupNCCL.cpp:607] [Rank 2] x", "x", "error",
         "Rank 2", 2),
        ("[E ProcessGroupNCCL.cpp:828] [Rank 0] x", "x", "error", "Rank 0", 0),
        ("[rank1]: Traceback", "Traceback", None, "rank1", 1),
        ("2025-04-14T15:51:31.134585Z ERROR shard-manager: text_generation_launcher: x",
         "x", "error", "text_generation_launcher", None),
        ("2025-04-14T15:51:31.134585Z  INFO text_generation_router::server: router/src/s.rs:9: x",
         "x", "info", "text_generation_router::server", None),
        ("2025-11-28 15:28:09,929 - INFO - autotuner.py:256 - x", "x", "info", None, None),
        ("2025-11-02 13:17:04,315 - vllm.v1.core - ERROR - x", "x", "error", None, None),
        ("0.00.160.925 E llama_model_load: x", "llama_model_load: x", "error", None, None),
        ("INFO [                    main] model loaded | tid=\"1\"", "model loaded | tid=\"1\"",
         "info", "main", None),
        ("time=2025-07-16T20:07:57.610+02:00 level=ERROR source=sched.go:489 msg=\"x\"",
         "msg=\"x\"", "error", None, None),
        ("2025/02/02 09:23:09 routes.go:1187: INFO server config", "server config", "info", None,
         None),
        ("Dec 02 09:00:00 gpu01 vllm[123]: INFO:     x", "x", "info", "vllm[123]", None),
        ("2025-12-02T09:00:00+0000 gpu01 vllm[123]: INFO:     x", "x", "info", "vllm[123]", None),
        ("Dec  2 09:00:00 gpu01 kernel: Out of memory", "Out of memory", None, "kernel", None),
        ("(Worker pid=9) [Stage-0] ERROR 03-12 08:22:28 [m.py:800] x", "x", "error", "Stage-0", None),
        ("vllm-1  | INFO 01-01 00:00:00 [a.py:1] x", "x", "info", "vllm-1", None),
        ("0|vllm  | INFO:     x", "x", "info", "0|vllm", None),
        ("[pod/vllm-0/vllm] INFO:     x", "x", "info", "pod/vllm-0/vllm", None),
        ("2023-12-28T13:17:07.318695558Z INFO:     x", "x", "info", None, None),
        ("2025-03-05 08:58:54 time=2025-03-05T06:58:54.116Z level=INFO source=a.go:1 msg=x",
         "msg=x", "info", None, None),
        ('{"log":"INFO:     x\\n","stream":"stderr","time":"2025-01-01T00:00:00Z"}', "x", "info",
         None, None),
        ('{"timestamp":"2025-01-01T00:00:00Z","level":"ERROR","fields":{"message":"x"},"target":"r"}',
         "x", "error", "r", None),
        ("3: INFO:     x", "x", "info", "3", None),
        ("[1,0]<stderr>:x", "x", None, "1,0", None),
        ("[36041] main: model loaded", "main: model loaded", None, "36041", None),
        ("CRITICAL 02-04 23:21:45 core_client.py:158] x", "x", "critical", None, None),
        ("ERROR:root:x", "x", "error", "root", None),
        ("llama_context: n_ctx = 4096", "llama_context: n_ctx = 4096", None, None, None),
        ("error: no prefix", "error: no prefix", None, None, None),
        ("", "", None, None, None),
        ('{"log":', '{"log":', None, None, None),
    ],
)  # fmt: skip
def test_prefixes_of_every_kind(
    text: str, message: str, level: str | None, source: str | None, rank: int | None
) -> None:
    prefix = split_prefix(text)
    assert prefix.message == message
    assert prefix.level == level
    assert prefix.source == source
    assert prefix.rank == rank
