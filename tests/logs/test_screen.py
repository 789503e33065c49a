"""The log screen, with its keys, on files read by a real agent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot

from backends.servers.logstore import LogStore
from screens.log import LogScreen
from tests.logs.conftest import RealHost
from tests.ui.fakes import drawn, make_app, make_hub, ready, screen_text
from tui.app import RoomApp

TRACE = (
    "Traceback (most recent call last):\n"
    '  File "/srv/run.py", line 7, in load\n'
    "    weights = read(path)\n"
    "ValueError: cannot read weights\n"
)


def log_lines(count: int, start: int = 0) -> str:
    return "".join(
        f"[2026-03-14 09:{n // 60 % 60:02d}:{n % 60:02d} TP{n % 4}] step {n} done\n"
        for n in range(start, start + count)
    )


class Shown:
    """The application with the log of a file on top."""

    def __init__(self, pilot: Pilot[int], screen: LogScreen) -> None:
        self.pilot = pilot
        self.screen = screen

    @property
    def text(self) -> str:
        return screen_text(self.pilot.app)

    async def until(self, test: Callable[[], object], what: str = "") -> None:
        for _ in range(200):
            await drawn(self.pilot)
            if test():
                return
            await asyncio.sleep(0.02)
        raise AssertionError(f"{what or test} never came true:\n{self.text}")

    async def sees(self, words: str) -> None:
        await self.until(lambda: words in self.text, words)

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await drawn(self.pilot)

    async def type(self, key: str, text: str) -> None:
        await self.press(key)
        self.screen.box.value = text
        await self.press("enter")


async def opened(pilot: Pilot[int], host: RealHost, path: Path) -> Shown:
    await ready(pilot)
    app = pilot.app
    assert isinstance(app, RoomApp)
    screen = LogScreen(app.shell, LogStore(host, str(path)), "server.log")
    await app.push_screen(screen)
    return Shown(pilot, screen)


async def test_it_opens_at_the_end_follows_and_counts_what_is_new(
    host: RealHost, tmp_path: Path
) -> None:
    path = tmp_path / "server.log"
    path.write_text(log_lines(5000))
    async with make_app(make_hub()).run_test(size=(100, 30)) as pilot:
        log = await opened(pilot, host, path)
        await log.sees("step 4999 done")
        with path.open("a") as file:
            file.write(log_lines(10, 5000))
        await log.sees("step 5009 done")
        await log.press("k")
        with path.open("a") as file:
            file.write(log_lines(12, 5010))
        await log.sees("+12 new")
        assert "step 5021 done" not in log.text
        await log.press("G")
        await log.sees("step 5021 done")
        await log.press("g")
        await log.sees("step 0 done")


async def test_the_status_line_is_drawn_with_the_key(
    host: RealHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not with the next frame, which may be a quarter of a second away, or never come."""
    path = tmp_path / "server.log"
    path.write_text(log_lines(500) + "the needle\n" + log_lines(20))
    async with make_app(make_hub()).run_test(size=(100, 30)) as pilot:
        log = await opened(pilot, host, path)
        await log.sees("step 19 done")
        await log.until(lambda: log.screen.view.needs() == (0, 0))
        app = pilot.app
        assert isinstance(app, RoomApp)
        monkeypatch.setattr(app.pump, "draw", lambda **_: None)
        assert "FOLLOW" in log.text
        await pilot.press("k")
        await pilot.pause()
        assert "FOLLOW" not in log.text
        await pilot.press("F")
        await pilot.pause()
        assert "FOLLOW" in log.text
        await log.type("slash", "needle")
        await log.until(lambda: "FOLLOW" not in log.text, "the search says that it left the end")
        assert "100 %" not in log.text


