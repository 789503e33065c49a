"""Tables of benchmark runs, and how a result document becomes their rows."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from backends.bench.results import RunResult, StepResult, Throughput
from backends.storage.database import TableGroup

BENCH_TABLES: Final = TableGroup(
    "bench",
    (
        """
        CREATE TABLE bench_run (
            run_id TEXT PRIMARY KEY,
            started_utc TEXT NOT NULL,
            ended_utc TEXT,
            status TEXT NOT NULL,
            harness TEXT NOT NULL,
            plan TEXT NOT NULL,
            plan_digest TEXT NOT NULL,
            workload_digest TEXT NOT NULL,
            profile TEXT NOT NULL,
            engine TEXT NOT NULL,
            engine_version TEXT,
            model TEXT,
            url TEXT NOT NULL,
            host TEXT,
            client TEXT NOT NULL,
            gpus TEXT NOT NULL,
            steps INTEGER NOT NULL,
            repetitions INTEGER NOT NULL,
            requests INTEGER NOT NULL,
            failed INTEGER NOT NULL,
            valid INTEGER NOT NULL,
            output_tokens_per_s REAL,
            total_tokens_per_s REAL,
            ttft_s REAL,
            tpot_s REAL
        ) WITHOUT ROWID;
        CREATE INDEX bench_run_started ON bench_run (started_utc);
        CREATE INDEX bench_run_plan ON bench_run (profile, plan_digest);
        CREATE TABLE bench_document (
            run_id TEXT PRIMARY KEY REFERENCES bench_run ON DELETE CASCADE,
            schema INTEGER NOT NULL,
            body BLOB NOT NULL
        );
        CREATE TABLE bench_step (
            run_id TEXT NOT NULL REFERENCES bench_run ON DELETE CASCADE,
            position INTEGER NOT NULL,
            step INTEGER NOT NULL,
            repetition INTEGER NOT NULL,
            label TEXT NOT NULL,
            concurrency INTEGER,
            rate_per_s REAL,
            sent INTEGER NOT NULL,
            succeeded INTEGER NOT NULL,
            failed INTEGER NOT NULL,
            output_tokens_per_s REAL,
            total_tokens_per_s REAL,
            ttft_p50_s REAL,
            ttft_p99_s REAL,
            tpot_p50_s REAL,
            e2e_p50_s REAL,
            joules_per_output_token REAL,
            PRIMARY KEY (run_id, position)
        ) WITHOUT ROWID;
        CREATE TABLE bench_tag (
            run_id TEXT NOT NULL REFERENCES bench_run ON DELETE CASCADE,
            tag TEXT NOT NULL,
            PRIMARY KEY (run_id, tag)
        ) WITHOUT ROWID;
        CREATE INDEX bench_tag_tag ON bench_tag (tag);
        CREATE TABLE bench_note (
            id INTEGER PRIMARY KEY,
            run_id TEXT NOT NULL REFERENCES bench_run ON DELETE CASCADE,
            written_utc TEXT NOT NULL,
            text TEXT NOT NULL
        );
        CREATE INDEX bench_note_run ON bench_note (run_id);
        CREATE TABLE bench_baseline (
            profile TEXT NOT NULL,
            plan_digest TEXT NOT NULL,
            run_id TEXT NOT NULL REFERENCES bench_run ON DELETE CASCADE,
            pinned_utc TEXT NOT NULL,
            PRIMARY KEY (profile, plan_digest)
        ) WITHOUT ROWID;
        """,
    ),
)


@dataclass(frozen=True, slots=True)
class RunRow:
    """One line of the list of runs."""

    run_id: str
    started_utc: datetime
    ended_utc: datetime | None
    status: str
    harness: str
    plan: str
    plan_digest: str
    workload_digest: str
    profile: str
    """Empty where the server was not started from one."""
    engine: str
    engine_version: str | None
    model: str | None
    url: str
    host: str | None
    client: str
    gpus: str
    """Such as `8 x NVIDIA H200`; empty when unknown."""
    steps: int
    repetitions: int
    requests: int
    failed: int
    valid: bool
    """Whether the client kept up in every step."""
    output_tokens_per_s: float | None
    """Of the best step; likewise total."""
    total_tokens_per_s: float | None
    ttft_s: float | None
    """Median of the first step; likewise TPOT."""
    tpot_s: float | None
    tags: tuple[str, ...]
    notes: int
    baseline: bool


RUN_COLUMNS: Final = (
    "run_id", "started_utc", "ended_utc", "status", "harness", "plan", "plan_digest",
    "workload_digest", "profile", "engine", "engine_version", "model", "url", "host", "client",
    "gpus", "steps", "repetitions", "requests", "failed", "valid", "output_tokens_per_s",
    "total_tokens_per_s", "ttft_s", "tpot_s",
)  # fmt: skip
_NAMES: Final = ", ".join(RUN_COLUMNS)
_MARKS: Final = ", ".join("?" * len(RUN_COLUMNS))
_UPDATES: Final = ", ".join(f"{name} = excluded.{name}" for name in RUN_COLUMNS[1:])
# Put together from the constants above, never from anything that comes from outside.
SAVE_RUN: Final = (
    f"INSERT INTO bench_run ({_NAMES}) VALUES ({_MARKS})"  # noqa: S608
    f" ON CONFLICT (run_id) DO UPDATE SET {_UPDATES}"
)
SAVE_DOCUMENT: Final = (
    "INSERT INTO bench_document VALUES (?, ?, ?)"
    " ON CONFLICT (run_id) DO UPDATE SET schema = excluded.schema, body = excluded.body"
)
SAVE_STEP: Final = (
    "INSERT INTO bench_step VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
SELECT_RUNS: Final = (
    f"SELECT {_NAMES},"  # noqa: S608
    " (SELECT group_concat(tag, char(31)) FROM bench_tag t WHERE t.run_id = r.run_id) AS tags,"
    " (SELECT count(*) FROM bench_note n WHERE n.run_id = r.run_id) AS notes,"
    " EXISTS (SELECT 1 FROM bench_baseline b WHERE b.run_id = r.run_id) AS baseline"
    " FROM bench_run r"
)
NEWEST_FIRST: Final = " ORDER BY started_utc DESC, run_id DESC"


def read_row(row: sqlite3.Row) -> RunRow:
    """A row of `SELECT_RUNS`."""
    return RunRow(
        run_id=row[0],
        started_utc=datetime.fromisoformat(row[1]),
        ended_utc=datetime.fromisoformat(row[2]) if row[2] else None,
        status=row[3],
        harness=row[4],
        plan=row[5],
        plan_digest=row[6],
        workload_digest=row[7],
        profile=row[8],
        engine=row[9],
        engine_version=row[10],
        model=row[11],
        url=row[12],
        host=row[13],
        client=row[14],
        gpus=row[15],
        steps=row[16],
        repetitions=row[17],
        requests=row[18],
        failed=row[19],
        valid=bool(row[20]),
        output_tokens_per_s=row[21],
        total_tokens_per_s=row[22],
        ttft_s=row[23],
        tpot_s=row[24],
        tags=tuple(sorted(row[25].split("\x1f"))) if row[25] else (),
        notes=row[26],
        baseline=bool(row[27]),
    )


def utc_text(moment: datetime) -> str:
    """ISO 8601 in UTC, always with microseconds: text that sorts by time."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return aware.astimezone(UTC).isoformat(timespec="microseconds")


