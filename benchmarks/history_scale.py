"""How the history scales: 1,000 runs listed, a comparison of 10,000 requests, samples written.

Run it as a script: `python benchmarks/history_scale.py`. Figures are medians of five.
"""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import msgspec

from backends.bench.compare import compare
from backends.bench.importers.common import Request, blocks_of, summary_of, throughput
from backends.bench.request_record import RequestRecord
from backends.bench.results import RunResult
from backends.storage.bench_tables import BENCH_TABLES
from backends.storage.database import Database
from backends.storage.history import Filter, History
from backends.storage.samples import SampleWriter, read_lines
from screens.history import HistoryScreen
from tests.bench_data.runs import run
from tests.ui.fakes import make_app, make_hub, ready

RUNS = 1000
REQUESTS = 10_000


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "history.db"
        with History(Database(path, [BENCH_TABLES])) as history:
            fill(history)
            size = path.stat().st_size / 1e6
            print(f"{RUNS} runs of 2 steps x 3 repetitions: {size:.1f} MB")
            show("list 1,000 runs", 100, lambda: history.runs(Filter(limit=RUNS)))
            show("search 1,000 runs for a tag", 100, lambda: history.runs(Filter(tag="golden")))
            show("search 1,000 runs for words", 100, lambda: history.runs(Filter(search="glm b7")))
            show("load one run", None, lambda: history.load(history.resolve("last")))
            show("store one run", None, lambda: history.save(run(1, repetitions=3)))
        show("open, list 20, close", None, lambda: open_and_list(path))
        asyncio.run(on_screen(Path(folder)))
        requests(Path(folder))
    return 0


async def on_screen(folder: Path) -> None:
    """From the key to the painted list, and from a letter of a search to its answer."""
    os.environ["GPUROOM_HOME"] = str(folder / "home")
    with History.at_home() as history:
        fill(history)
    app = make_app(make_hub())
    times: dict[str, list[float]] = {"open": [], "search": [], "move": []}
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        for _ in range(5):
            begun = time.perf_counter()
            app.action_runs()
            while not (isinstance(app.screen, HistoryScreen) and app.screen.list.runs):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            app.screen.list.redraw()
            times["open"].append(time.perf_counter() - begun)
            screen = app.screen
            begun = time.perf_counter()
            screen._filter("golden")
            while len(screen.list.runs) == RUNS:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            times["search"].append(time.perf_counter() - begun)
            screen._filter("")
            while len(screen.list.runs) != RUNS:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            begun = time.perf_counter()
            for _ in range(20):
                screen.list.move_by(1)
            times["move"].append((time.perf_counter() - begun) / 20)
            app.pop_screen()
            await pilot.pause()
    for name, what in (
        ("open", "on screen: key to painted list of 1,000"),
        ("search", "on screen: a search of 1,000 runs"),
        ("move", "on screen: one step of the cursor"),
    ):
        print(f"  {what:<52}{statistics.median(times[name]) * 1e3:>9.1f} ms  goal 100 ms")


def open_and_list(path: Path) -> None:
    with History(Database(path, [BENCH_TABLES])) as history:
        history.runs(Filter(limit=20))


def fill(history: History) -> None:
    for number in range(RUNS):
        one = run(number, repetitions=3)
        history.save(one)
        history.tag(one.run_id, [f"b{number % 10}"] + (["golden"] if number % 100 == 0 else []))


def requests(folder: Path) -> None:
    """Two runs of 10,000 requests each, from their samples to the verdict."""
    files = []
    for name, speed in (("a", 1.0), ("b", 0.98)):
        path = folder / f"{name}.jsonl.gz"
        write_samples(path, speed, random.Random(name))
        files.append(path)
    size = files[0].stat().st_size / 1e6
    print(f"samples of {REQUESTS:,} requests, 100 events each: {size:.1f} MB")
    show(
        "compare 2 x 10,000 requests, from samples on disk",
        2000,
        lambda: compare(from_samples(files[0]), from_samples(files[1])),
    )
    first, second = from_samples(files[0]), from_samples(files[1])
    show("the comparison alone", None, lambda: compare(first, second))
    big = [run(n, streams=tuple(2**i for i in range(11)), repetitions=5) for n in range(2)]
    show("compare 11 steps x 5 repetitions", None, lambda: compare(*big))
    print(f"  word: {compare(first, second).word.value} (truly 2 % slower)")


def write_samples(path: Path, speed: float, chance: random.Random) -> None:
    encoder = msgspec.json.Encoder()
    with SampleWriter(path) as writer:
        for number in range(REQUESTS):
            sent = number // 64 * 2.1 / speed
            gaps = tuple(int(chance.gauss(20_000, 800) / speed) for _ in range(99))
            record = RequestRecord(
                step=0, id=number, due_s=sent, sent_s=sent, end_s=sent + 2.1 / speed, ok=True,
                first_token_s=sent + 0.1 / speed, input_tokens=100, output_tokens=100,
                last_token_s=sent + 0.1 / speed + sum(gaps) / 1e6, gaps_us=gaps, events=100,
            )  # fmt: skip
            writer.write([encoder.encode(record)])


def from_samples(path: Path) -> RunResult:
    decoder = msgspec.json.Decoder(RequestRecord)
    found: list[Request] = []
    for line in read_lines(path):
        record = decoder.decode(line)
        if record.ok and record.sent_s is not None and record.first_token_s is not None:
            last = record.last_token_s or record.end_s
            found.append(
                Request(
                    record.sent_s, record.first_token_s - record.sent_s, last - record.sent_s,
                    record.input_tokens or 0, record.output_tokens or 0,
                )
            )  # fmt: skip
    seconds = max(r.start_s + r.e2e_s for r in found)
    tokens = sum(r.output_tokens for r in found)
    template = run(1, streams=(64,))
    step = msgspec.structs.replace(
        template.steps[0],
        blocks=blocks_of(found),
        steady=None,
        whole=throughput(seconds, len(found), sum(r.input_tokens for r in found), tokens),
        ttft_s=summary_of(r.ttft_s for r in found),
        e2e_s=summary_of(r.e2e_s for r in found),
    )
    return msgspec.structs.replace(template, steps=(step,))


def show(what: str, limit_ms: float | None, call: Callable[[], object]) -> None:
    times = []
    for _ in range(5):
        begun = time.perf_counter()
        call()
        times.append((time.perf_counter() - begun) * 1e3)
    goal = "" if limit_ms is None else f"  goal {limit_ms:,.0f} ms"
    print(f"  {what:<52}{statistics.median(times):>9.1f} ms{goal}")


if __name__ == "__main__":
    sys.exit(main())
