"""Condition tree of a ``WHERE`` clause, which can be evaluated for records. Pure."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

from sfstream_localorg.records.record_store import StoredRecord
from sfstream_localorg.records.soql.fields import Parents, QueryField

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ESCAPED_OR_PLAIN = re.compile(r"\\.|.", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}

Test = Callable[[Any], bool]
"""Predicate on a stored value."""


@dataclass(frozen=True)
class Period:
    """The range of a date literal, in milliseconds since the epoch: from ``start`` up to before ``end``."""

    start: int
    end: int


@dataclass(frozen=True)
class Comparison:
    """Comparison of a field. ``operator`` is its SOQL operator (``=``, ``LIKE``, ``NOT IN``)."""

    field: QueryField
    operator: str
    test: Test

    def matches(self, record: StoredRecord, parents: Parents) -> bool:
        """Return whether a record meets the condition."""
        return self.test(self.field.value(record, parents))


@dataclass(frozen=True)
class Negation:
    """``NOT``."""

    condition: Condition

    def matches(self, record: StoredRecord, parents: Parents) -> bool:
        """Return whether a record does not meet the condition."""
        return not self.condition.matches(record, parents)


@dataclass(frozen=True)
class Conjunction:
    """``AND``; an empty conjunction is true for every record."""

    conditions: tuple[Condition, ...] = ()

    def matches(self, record: StoredRecord, parents: Parents) -> bool:
        """Return whether a record meets all conditions."""
        return all(condition.matches(record, parents) for condition in self.conditions)


@dataclass(frozen=True)
class Disjunction:
    """``OR``."""

    conditions: tuple[Condition, ...]

    def matches(self, record: StoredRecord, parents: Parents) -> bool:
        """Return whether a record meets one of the conditions."""
        return any(condition.matches(record, parents) for condition in self.conditions)


Condition = Comparison | Negation | Conjunction | Disjunction


def parts(condition: Condition) -> Iterator[Condition]:
    """Yield a condition and all conditions inside it."""
    yield condition
    if isinstance(condition, Negation):
        yield from parts(condition.condition)
    elif isinstance(condition, Conjunction | Disjunction):
        for one in condition.conditions:
            yield from parts(one)


def compared(condition: Condition) -> frozenset[str]:
    """Return the names of the fields that a condition compares."""
    return frozenset(part.field.name for part in parts(condition) if isinstance(part, Comparison))


def comparable(value: Any) -> Any:
    """Return a value in its form for comparison: texts in lower case, as in SOQL. 18-character ids stay distinct."""
    return value.lower() if isinstance(value, str) else value


def equals(value: Any) -> Test:
    """Return the test of ``=``. Null equals only null."""
    if isinstance(value, Period):
        return lambda found: found is not None and value.start <= found < value.end
    wanted = comparable(value)
    return lambda found: bool(comparable(found) == wanted)


def one_of(values: Collection[Any]) -> Test:
    """Return the test of ``IN``."""
    periods = [equals(value) for value in values if isinstance(value, Period)]
    wanted = {comparable(value) for value in values if not isinstance(value, Period)}
    return lambda found: comparable(found) in wanted or any(test(found) for test in periods)


def ordered(sign: str, value: Any) -> Test:
    """Return the test of ``<``, ``<=``, ``>`` or ``>=``; it is false for null."""
    if isinstance(value, Period):
        # A range counts as one value: later values start at its end, earlier values end at its start.
        value = value.end if sign in ("<=", ">") else value.start
        sign = "<" if sign in ("<", "<=") else ">="
    wanted, compare = comparable(value), _COMPARE[sign]
    return lambda found: found is not None and compare(comparable(found), wanted)


def like(pattern: str) -> Test:
    """Return the test of ``LIKE``.

    :param pattern: the pattern from the query, with its escapes.
    """
    first, *others = _segments(pattern)
    # Atomic groups match a text between two % at its first occurrence without backtracking, so no pattern is slow.
    between = "".join(f"(?>.*?{segment})" for segment in others[:-1])
    last = "".join(f".*{segment}" for segment in others[-1:])
    wanted = re.compile(first + between + last, re.IGNORECASE | re.DOTALL)
    return lambda found: found is not None and wanted.fullmatch(found) is not None


def negated(test: Test) -> Test:
    """Return the opposite of a test."""
    return lambda found: not test(found)


def unescaped(text: str) -> str:
    """Resolve the escapes in a text of a query."""
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), text, flags=re.DOTALL)


def _segments(pattern: str) -> list[str]:
    """Split a pattern of ``LIKE`` at its ``%``, and return the segments as regular expressions."""
    segments = [""]
    for match in _ESCAPED_OR_PLAIN.finditer(pattern):
        if match[0] == "%":
            segments.append("")
        else:
            segments[-1] += "." if match[0] == "_" else re.escape(unescaped(match[0]))
    return segments
