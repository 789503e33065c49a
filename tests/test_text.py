"""Nothing that a terminal would obey gets through the cleaner."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.text import clean, clean_lines


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("python3 serve.py", "python3 serve.py"),
        ("\x1b]0;owned\x07name", "name"),
        ("\x1b[2J\x1b[31mred\x1b[0m", "red"),
        ("a\tb", "a    b"),
        ("a\x00b", "a\ufffdb"),
        ("safe\u202egnp.exe", "safe\ufffdgnp.exe"),
        ("\x9b31mC1", "\ufffd31mC1"),
        ("\x1b", "\ufffd"),
        ("日本 ok", "日本 ok"),
        ("lone \ud800 surrogate", "lone \ufffd surrogate"),
    ],
)
def test_clean(raw: str, shown: str) -> None:
    assert clean(raw) == shown


@given(st.text(alphabet=st.characters(codec=None), max_size=300))
def test_clean_leaves_no_control_character(raw: str) -> None:
    shown = clean(raw)
    assert not [c for c in shown if unicodedata.category(c) in ("Cc", "Cs")]
    assert not set(shown) & set("\u202a\u202e\u2066\u2069\u2028")


def test_clean_is_bounded() -> None:
    assert len(clean("x" * 10_000_000, limit=100)) == 100


def test_clean_lines_keeps_the_last() -> None:
    assert clean_lines("a\r\nb\x07\nc", max_lines=2) == ["b\ufffd", "c"]
