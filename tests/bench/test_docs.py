"""`docs/bench.md` names every key, kind and status that there is, and its plan is one."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from backends.bench.plan import (
    Closed,
    Goodness,
    Limits,
    Open,
    Part,
    Plan,
    Prefix,
    Trace,
    WarmUp,
)
from backends.bench.planfile import parse
from backends.bench.results import Failure, PromptSource, StepResult
from backends.bench.steps import unroll

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "bench.md").read_text("utf-8")
CODE = set(re.findall(r"`([^`\n]+)`", TEXT))


@pytest.mark.parametrize(
    "kind", [Plan, Part, Prefix, Closed, Open, Trace, WarmUp, Limits, Goodness]
)
def test_every_key_of_a_plan_is_described(kind: type[msgspec.Struct]) -> None:
    missing = [field.name for field in msgspec.structs.fields(kind) if field.name not in CODE]
    assert missing == []


def test_every_failure_and_source_is_described() -> None:
    assert [str(one) for one in (*Failure, *PromptSource) if str(one) not in CODE] == []


def test_every_figure_of_a_step_is_defined() -> None:
    figures = [f.name for f in msgspec.structs.fields(StepResult) if f.name.endswith("_s")]
    undefined = {"start_s", "end_s", "warm_up_s", "rate_per_s"}
    assert [name for name in figures if name not in CODE | undefined] == []


def test_the_plan_in_it_is_a_plan() -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", TEXT, re.S)
    plan = parse(text)
    assert len(unroll(plan)) == 15
