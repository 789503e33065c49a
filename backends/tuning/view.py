"""How rules look at facts: typed questions, and a record of which facts carried the answer."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property, lru_cache
from typing import TypeVar

from backends.tuning import numbers
from backends.tuning.facts import Fact, Vantage

Noted = TypeVar("Noted")


class FactTable:
    """The facts of one vantage, found by key or by pattern."""

    def __init__(self, facts: Iterable[Fact]) -> None:
        self._by_key = {fact.key: fact for fact in facts}
        self._matched: dict[str, list[tuple[tuple[str, ...], Fact]]] = {}
        self._folders: dict[str, dict[str, tuple[str, ...] | None]] = {}
        self._orders: dict[tuple[tuple[str, ...], ...], list[int]] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def get(self, key: str) -> Fact | None:
        """The fact of that key."""
        return self._by_key.get(key)

    @cached_property
    def _index(self) -> tuple[Mapping[str, list[str]], Mapping[str, list[str]]]:
        """Keys by their last part, and named keys by their first."""
        tails: dict[str, list[str]] = defaultdict(list)
        heads: dict[str, list[str]] = defaultdict(list)
        for key in self._by_key:
            tails[key.rpartition("/")[2]].append(key)
            if key[:1] != "/":
                heads[key.partition("/")[0]].append(key)
        return tails, heads

    def match(self, pattern: str) -> list[tuple[tuple[str, ...], Fact]]:
        """Facts whose key matches `pattern`, where `*` stands for a part without slash.

        The parts that the stars stood for come with each, in natural order.
        """
        found = self._matched.get(pattern)
        if found is None:
            head, _, tail = pattern.rpartition("/")
            if "*" in head and "*" not in tail:
                found = self._in_folders(head, tail)
            else:
                fits = expression(pattern).fullmatch
                facts = self._by_key
                found = [
                    (match.groups(), facts[match.string])
                    for match in map(fits, self.candidates(pattern))
                    if match is not None
                ]
            self._sort(found)
            self._matched[pattern] = found
        return found

    def _in_folders(self, head: str, tail: str) -> list[tuple[tuple[str, ...], Fact]]:
        """Facts named `tail` below folders that match `head`: each folder is matched once."""
        folders = self._folders.setdefault(head, {})
        fits = expression(head).fullmatch
        facts = self._by_key
        found = []
        cut = -1 - len(tail)
        for key in self.candidates(f"{head}/{tail}"):
            folder = key[:cut]
            if folder in folders:
                names = folders[folder]
            else:
                match = fits(folder)
                names = folders[folder] = match.groups() if match and "/" in key else None
            if names is not None:
                found.append((names, facts[key]))
        return found

    def _sort(self, found: list[tuple[tuple[str, ...], Fact]]) -> None:
        """In natural order; most families have the names of one that was sorted before."""
        names = tuple([item[0] for item in found])
        order = self._orders.get(names)
        if order is None:
            keys = [natural(parts) for parts in names]
            order = sorted(range(len(names)), key=keys.__getitem__)
            if order == list(range(len(names))):
                order = []
            self._orders[names] = order
        if order:
            found[:] = [found[place] for place in order]

    def candidates(self, pattern: str) -> Iterable[str]:
        """Keys that may match, by their last or first part."""
        head, tail = pattern.partition("/")[0], pattern.rpartition("/")[2]
        tails, heads = self._index
        best: Collection[str] = self._by_key
        if "*" not in tail:
            best = tails.get(tail, ())
        elif tail != "*":
            # As many last parts as there are sorts of files; far fewer than keys.
            fits = expression(tail).fullmatch
            best = [key for name, keys in tails.items() if fits(name) for key in keys]
        if head and "*" not in head:
            below = heads.get(head, ())
            best = below if len(below) < len(best) else best
        if best is self._by_key:
            literal = pattern.partition("*")[0]
            best = [key for key in best if key.startswith(literal)]
        return best

    def below(self, head: str) -> list[str]:
        """Keys that begin with the name `head` and a slash."""
        return self._index[1].get(head, [])


@lru_cache(maxsize=512)
def expression(pattern: str) -> re.Pattern[str]:
    """A key's pattern, in which `*` stands for a part without slash."""
    return re.compile("([^/]*)".join(re.escape(part) for part in pattern.split("*")))


