"""What stands behind ``WHERE``, as a tree that can be asked about records. Pure."""

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
"""Whether a stored value meets a condition."""


@dataclass(frozen=True)
class Period:
    """The range of a date literal, in milliseconds since the epoch: from ``start`` up to before ``end``."""

    start: int
    end: int


@dataclass(frozen=True)
class Comparison:
    """A field whose value has to meet a test. ``operator``: ``=``, ``LIKE``, ``NOT IN`` and so on."""

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
    """``AND``; every record meets an empty one."""

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
    """Yield a condition and all that it is made of."""
    yield condition
    if isinstance(condition, Negation):
        yield from parts(condition.condition)
    elif isinstance(condition, Conjunction | Disjunction):
        for one in condition.conditions:
            yield from parts(one)


def compared(condition: Condition) -> frozenset[str]:
    """Return the names of the fields that a condition looks at."""
    return frozenset(part.field.name for part in parts(condition) if isinstance(part, Comparison))


def comparable(value: Any) -> Any:
    """Texts compare without regard to case, as in SOQL; 18-character ids stay distinct so."""
    return value.lower() if isinstance(value, str) else value


def equals(value: Any) -> Test:
    """Return the test of ``=``. Nothing equals null but null."""
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
    """Return the test of ``<``, ``<=``, ``>`` or ``>=``; null is on no side of anything."""
    if isinstance(value, Period):
        # The whole range is one value: what is after it begins at its end, what is before it ends at its start.
        value = value.end if sign in ("<=", ">") else value.start
        sign = "<" if sign in ("<", "<=") else ">="
    wanted, compare = comparable(value), _COMPARE[sign]
    return lambda found: found is not None and compare(comparable(found), wanted)


def like(pattern: str) -> Test:
    """Return the test of ``LIKE``.

    :param pattern: as the query has it: escapes are not undone yet.
    """
    first, *others = _segments(pattern)
    # What stands between two % is found at the first place and never looked for again: no pattern takes long.
    between = "".join(f"(?>.*?{segment})" for segment in others[:-1])
    last = "".join(f".*{segment}" for segment in others[-1:])
    wanted = re.compile(first + between + last, re.IGNORECASE | re.DOTALL)
    return lambda found: found is not None and wanted.fullmatch(found) is not None


def negated(test: Test) -> Test:
    """Return the opposite of a test."""
    return lambda found: not test(found)


def unescaped(text: str) -> str:
    """Return what a text of a query means."""
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), text, flags=re.DOTALL)


def _segments(pattern: str) -> list[str]:
    """Return what a pattern of ``LIKE`` has before, between and after its ``%``, as regular expressions."""
    segments = [""]
    for match in _ESCAPED_OR_PLAIN.finditer(pattern):
        if match[0] == "%":
            segments.append("")
        else:
            segments[-1] += "." if match[0] == "_" else re.escape(unescaped(match[0]))
    return segments
