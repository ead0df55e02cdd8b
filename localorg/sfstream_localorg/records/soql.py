"""The part of SOQL that compares records: ``SELECT … FROM … [WHERE … AND …] [ORDER BY …] [LIMIT n] [OFFSET n]``.

Columns, ``FIELDS(ALL)`` or ``COUNT()``; conditions ``=  !=  <  <=  >  >=  IN  NOT IN`` joined by ``AND``. No ``OR``, no
relationships, no aggregates besides ``COUNT()``: those answer ``MALFORMED_QUERY`` or ``INVALID_FIELD``.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from sfstream_localorg.errors import ApiError
from sfstream_localorg.records.entity import Entity
from sfstream_localorg.records.fields import COMPOUND_TYPES
from sfstream_localorg.records.record_store import StoredRecord
from sfstream_localorg.records.record_values import readable, stored_value
from sfstream_localorg.records.values import from_json

_TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:\\.|[^'\\])*')|(?P<moment>\d{4}-\d\d-\d\d(?:T[\d:.]+(?:Z|[+-]\d\d:?\d\d))?)"
    r"|(?P<number>-?\d+(?:\.\d+)?)|(?P<word>[A-Za-z]\w*(?:\.\w+)*)|(?P<sign><=|>=|!=|<>|[=<>(),]))",
    re.ASCII,
)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

Condition = Callable[[StoredRecord], bool]


class EntityLookup(Protocol):
    """Where a query finds the entity that it is about."""

    def get(self, name: str) -> Entity | None:
        """Return the entity called ``name`` in any letter case, ``None`` if there is none."""


@dataclass(frozen=True)
class Query:
    """A query checked against its entity. ``columns`` is empty for ``COUNT()``; ``order`` is (column, descending).

    ``compared`` are the columns that the conditions look at.
    """

    entity: Entity
    columns: tuple[str, ...]
    conditions: tuple[Condition, ...]
    order: tuple[tuple[str, bool], ...]
    limit: int | None
    offset: int
    compared: frozenset[str] = frozenset()

    def matches(self, record: StoredRecord) -> bool:
        """Return whether a record meets all conditions."""
        return all(condition(record) for condition in self.conditions)

    def select(self, records: Iterable[StoredRecord]) -> list[StoredRecord]:
        """Return the records that the query asks for, in its order, nulls first."""
        found = [record for record in records if self.matches(record)]
        for column, descending in reversed(self.order):
            found.sort(key=lambda record: _sort_key(stored_value(self.entity, record, column)), reverse=descending)
        end = None if self.limit is None else self.offset + self.limit
        return found[self.offset : end]


def parse(text: str, entities: EntityLookup) -> Query:
    """Return the query in ``text``.

    :raises ApiError: ``MALFORMED_QUERY``, ``INVALID_TYPE`` or ``INVALID_FIELD``.
    """
    return _Parser(text, entities).query()


def parse_conditions(text: str, entity: Entity) -> tuple[tuple[Condition, ...], frozenset[str]]:
    """Return the conditions in ``text``, which is what may stand behind ``WHERE``, and the columns they look at.

    :raises ApiError: ``MALFORMED_QUERY`` or ``INVALID_FIELD``.
    """
    parser = _Parser(f"WHERE {text}")
    conditions = parser.conditions(entity)
    parser.end()
    return conditions, frozenset(parser.compared)


class _Parser:
    def __init__(self, text: str, entities: EntityLookup | None = None) -> None:
        self._tokens = _tokens(text)
        self._entities = entities
        self._at = 0
        self.compared: set[str] = set()

    def query(self) -> Query:
        self._expect("SELECT")
        names = self._names()
        self._expect("FROM")
        name = self._take("word")
        entity = self._entities.get(name) if self._entities is not None else None
        if entity is None:
            raise ApiError("INVALID_TYPE", f"sObject type '{name}' is not supported.")
        columns = () if names == ["COUNT()"] else _columns(entity, names)
        conditions = self.conditions(entity)
        order = self._order(entity)
        limit = int(self._take("number")) if self._accept("LIMIT") else None
        offset = int(self._take("number")) if self._accept("OFFSET") else 0
        self.end()
        return Query(entity, columns, conditions, order, limit, offset, frozenset(self.compared))

    def end(self) -> None:
        """:raises ApiError: ``MALFORMED_QUERY`` if something is left."""
        if self._at != len(self._tokens):
            raise _malformed(f"unexpected token: '{self._tokens[self._at][1]}'")

    def _names(self) -> list[str]:
        names = []
        while True:
            name = self._take("word")
            if self._accept("("):
                argument = "" if self._accept(")") else self._take("word")
                if argument:
                    self._expect(")")
                name = f"{name}({argument})".upper()
            names.append(name)
            if not self._accept(","):
                return names

    def conditions(self, entity: Entity) -> tuple[Condition, ...]:
        conditions: list[Condition] = []
        if self._accept("WHERE"):
            conditions.append(self._condition(entity))
            while self._accept("AND"):
                conditions.append(self._condition(entity))
        return tuple(conditions)

    def _condition(self, entity: Entity) -> Condition:
        (column,) = _columns(entity, [self._take("word")])
        self.compared.add(column)
        kind = readable(entity)[column]
        if kind in COMPOUND_TYPES:
            raise ApiError("INVALID_FIELD", f"field '{column}' can not be filtered in a query call")
        negated = self._accept("NOT")
        if negated or self._peek() == "IN":
            self._expect("IN")
            values = {_comparable(value) for value in self._list(column, kind)}
            return lambda record: (_comparable(stored_value(entity, record, column)) in values) is not negated
        sign = self._take("sign")
        value = _comparable(self._literal(column, kind))
        if sign in ("=", "!=", "<>"):
            return lambda record: (_comparable(stored_value(entity, record, column)) == value) is (sign == "=")
        if sign not in _COMPARE or value is None:
            raise _malformed(f"unexpected token: '{sign}'")
        return lambda record: _ordered(_COMPARE[sign], _comparable(stored_value(entity, record, column)), value)

    def _list(self, column: str, kind: str) -> list[Any]:
        self._expect("(")
        values = [self._literal(column, kind)]
        while self._accept(","):
            values.append(self._literal(column, kind))
        self._expect(")")
        return values

    def _literal(self, column: str, kind: str) -> Any:
        lexeme, token = self._next()
        if lexeme == "word":
            if token.lower() not in ("true", "false", "null"):
                raise _malformed(f"unexpected token: '{token}'")
            return {"true": True, "false": False, "null": None}[token.lower()]
        if lexeme == "text":
            unescaped = re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), token[1:-1])
            return from_json(column, kind, unescaped) if unescaped else None
        if lexeme not in ("number", "moment"):
            raise _malformed(f"unexpected token: '{token}'")
        return from_json(column, kind, token)

    def _order(self, entity: Entity) -> tuple[tuple[str, bool], ...]:
        order: list[tuple[str, bool]] = []
        if self._accept("ORDER"):
            self._expect("BY")
            while not order or self._accept(","):
                (column,) = _columns(entity, [self._take("word")])
                descending = self._accept("DESC")
                if not descending:
                    self._accept("ASC")
                order.append((column, descending))
        return tuple(order)

    def _peek(self) -> str:
        return self._tokens[self._at][1].upper() if self._at < len(self._tokens) else ""

    def _next(self) -> tuple[str, str]:
        if self._at == len(self._tokens):
            raise _malformed("unexpected end of the query")
        self._at += 1
        return self._tokens[self._at - 1]

    def _accept(self, wanted: str) -> bool:
        found = self._peek() == wanted
        self._at += found
        return found

    def _expect(self, wanted: str) -> None:
        if not self._accept(wanted):
            raise _malformed(f"expecting '{wanted}', found '{self._peek()}'")

    def _take(self, kind: str) -> str:
        found, token = self._next()
        if found != kind:
            raise _malformed(f"unexpected token: '{token}'")
        return token


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens, at, text = [], 0, text.strip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise _malformed(f"unexpected token at position {at + 1}")
        tokens.append((match.lastgroup, match[match.lastgroup]))
        at = match.end()
    return tokens


def _columns(entity: Entity, names: Iterable[str]) -> tuple[str, ...]:
    known = {name.lower(): name for name in readable(entity)}
    columns: list[str] = []
    for name in names:
        if name == "FIELDS(ALL)":
            columns += known.values()
        elif name.lower() in known:
            columns.append(known[name.lower()])
        else:
            raise ApiError("INVALID_FIELD", f"No such column '{name}' on entity '{entity.name}'.")
    return tuple(columns)


def _comparable(value: Any) -> Any:
    """Texts compare without regard to case, as in SOQL; 18-character ids stay distinct so."""
    return value.lower() if isinstance(value, str) else value


def _ordered(compare: Callable[[Any, Any], bool], left: Any, right: Any) -> bool:
    return left is not None and compare(left, right)


def _sort_key(value: Any) -> tuple[bool, Any]:
    return (value is not None, _comparable(value))


def _malformed(message: str) -> ApiError:
    return ApiError("MALFORMED_QUERY", message)