async def test_in_a_narrow_status_line_the_place_outlasts_the_number_of_errors(
    host: RealHost, tmp_path: Path
) -> None:
    path = tmp_path / "server.log"
    path.write_text(log_lines(3000) + TRACE + log_lines(300))
    async with make_app(make_hub()).run_test(size=(80, 24)) as pilot:
        log = await opened(pilot, host, path)
        await log.sees("1 error near the end")
        await log.type("slash", "step 2..")
        await log.sees("lines match")
        await log.press("L")
        await log.sees("only: level warning+")
        status = log.screen.status
        line = "".join(text for text, _ in status.rows_for(80, 1)[0].spans)
        assert "lines match" in line
        assert " % of about " in line
        assert "near the end" not in line
        line = "".join(text for text, _ in status.rows_for(40, 1)[0].spans)
        assert "only: level warning+" in line
        assert line.rstrip().endswith("%")


async def test_search_in_both_directions(host: RealHost, tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text(log_lines(20000))
    async with make_app(make_hub()).run_test(size=(100, 30)) as pilot:
        log = await opened(pilot, host, path)
        await log.sees("step 19999 done")
        await log.type("slash", r"step 1\d00 ")
        await log.sees("step 1900 done")
        await log.sees("lines match")
        await log.press("N")
        await log.sees("step 1800 done")
        await log.press("n")
        current = log.screen.view.current
        await log.until(
            lambda: (item := log.screen.view.current) and item.line and "1900" in item.line.text
        )
        assert current is not None
        await log.press("n")
        await log.sees("no step")


async def test_filters_errors_folds_and_times(host: RealHost, tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text(log_lines(1800) + TRACE + log_lines(1800, 1800) + TRACE.replace("7", "8"))
    async with make_app(make_hub()).run_test(size=(100, 30)) as pilot:
        log = await opened(pilot, host, path)
        await log.sees("ValueError: cannot read weights")
        await log.press("e")
        await log.sees("step 1799 done")
        await log.press("z")
        await log.sees("[2 lines folded")
        assert "weights = read" not in log.text
        await log.press("z")
        await log.sees("weights = read")
        await log.press("L", "L")
        await log.until(lambda: log.text.count("ValueError") >= 2)
        assert "step" not in log.text.split("level error")[0].split("FOLLOW")[0].replace(
            "steps", ""
        )
        await log.press("escape")
        await log.sees("step 1799 done")
        await log.type("at", "09:10")
        await log.sees("09:10:00 TP0] step 600 done")
        await log.type("ampersand", "step 77$|step 770 ")
        await log.sees("step 770 done")
        await log.until(lambda: "step 771 done" not in log.text)


async def test_phases_of_a_start(host: RealHost, tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    loads = "[2026-03-14 09:00:13 TP0] Load weight begin. avail mem=138.50 GB\n"
    captures = "[2026-03-14 09:01:43 TP0] Capture cuda graph begin. This can take minutes.\n"
    path.write_text(log_lines(900) + loads + log_lines(900) + captures + log_lines(900))
    async with make_app(make_hub()).run_test(size=(100, 30)) as pilot:
        log = await opened(pilot, host, path)

        def here() -> str:
            item = log.screen.view.current
            return item.line.text if item is not None and item.line is not None else ""

        await log.sees("step 899 done")
        await log.press("left_curly_bracket")
        await log.until(lambda: "Capture cuda graph begin" in here())
        await log.press("left_curly_bracket")
        await log.until(lambda: "Load weight begin" in here())
        await log.press("left_curly_bracket")
        await log.sees("no phase above")
        await log.press("P")  # from loading to the line before the capture, and no further
        await log.sees("only: this phase")
        await log.press("G")
        await log.sees("step 899 done")
        assert "Capture cuda" not in log.text
        await log.press("g")
        await log.until(lambda: "Load weight begin" in here())
        view = log.screen.view
        assert view.window.at_start
        first = view.window.items[0].line
        assert first is not None
        assert "Load weight begin" in first.text
        await log.press("P")
        await log.until(lambda: view.window.query.between is None)
        await log.press("right_curly_bracket")
        await log.until(lambda: "Capture cuda graph begin" in here())


async def test_ranks_and_the_readiness_line(host: RealHost, tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    lines = [f"[2026-03-14 09:00:{n % 60:02d} TP{n % 4}] batch {n} done\n" for n in range(400)]
    ready_line = "[2026-03-14 09:00:00] The server is fired up and ready to roll!\n"
    path.write_text("".join(lines[:100]) + ready_line + "".join(lines[100:]))
    async with make_app(make_hub()).run_test(size=(100, 30)) as pilot:
        log = await opened(pilot, host, path)
        await log.sees("batch 399 done")
        await log.press("T")
        await log.sees("only: rank 3")
        await log.until(lambda: "batch 398 done" not in log.text and "batch 395 done" in log.text)
        await log.press("T")
        await log.sees("batch 398 done")
        await log.press("r")
        await log.sees("fired up and ready to roll")
        await log.sees("batch 100 done")


async def test_a_tiny_terminal(host: RealHost, tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text(log_lines(300) + TRACE)
    async with make_app(make_hub()).run_test(size=(20, 6)) as pilot:
        log = await opened(pilot, host, path)
        await log.until(lambda: log.screen.view.shown())
        await log.press("w", "z", "k", "pageup", "g", "right", "L", "escape", "G")
        await pilot.resize_terminal(100, 30)
        await log.sees("step 299 done")


async def test_copy_and_save(host: RealHost, tmp_path: Path) -> None:
    path, kept = tmp_path / "server.log", tmp_path / "kept.log"
    path.write_text(log_lines(300))
    async with make_app(make_hub()).run_test(size=(100, 30)) as pilot:
        log = await opened(pilot, host, path)
        await log.sees("step 299 done")
        await log.press("v", "k", "k", "y")
        assert pilot.app.clipboard.splitlines() == log_lines(3, 297).splitlines()
        await log.type("S", str(kept))
        await log.sees("saved 300 lines")
        assert kept.read_text() == log_lines(300)
        await log.type("S", str(kept))
        await log.sees("can't be written")


async def test_a_catastrophic_pattern_holds_nothing_up(host: RealHost, tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text(("a" * 40 + "!\n") * 3000)
    async with make_app(make_hub()).run_test(size=(100, 30)) as pilot:
        log = await opened(pilot, host, path)
        await log.sees("aaaa!")
        await log.type("slash", "(a|aa)+$")
        await log.sees("takes too long")
        await log.press("k")
        assert not log.screen.view.follow


async def test_hostile_bytes_and_endless_lines(host: RealHost, tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    bar = b"\r".join(b"Loading: %3d%%|###| %d/100 [00:01<00:01]" % (n, n) for n in range(101))
    path.write_bytes(
        b"\x1b]0;title\x07\x1b[2Jone\x9b31m\n" + bytes(range(256)) + b"\n"
        + "\u202eright\u200b to left\n".encode() + bar * 20 + b"\n" + b"x" * 900_000 + b"\nlast\n"
    )  # fmt: skip
    async with make_app(make_hub()).run_test(size=(100, 30)) as pilot:
        log = await opened(pilot, host, path)
        await log.sees("last")
        await log.press("w", "g")
        await log.sees("100%")
        assert not {"\x1b", "\x9b", "\u202e", "\x07"} & set(log.text)
        await log.press("w", "right", "right", "left", "left", "G")
        await log.sees("last")


@pytest.mark.parametrize("theme", ["mono", "dark"])
async def test_missing_then_there_then_rotated(host: RealHost, tmp_path: Path, theme: str) -> None:
    path = tmp_path / "server.log"
    async with make_app(make_hub(), theme=theme).run_test(size=(80, 24)) as pilot:
        log = await opened(pilot, host, path)
        await log.sees("not there yet")
        path.write_text("line one\n")
        await log.sees("line one")
        path.rename(tmp_path / "server.log.1")
        path.write_text("second\n")
        await log.sees("second")
        await log.sees("rotated")
        assert "line one" in log.text
        await log.press("escape")
        assert not isinstance(pilot.app.screen, LogScreen)
