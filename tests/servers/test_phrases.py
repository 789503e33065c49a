"""Joined patterns find what each alone would find."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.servers.catalogue import load_catalogue
from backends.servers.engines import ENGINES, Engine
from backends.servers.phrases import Phrases, required_text, split_alternatives


@pytest.mark.parametrize(
    ("pattern", "parts"),
    [
        ("a|b", ["a", "b"]),
        ("(?:a|b)c", ["(?:a|b)c"]),
        (r"a\|b|c", [r"a\|b", "c"]),
        ("[|]a|b", ["[|]a", "b"]),
        ("[]|]a|b", ["[]|]a", "b"]),
        ("", [""]),
    ],
)
def test_alternatives_outside_groups(pattern: str, parts: list[str]) -> None:
    assert split_alternatives(pattern) == parts


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("out of memory", "out of memory"),
        (r"cuda error:? 2\b", "cuda error"),
        (r"exit ?code:? -9\b", "exit"),
        (r"(?:npu|xpu) out of memory", " out of memory"),
        (r"errno 98|errno 48", ""),
        (r"^\s*value error, (?P<what>.+)", "value error, "),
        (r"sm_\d+\w* is not", " is not"),
        (r"a[bc]def+gh", "def"),
        (r"x{2}yz", "yz"),
        (r"\.gguf", ".gguf"),
        (r"", ""),
    ],
)
def test_the_text_that_a_match_must_contain(pattern: str, text: str) -> None:
    assert required_text(pattern) == text


def pieces(engine: Engine) -> list[re.Pattern[str]]:
    return [
        *engine.fatal,
        *engine.ready,
        *engine.served,
        *engine.banner,
        *engine.stop.marks,
        *(mark.pattern for mark in engine.marks),
        *(advice.pattern for advice in engine.advice),
    ]


WORDS = st.lists(
    st.sampled_from(
        ["Killed", "Scheduler hit an exception", "offloaded 20/49 layers to GPU", "error", "^",
         "offloaded 49/49 layers to GPU", "Load weight begin", "Address already in use", "bind",
         "Performance might be sub-optimal", "Shutting down", "Connected", " ", "[shutdown]",
         "Error: ShardCannotStart", "CUDA error: x", "Received sigquit from a child process"]
    ),
    max_size=4,
).map(" ".join)  # fmt: skip


@given(WORDS)
def test_joined_patterns_find_what_each_finds(text: str) -> None:
    for engine in ENGINES.values():
        patterns = pieces(engine)
        alone = any(pattern.search(text) for pattern in patterns)
        assert Phrases(patterns).found_in(text) == alone


@given(st.text(alphabet="abc(|)[]?*+{}\\^$. 1", max_size=12), st.text("abc 1.", max_size=12))
def test_the_required_text_is_in_every_match(pattern: str, text: str) -> None:
    try:
        compiled = re.compile(pattern)
    except (re.error, FutureWarning, DeprecationWarning, OverflowError):
        return
    if compiled.search(text):
        assert required_text(pattern) in text


def test_most_signatures_can_be_ruled_out_quickly() -> None:
    needed = [text for cause in load_catalogue().causes for text, _ in cause.patterns]
    assert sum(len(text) >= 3 for text in needed) > len(needed) * 0.6