@lru_cache(maxsize=16_384)
def natural(parts: tuple[str, ...]) -> tuple[tuple[int, int, str], ...]:
    """Sort key by which cpu10 comes after cpu9."""
    return tuple((0, int(p), "") if p.isdecimal() and len(p) < 19 else (1, 0, p) for p in parts)


class Reading:
    """One fact out of a family: what the stars of the pattern stood for, and the value.

    Taking the value notes it with the view, as asking the view itself does.
    """

    __slots__ = ("_view", "fact", "names")

    def __init__(self, names: tuple[str, ...], fact: Fact, view: View | None = None) -> None:
        self.names = names
        self.fact = fact
        self._view = view

    @property
    def name(self) -> str:
        """What the first star stood for."""
        return self.names[0]

    @property
    def text(self) -> str | None:
        """The value as stripped text."""
        return self._noted(_text(self.fact))

    @property
    def integer(self) -> int | None:
        """The value as a whole number."""
        return self._noted(numbers.integer(self.fact.value))

    @property
    def flag(self) -> bool | None:
        """The value as a switch."""
        return self._noted(numbers.flag(self.fact.value))

    @property
    def items(self) -> list[str] | None:
        """The value, when it is a list."""
        return self._noted(self.fact.value if isinstance(self.fact.value, list) else None)

    def _noted(self, value: Noted) -> Noted:
        if self._view is not None and value is not None:
            self._view.note(self.fact)
        return value


def _text(fact: Fact | None) -> str | None:
    if fact is None:
        return None
    value = fact.value
    if type(value) is not str:
        if value is None or isinstance(value, list | bool):
            return None
        value = str(value)
    text = value.strip()
    return text if text and (text.isprintable() or "\n" in text or "\t" in text) else None


