"""HTTP and server-sent events, cut anywhere."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.bench.generator.http1 import ProtocolError, ResponseReader
from backends.bench.generator.sse import EventReader

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunked(*pieces: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in pieces) + b"0\r\n\r\n"


def feed(data: bytes, cuts: list[int]) -> tuple[ResponseReader, bytes]:
    reader = ResponseReader()
    body = b""
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    for start, end in pairwise(edges):
        if start != end:
            body += b"".join(reader.feed(data[start:end]))
    return reader, body


pieces = st.lists(st.binary(min_size=1, max_size=40), max_size=6)
cuts = st.lists(st.integers(min_value=0, max_value=10_000), max_size=30)


@given(pieces, cuts)
def test_a_chunked_body_is_the_same_however_it_is_cut(parts: list[bytes], at: list[int]) -> None:
    reader, body = feed(HEAD + chunked(*parts), at)
    assert body == b"".join(parts)
    assert reader.done
    assert reader.reusable
    assert reader.surplus == b""


@given(st.binary(max_size=60), cuts)
def test_a_body_with_a_length_likewise(body: bytes, at: list[int]) -> None:
    head = b"HTTP/1.1 200 OK\nContent-Length: %d\n\n" % len(body)
    reader, got = feed(head + body + b"more", at)
    assert (got, reader.done) == (body, True)
    assert b"more".endswith(reader.surplus)


@given(st.binary(max_size=60), cuts)
def test_a_body_until_the_end_likewise(body: bytes, at: list[int]) -> None:
    reader, got = feed(b"HTTP/1.1 200 OK\r\n\r\n" + body, at)
    assert (got, reader.done) == (body, False)
    reader.close()
    assert reader.done
    assert not reader.reusable


def test_an_interim_response_is_passed_over() -> None:
    reader, body = feed(b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + chunked(b"x"), [])
    assert (reader.status, body) == (200, b"x")


def test_extensions_and_trailers_are_read_and_dropped() -> None:
    data = HEAD + b"3;name=value\r\nabc\r\n0\r\nChecksum: 1\r\nOther: 2\r\n\r\n"
    for at in range(len(data)):
        reader, body = feed(data, [at])
        assert (body, reader.done) == (b"abc", True)


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/2 200\r\n\r\n",
        b"ICY 200 OK\r\n\r\n",
        b"HTTP/1.1 2x0 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n folded: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n",
        HEAD + b"+3\r\nabc\r\n",
        HEAD + b"0x3\r\nabc\r\n",
        HEAD + b"3\r\nabcd\r\n",
        HEAD + b"\r\n",
        b"x" * 70_000,
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000,
    ],
)
def test_what_is_no_http_is_refused(data: bytes) -> None:
    reader = ResponseReader()
    with pytest.raises(ProtocolError):
        reader.feed(data)


def test_an_end_in_the_middle_is_an_error() -> None:
    reader = ResponseReader()
    reader.feed(HEAD + b"5\r\nab")
    with pytest.raises(ProtocolError):
        reader.close()


# --- events -----------------------------------------------------------------------------


def events(stream: bytes, at: list[int]) -> list[bytes]:
    reader = EventReader()
    found = []
    edges = [0, *sorted(cut % (len(stream) + 1) for cut in at), len(stream)]
    for start, end in pairwise(edges):
        found.extend(reader.feed(stream[start:end]))
    return found


texts = st.lists(st.text(max_size=12), min_size=1, max_size=6)


@given(texts, st.sampled_from(["\n", "\r\n", "\r"]), cuts, st.booleans())
def test_events_are_the_same_however_they_are_cut(
    contents: list[str], newline: str, at: list[int], comments: bool
) -> None:
    payloads = [json.dumps({"text": text}, ensure_ascii=False) for text in contents]
    payloads = [p for p in payloads if "\r" not in p and "\n" not in p]
    stream = ""
    for payload in payloads:
        if comments:
            stream += f": ping{newline}{newline}"
        stream += f"event: message{newline}data: {payload}{newline}{newline}"
    assert events(stream.encode(), at) == [payload.encode() for payload in payloads]


def test_data_over_several_lines_and_without_a_blank() -> None:
    assert events(b"data:a\ndata: b\ndata\n\n", []) == [b"a\nb\n"]


def test_an_event_that_is_cut_off_is_not_given() -> None:
    assert events(b"data: 1\n\ndata: 2\n", []) == [b"1"]


def test_many_events_in_one_read() -> None:
    assert events(b"data: 1\n\ndata: 2\n\n\ndata: 3\n\n", []) == [b"1", b"2", b"3"]


def test_an_event_without_an_end_is_refused() -> None:
    reader = EventReader()
    reader.feed(b"x" * (1 << 20))
    with pytest.raises(ValueError, match="no end"):
        reader.feed(b"x" * (16 << 20))


def test_an_event_of_endless_lines_is_refused() -> None:
    reader = EventReader()
    lines = b"data: " + b"x" * (1 << 20) + b"\n"
    for _ in range(16):
        reader.feed(lines)
    with pytest.raises(ValueError, match="no end"):
        reader.feed(lines)