def rates_of(step: StepResult) -> Throughput | None:
    """Of the steady window, else of the whole step."""
    return step.steady or step.whole


def gpus_in_words(run: RunResult) -> str:
    """The GPUs of a run, such as `8 x NVIDIA H200`; empty when unknown."""
    names: dict[str, int] = {}
    for gpu in run.environment.gpus:
        name = str(gpu.get("name") or "?")
        names[name] = names.get(name, 0) + 1
    return ", ".join(f"{count} x {name}" for name, count in names.items())


def run_values(run: RunResult) -> tuple[object, ...]:
    """The values of `RUN_COLUMNS`."""
    rates = [rate for step in run.steps if (rate := rates_of(step)) is not None]
    first = run.steps[0] if run.steps else None
    return (
        run.run_id,
        utc_text(run.started_utc),
        utc_text(run.ended_utc) if run.ended_utc else None,
        run.status.value,
        run.harness,
        run.plan.name,
        run.plan.digest,
        run.plan.workload_digest,
        run.target.profile or "",
        run.target.engine,
        run.target.engine_version,
        run.target.model,
        run.target.url,
        run.environment.host,
        run.client.where,
        gpus_in_words(run),
        len({step.index for step in run.steps}),
        len({step.repetition for step in run.steps}),
        sum(step.sent for step in run.steps),
        sum(step.failed for step in run.steps),
        all(step.client.valid for step in run.steps),
        max((rate.output_tokens_per_s for rate in rates), default=None),
        max((rate.total_tokens_per_s for rate in rates), default=None),
        first.ttft_s.p50 if first and first.ttft_s else None,
        first.tpot_s.p50 if first and first.tpot_s else None,
    )


def step_values(run_id: str, position: int, step: StepResult) -> tuple[object, ...]:
    """The values of a `bench_step` row."""
    rates = rates_of(step)
    return (
        run_id,
        position,
        step.index,
        step.repetition,
        step.label,
        step.concurrency,
        step.rate_per_s,
        step.sent,
        step.succeeded,
        step.failed,
        rates.output_tokens_per_s if rates else None,
        rates.total_tokens_per_s if rates else None,
        step.ttft_s.p50 if step.ttft_s else None,
        step.ttft_s.p99 if step.ttft_s else None,
        step.tpot_s.p50 if step.tpot_s else None,
        step.e2e_s.p50 if step.e2e_s else None,
        step.joules_per_output_token,
    )
