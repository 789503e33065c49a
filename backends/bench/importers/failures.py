"""Why requests of other tools failed: their words as kinds, `unknown` where they don't say."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Final

from backends.bench.results import Failure

MAX_CHARS: Final = 2000
_STATUS: Final = re.compile(
    r"(?:^|\bhttp(?:/[\d.]+)? |\b(?:status|code)\W{1,4}|['\"(])([1-5]\d\d)\b", re.IGNORECASE
)
"""A number that is said to be a status; the lines of a traceback have numbers too."""
_PHRASES: Final = {
    status.phrase.lower(): status.value for status in HTTPStatus if status.value >= 400
}
_WORDS: Final = (
    (re.compile(r"ssl\w*error|ssl: |certificate|\btls", re.I), Failure.TLS),
    (re.compile(r"connector|connecterror|connecttimeout|cannot connect|connect call failed"
                r"|connection refused|name resolution|unreachable", re.I), Failure.CONNECT),
    (re.compile(r"time-?out|timed out", re.I), Failure.TIMEOUT),
    (re.compile(r"disconnected|connection reset|connection closed|peer closed|broken ?pipe"
                r"|payload ?(?:error|is not completed)|incompleteread|readerror"
                r"|remoteprotocolerror", re.I), Failure.CUT),
    (re.compile(r"jsondecodeerror|decoding|invalid (?:json|chunk)", re.I), Failure.PROTOCOL),
)  # fmt: skip
"""As aiohttp, httpx and the operating system name them."""


def of_status(status: int) -> Failure:
    """The kind of an HTTP status."""
    kinds = {429: Failure.RATE_LIMITED, 503: Failure.OVERLOADED}
    return kinds.get(status, Failure.HTTP if status >= 300 else Failure.UNKNOWN)


def of_words(text: str) -> Failure:
    """The kind of an error message; of a traceback the last line speaks."""
    text = text[-MAX_CHARS:].strip()
    if "Traceback (most recent call last)" in text or text.count("\n") > 3:
        text = text.rpartition("\n")[2]
    stated = _STATUS.search(text)
    if stated is not None:
        return of_status(int(stated[1]))
    lower = text.lower()
    for phrase, status in _PHRASES.items():
        if phrase in lower:
            return of_status(status)
    return next((kind for word, kind in _WORDS if word.search(text)), Failure.UNKNOWN)


def by_kind(
    failed: int, words: Iterable[str] = (), counts: Mapping[str, int] | None = None
) -> dict[str, int]:
    """So many failures by kind.

    Args:
        failed: How many there were.
        words: The messages of some or all of them; an empty one is none.
        counts: Kinds that are known already.
    """
    found = Counter(counts or {})
    found.update(of_words(word).value for word in words if word)
    known = found.total()
    if known > failed:
        return {Failure.UNKNOWN.value: failed} if failed else {}
    if known < failed:
        found[Failure.UNKNOWN.value] += failed - known
    return dict(found)
