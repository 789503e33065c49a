"""The same lines from wherever one looks, whatever is held, however the bytes came."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from backends.servers.logquery import Query
from backends.servers.logtext import Item, LogText, Missing
from backends.servers.logwindow import LogWindow

BLOCK = 16
PIECES = st.lists(
    st.sampled_from(
        [b"a", b"bb\n", b"\n", b"\r", b"x" * 20, b"line of text\n", b"\xff\x1b[0m", b"\n\n"]
    ),
    max_size=60,
)  # fmt: skip


class Files:
    """What lies on a host, and a text that reads it."""

    def __init__(self) -> None:
        self.text = LogText(block_bytes=BLOCK, cache_bytes=BLOCK * 5)
        self.files: list[bytes] = []

    def bring(self, missing: Missing) -> None:
        data = self.files[missing.segment]
        self.text.put(missing, data[missing.offset : missing.offset + missing.size])

    def item(self, offset: int, *, back: bool = False) -> Item | None:
        while True:
            look = self.text.item_before if back else self.text.item_at
            found = look(offset)
            if not isinstance(found, Missing):
                return found
            self.bring(found)

    def down(self) -> list[Item]:
        items, at = [], self.text.start
        while (item := self.item(at)) is not None:
            items.append(item)
            at = item.end
        return items

    def up(self) -> list[Item]:
        items, at = [], self.text.end
        while (item := self.item(at, back=True)) is not None:
            items.append(item)
            at = item.offset
        return items[::-1]

    def window(self, query: Query, start: int, count: int) -> list[Item]:
        window = LogWindow(self.text, query)
        window.seek(start)
        for _ in range(2000):
            if window.at_start and window.at_end:
                break
            if not window.at_end:
                before = window.high
                missing = window.extend_down(count)
                if missing is not None:
                    self.bring(missing)
                elif window.high == before and window.at_start:
                    break  # what is left is the unfinished line
            if not window.at_start:
                missing = window.extend_up(count)
                if missing is not None:
                    self.bring(missing)
        return window.items


def plain(items: list[Item]) -> list[tuple[int, int, str, str]]:
    return [(i.offset, i.size, i.line.text if i.line else "", i.mark) for i in items]


def fill(contents: list[list[bytes]], cut: int) -> Files:
    """Files, one after the other; the first is opened in the middle, the rest comes in pieces."""
    files = Files()
    for number, pieces in enumerate(contents):
        data = b"".join(pieces)
        if number:
            files.text.end_segment("rotated")
        opened = min(cut, len(data)) if number == 0 else 0
        files.text.begin(7 + number, opened)
        files.files.append(data)
        at = opened
        for piece in pieces:
            size = max(1, len(piece))
            if at < len(data):
                files.text.append(data[at : at + size])
                at += len(data[at : at + size])
        if at < len(data):
            files.text.append(data[at:])
    return files


@settings(deadline=None, max_examples=300)
@given(st.lists(PIECES, min_size=1, max_size=4), st.integers(0, 200))
def test_down_up_and_from_anywhere_are_the_same(contents: list[list[bytes]], cut: int) -> None:
    files = fill(contents, cut)
    down = files.down()
    assert plain(files.up()) == plain(down)
    at = files.text.start
    for item in down:
        assert item.offset == at
        at = item.end
    assert at == files.text.end
    for offset in range(files.text.start, files.text.end):
        while isinstance(start := files.text.line_start(offset), Missing):
            files.bring(start)
        assert start == next(i.offset for i in down if i.offset <= offset < i.end)


@settings(deadline=None, max_examples=150)
@given(PIECES, PIECES, st.integers(0, 200), st.integers(1, 7))
def test_however_it_was_cut(first: list[bytes], second: list[bytes], cut: int, count: int) -> None:
    whole = fill([[b"".join(first)], [b"".join(second)]], 0)
    pieces = fill([first, second], cut)
    expected = plain(whole.down())
    assert plain(pieces.down()) == expected
    for start in {0, *(offset for offset, *_ in expected)}:
        found = plain(pieces.window(Query(), start, count))
        assert found == expected


@settings(deadline=None, max_examples=150)
@given(PIECES, st.integers(0, 200), st.integers(1, 7))
def test_a_query_finds_the_same_from_anywhere(pieces: list[bytes], cut: int, count: int) -> None:
    from backends.servers.logquery import Pattern

    files = fill([pieces], cut)
    query = Query(pattern=Pattern("line|b"))
    expected = [i for i in files.down() if i.line is not None and query.wants(i.line)]
    for item in files.down():
        found = files.window(query, item.offset, count)
        assert plain(found) == plain(expected)
