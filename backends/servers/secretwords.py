"""Hides the values of options that are secrets."""

from __future__ import annotations

import re
from typing import Final

_SECRET: Final = re.compile(r"(?i)(?:api_?key|token|password|secret|authorization)$")
_SECRET_IS_NONE: Final = frozenset({"None", "", "null", "[]"})
MASK: Final = "***"


def masked(name: str, value: str) -> str:
    """`value`, or a mask where its name is that of a secret."""
    if _SECRET.search(name) and value not in _SECRET_IS_NONE:
        return MASK
    return value