class View:
    """The facts of one vantage as rules ask for them.

    Every accessor notes the fact it used. `drain` gives what was used since the last call, so
    that a finding can say on which facts it rests. `peek` accessors do not note anything: they
    are for context that may sharpen an answer but does not carry it.
    """

    def __init__(self, table: FactTable, vantage: Vantage) -> None:
        self.table = table
        self.vantage = vantage
        self._used: dict[str, None] = {}
        self._touched = False

    def drain(self) -> tuple[str, ...]:
        """Keys whose values were used since the last call."""
        used = tuple(self._used)
        self._used.clear()
        return used

    def take_touched(self) -> bool:
        """Whether any fact that exists was asked for since the last call."""
        touched, self._touched = self._touched, False
        return touched

    def _note(self, fact: Fact | None, usable: bool) -> None:
        if fact is not None:
            self._touched = True
            if usable:
                self._used[fact.key] = None

    def note(self, fact: Fact) -> None:
        """Remember that the value of `fact` was used."""
        self._note(fact, True)

    def find(self, key: str, pattern: str) -> re.Match[str] | None:
        """A place in a fact's text; noted only when the pattern is there."""
        fact = self.table.get(key)
        match = re.search(pattern, _text(fact) or "", re.MULTILINE)
        self._note(fact, match is not None)
        return match

    def boot_flags(self) -> list[str] | None:
        """The words of the running kernel's command line; None when it does not look like one."""
        line = self.find("/proc/cmdline", r"(?:^|\s)(?:root|BOOT_IMAGE|initrd|boot)=\S")
        return line.string.split() if line else None

    def has(self, key: str) -> bool:
        """Whether the fact was read at all, with a value or an error."""
        fact = self.table.get(key)
        self._note(fact, False)
        return fact is not None

    def error(self, key: str) -> str | None:
        """Why the fact has no value; None when it has one or was not read."""
        fact = self.table.get(key)
        self._note(fact, False)
        return fact.error if fact is not None and fact.value is None else None

    def absent(self, key: str) -> bool:
        """Whether the host was asked and said that there is no such file."""
        gone = self.error(key) in ("ENOENT", "ENODEV", "ENOTDIR")
        self._note(self.table.get(key), gone)
        return gone

    def text(self, key: str) -> str | None:
        """The value as stripped text."""
        fact = self.table.get(key)
        if fact is None:
            return None
        self._touched = True
        text = _text(fact)
        if text is not None:
            self._used[key] = None
        return text

    def integer(self, key: str, low: int = 0, high: int = 1 << 63) -> int | None:
        """The value as a whole number within what the field can hold; else None."""
        fact = self.table.get(key)
        if fact is None:
            return None
        self._touched = True
        value = numbers.integer(fact.value)
        if value is None or not low <= value <= high:
            return None
        self._used[key] = None
        return value

    def number(self, key: str, low: float = 0.0, high: float = 1e15) -> float | None:
        """The value as a number within what the field can hold; else None."""
        fact = self.table.get(key)
        value = numbers.number(fact.value) if fact else None
        usable = value is not None and low <= value <= high
        self._note(fact, usable)
        return value if usable else None

    def flag(self, key: str) -> bool | None:
        """The value as a switch; None when it is neither on nor off."""
        fact = self.table.get(key)
        value = numbers.flag(fact.value) if fact else None
        self._note(fact, value is not None)
        return value

    def items(self, key: str) -> list[str] | None:
        """The value, when it is a list; an empty one is an answer too."""
        fact = self.table.get(key)
        value = fact.value if fact is not None and isinstance(fact.value, list) else None
        self._note(fact, value is not None)
        return value

    def lines(self, key: str) -> list[str] | None:
        """The lines of a list or of a file's text; None when there are none."""
        fact = self.table.get(key)
        value: list[str] = []
        if fact is not None and isinstance(fact.value, list):
            value = fact.value
        elif fact is not None and isinstance(fact.value, str):
            value = [line for line in fact.value.split("\n") if line.strip()]
        self._note(fact, bool(value))
        return value or None

    def cpus(self, key: str, *, may_be_empty: bool = False) -> frozenset[int] | None:
        """The value as a set of CPUs or nodes."""
        fact = self.table.get(key)
        value = numbers.cpu_list(fact.value) if fact else None
        usable = value is not None and (may_be_empty or bool(value))
        self._note(fact, usable)
        return value if usable else None

    def each(self, pattern: str) -> list[Reading]:
        """A family of facts (`/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor`).

        Members that were asked for and do not exist are left out; see `each_asked`.
        """
        return [reading for reading in self.each_asked(pattern) if reading.fact.error != "ENOENT"]

    def integers(
        self, pattern: str, low: int = 0, high: int = 1 << 63
    ) -> dict[tuple[str, ...], int | None]:
        """A family's values as whole numbers, by what the stars stood for; None where it is none.

        For families with a member for each idle state of each CPU: one call for all of them.
        """
        result: dict[tuple[str, ...], int | None] = {}
        used = self._used
        seen: dict[str, int | None] = {}  # 256 CPUs have a handful of values between them
        for names, fact in self.table.match(pattern):
            raw = fact.value
            if type(raw) is str and raw in seen:
                value = seen[raw]
            else:
                value = numbers.integer(raw)
                if value is not None and not low <= value <= high:
                    value = None
                if type(raw) is str:
                    seen[raw] = value
            if value is not None:
                used[fact.key] = None
            elif fact.error == "ENOENT":
                continue
            result[names] = value
        self._touched = self._touched or bool(result)
        return result

    def each_asked(self, pattern: str) -> list[Reading]:
        """A family of facts, with those that turned out not to exist."""
        found = [Reading(names, fact, self) for names, fact in self.table.match(pattern)]
        self._touched = self._touched or bool(found)
        return found

    def peek(self, key: str) -> str | None:
        """The value as text, for context only."""
        return _text(self.table.get(key))

    def peek_integer(self, key: str) -> int | None:
        """The value as a whole number, for context only."""
        fact = self.table.get(key)
        return numbers.integer(fact.value) if fact else None

    def peek_number(self, key: str) -> float | None:
        """The value as a number, for context only."""
        fact = self.table.get(key)
        return numbers.number(fact.value) if fact else None

    def peek_items(self, key: str) -> list[str]:
        """The value as lines, for context only; empty when there is none."""
        fact = self.table.get(key)
        if fact is not None and isinstance(fact.value, list):
            return fact.value
        if fact is not None and isinstance(fact.value, str):
            return [line for line in fact.value.split("\n") if line.strip()]
        return []

    def peek_cpus(self, key: str) -> frozenset[int] | None:
        """The value as a set of CPUs, for context only."""
        fact = self.table.get(key)
        return numbers.cpu_list(fact.value) if fact else None

    def peek_each(self, pattern: str) -> list[Reading]:
        """A family of facts, for context only."""
        return [Reading(names, fact) for names, fact in self.table.match(pattern)]
