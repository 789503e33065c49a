"""Lines that are shown as one: none is lost, none doubled."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from backends.servers.logfolds import folded_bars
from backends.servers.logtext import Item, each_line, parse_line
from backends.servers.logwindow import MAX_ITEMS
from tests.logs.conftest import RealHost
from tests.logs.test_screen import log_lines, opened
from tests.ui.fakes import make_app, make_hub


def bar(done: int, total: int = 10, label: str = "Loading shards", rank: str = "") -> str:
    share = done * 100 // total
    return f"{rank}{label}: {share:3d}%|##  | {done}/{total} [00:{done % 60:02d}<00:09]\n"


def items_of(text: str) -> list[Item]:
    return [Item(at, len(raw), parse_line(raw, at)) for at, raw in each_line(text.encode(), 0)]


def texts(text: str, *unfolded: int) -> list[tuple[str, int]]:
    return [
        (item.line.text, folded)
        for item, folded in folded_bars(items_of(text), unfolded)
        if item.line is not None
    ]


def test_steps_of_one_bar_are_one_line() -> None:
    """From its first byte to its last; another bar, another run of it, other words are not."""
    steps = [bar(n) for n in range(11)]
    text = "begin\n" + "".join(steps) + "end\n"
    first, whole, last = folded_bars(items_of(text), ())
    assert whole[1] == 10
    assert (whole[0].offset, whole[0].end) == (6, 6 + len("".join(steps)))
    assert whole[0].line is not None
    assert whole[0].line.text == steps[-1].rstrip()
    assert (first[1], last[1]) == (0, 0)
    assert [n for _, n in texts(text + bar(0) + bar(1))] == [0, 10, 0, 1]
    assert [n for _, n in texts(bar(1) + bar(2, label="Capturing") + bar(3, 20))] == [0, 0, 0]
    ranks = [f"[2026-03-14 09:02:11 TP{n}] " for n in (0, 1)]
    assert [n for _, n in texts(bar(1, rank=ranks[0]) + bar(2, rank=ranks[1]))] == [0, 0]
    batches = [bar(n, label=f"Capturing batches (bs={n})") for n in range(3)]
    assert [n for _, n in texts("".join(batches))] == [2]
    glued = bar(1) + bar(2).rstrip() + "[2026-03-14 09:02:11] Load weight end.\n"
    assert [n for _, n in texts(glued)] == [0, 0]
    assert [n for _, n in texts(text, 6 + len(steps[0]))] == [0] * 13


@given(st.lists(st.sampled_from([*(bar(n) for n in range(4)), "words\n", "\n"]), max_size=30))
def test_what_is_shown_covers_every_byte_once(lines: list[str]) -> None:
    """Whatever was printed."""
    items = items_of("".join(lines))
    shown = folded_bars(items, ())
    at = 0
    for item, _ in shown:
        assert item.offset == at
        at = item.end
    assert at == sum(len(line) for line in lines)
    assert sum(1 + folded for _, folded in shown) == len(lines)


async def test_bars_on_screen_fold_open_and_are_found(host: RealHost, tmp_path: Path) -> None:
    """A run longer than the window neither fills it for ever nor hides what stands around it."""
    path = tmp_path / "server.log"
    count = MAX_ITEMS * 2
    path.write_text(
        log_lines(50)
        + "".join(bar(n, count) for n in range(count))
        + "after it\n"
        + bar(1)
        + bar(2)
    )
    async with make_app(make_hub()).run_test(size=(100, 30)) as pilot:
        log = await opened(pilot, host, path)
        await log.sees("[1 line folded, z opens]")
        await log.sees("after it")
        view = log.screen.view
        await log.until(lambda: view.needs() == (0, 0), "the window is full")
        assert len(view.window.items) <= MAX_ITEMS
        await log.press("k", "k")
        await log.until(lambda: view.needs() == (0, 0), "the window is full around the bar")
        assert view.current is not None
        assert view.current.line is not None
        assert view.current.line.progress is not None
        before = len(view.shown())
        await log.press("z")
        await log.until(lambda: len(view.shown()) > before, "the bar is open")
        await log.press("z")
        await log.type("slash", f"{count // 2}/{count}")
        await log.sees(f" {count // 2}/{count} ")
