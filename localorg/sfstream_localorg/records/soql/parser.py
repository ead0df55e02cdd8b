"""Parser of queries; it returns a :class:`~sfstream_localorg.records.soql.query.Query`. Pure."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

from sfstream_localorg.errors import ApiError
from sfstream_localorg.records.entity import Entity
from sfstream_localorg.records.fields import COMPOUND_TYPES, FIELD_TYPES
from sfstream_localorg.records.soql.conditions import (
    Comparison,
    Condition,
    Conjunction,
    Disjunction,
    Negation,
    Period,
    Test,
    equals,
    like,
    negated,
    one_of,
    ordered,
    parts,
    unescaped,
)
from sfstream_localorg.records.soql.conditions import compared as compared_in
from sfstream_localorg.records.soql.dates import period
from sfstream_localorg.records.soql.fields import EntityLookup, NoEntities, QueryField, fields_of
from sfstream_localorg.records.soql.lexer import Token, Tokens, malformed, unexpected
from sfstream_localorg.records.soql.query import Count, Query
from sfstream_localorg.records.values import from_json

_EPOCH = date(1970, 1, 1)
_DAY = 86_400_000
_DEEPEST = 100
_CONSTANTS = {"TRUE": True, "FALSE": False, "NULL": None}
_NOT_LIKE = ("reference", "multipicklist")


def parse(text: str, entities: EntityLookup, *, now: float | None = None) -> Query:
    """Parse a query.

    :param now: current time for date literals, in seconds since the epoch; ``None`` to refuse date literals.
    :raises ApiError: ``MALFORMED_QUERY``, ``INVALID_TYPE`` or ``INVALID_FIELD``.
    """
    tokens = Tokens(text)
    tokens.expect("SELECT")
    names, counts = _selected(tokens)
    tokens.expect("FROM")
    name = tokens.take("word")
    entity = entities.get(name)
    if entity is None:
        raise ApiError("INVALID_TYPE", f"sObject type '{name}' is not supported.")
    fields = tuple(field for one in names for field in fields_of(entity, entities, one))
    counted = tuple(Count(_field(entity, entities, one), alias) for one, alias in counts)
    conditions = _Conditions(tokens, entity, entities, now)
    condition = conditions.expression() if tokens.accept("WHERE") else Conjunction()
    order = _order(tokens, entity, entities)
    limit = _whole_number(tokens) if tokens.accept("LIMIT") else None
    offset = _whole_number(tokens) if tokens.accept("OFFSET") else 0
    tokens.end()
    if counted and (order or limit is not None or offset):
        clause = "ORDER BY" if order else "LIMIT"
        raise malformed(f"Non-grouped query that uses overall aggregate functions cannot also use {clause}")
    return Query(entity, fields, counted, condition, order, limit, offset)


def parse_conditions(text: str, entity: Entity) -> tuple[Condition, frozenset[str]]:
    """Parse comparisons joined by ``AND``; return the condition and the columns that it compares.

    :raises ApiError: ``MALFORMED_QUERY`` or ``INVALID_FIELD``.
    """
    condition, compared = parse_where(text, entity)
    for part in parts(condition):
        if isinstance(part, Disjunction | Negation) or (isinstance(part, Comparison) and part.operator == "LIKE"):
            raise malformed("only comparisons that AND joins can stand here, and LIKE is none of them")
    return condition, compared


def parse_where(text: str, entity: Entity) -> tuple[Condition, frozenset[str]]:
    """Parse the condition of a ``WHERE`` clause without date literals and parents; return it and its columns.

    :raises ApiError: ``MALFORMED_QUERY`` or ``INVALID_FIELD``.
    """
    tokens = Tokens(text)
    condition = _Conditions(tokens, entity, NoEntities(), None).expression()
    tokens.end()
    return condition, compared_in(condition)


def _selected(tokens: Tokens) -> tuple[list[str], list[tuple[str, str]]]:
    """Parse the ``SELECT`` list; return selected names, and counted names with aliases (none for ``COUNT()``)."""
    names: list[str] = []
    counts: list[tuple[str, str]] = []
    counts_all = False
    while True:
        name = tokens.next()
        if name.kind != "word":
            raise unexpected(name)
        if not tokens.accept("("):
            names.append(name.text)
        elif name.keyword == "FIELDS":
            names.append(f"FIELDS({tokens.take('word')})".upper())
            tokens.expect(")")
        elif name.keyword != "COUNT":
            raise unexpected(name)
        elif tokens.accept(")"):
            counts_all = True
        else:
            counted = tokens.take("word")
            tokens.expect(")")
            alias = f"expr{len(counts)}" if tokens.peek() in (",", "FROM") else tokens.take("word")
            counts.append((counted, alias))
        if not tokens.accept(","):
            break
    if counts_all and (names or counts):
        raise malformed("COUNT() cannot be selected together with anything else")
    if names and counts:
        raise malformed(f"Field must be grouped or aggregated: {names[0]}")
    return names, counts


def _order(tokens: Tokens, entity: Entity, entities: EntityLookup) -> tuple[tuple[QueryField, bool], ...]:
    order: list[tuple[QueryField, bool]] = []
    if tokens.accept("ORDER"):
        tokens.expect("BY")
        while not order or tokens.accept(","):
            field = _field(entity, entities, tokens.take("word"))
            descending = tokens.accept("DESC")
            if not descending:
                tokens.accept("ASC")
            order.append((field, descending))
    return tuple(order)


def _whole_number(tokens: Tokens) -> int:
    token = tokens.next()
    if not token.text.isdigit():
        raise unexpected(token)
    return int(token.text)


def _field(entity: Entity, entities: EntityLookup, name: str) -> QueryField:
    (field,) = fields_of(entity, entities, name)
    return field


class _Conditions:
    """Parser of conditions. As at Salesforce, ``NOT`` precedes one comparison or parentheses, and is not combined."""

    def __init__(self, tokens: Tokens, entity: Entity, entities: EntityLookup, now: float | None) -> None:
        self._tokens = tokens
        self._entity = entity
        self._entities = entities
        self._now = now
        self._depth = 0

    def expression(self) -> Condition:
        """Parse conditions joined by ``AND`` or by ``OR``; a mixture requires parentheses.

        :raises ApiError: ``MALFORMED_QUERY`` or ``INVALID_FIELD``.
        """
        if self._tokens.accept("NOT"):
            return Negation(self._term())
        conditions = [self._term()]
        joint = self._tokens.peek()
        if joint not in ("AND", "OR"):
            return conditions[0]
        while self._tokens.accept(joint):
            conditions.append(self._term())
        if self._tokens.peek() in ("AND", "OR"):
            raise unexpected(self._tokens.next())
        return Conjunction(tuple(conditions)) if joint == "AND" else Disjunction(tuple(conditions))

    def _term(self) -> Condition:
        if self._tokens.peek() == "NOT":
            raise unexpected(self._tokens.next())
        if not self._tokens.accept("("):
            return self._comparison()
        self._depth += 1
        if self._depth > _DEEPEST:
            raise malformed(f"more than {_DEEPEST} parentheses in each other are not modelled by the local org")
        condition = self.expression()
        self._depth -= 1
        self._tokens.expect(")")
        return condition

    def _comparison(self) -> Comparison:
        field = _field(self._entity, self._entities, self._tokens.take("word"))
        if field.kind in COMPOUND_TYPES:
            raise ApiError("INVALID_FIELD", f"field '{field.name}' can not be filtered in a query call")
        sign = self._tokens.next()
        if sign.keyword == "NOT":
            self._tokens.expect("IN")
            return Comparison(field, "NOT IN", negated(one_of(self._list(field))))
        if sign.keyword == "IN":
            return Comparison(field, "IN", one_of(self._list(field)))
        if sign.keyword == "LIKE":
            return Comparison(field, "LIKE", self._like(field))
        if sign.kind != "sign":
            raise unexpected(sign)
        return Comparison(field, sign.text, self._compared(field, sign))

    def _compared(self, field: QueryField, sign: Token) -> Test:
        value = self._value(field)
        if sign.text == "=":
            return equals(value)
        if sign.text in ("!=", "<>"):
            return negated(equals(value))
        if sign.text not in ("<", "<=", ">", ">=") or value is None:
            raise unexpected(sign)
        return ordered(sign.text, value)

    def _like(self, field: QueryField) -> Test:
        kind = FIELD_TYPES[field.kind]
        if kind.avro != "string" or kind.describe in _NOT_LIKE:
            raise ApiError("INVALID_FIELD", f"{field.name} LIKE: invalid operator on a field of type {kind.describe}")
        return like(self._tokens.take("text")[1:-1])

    def _list(self, field: QueryField) -> list[Any]:
        values: list[Any] = []
        self._tokens.expect("(")
        while not values or self._tokens.accept(","):
            values.append(self._value(field))
        self._tokens.expect(")")
        return values

    def _value(self, field: QueryField) -> Any:
        token = self._tokens.next()
        if token.kind == "word" and token.keyword in _CONSTANTS:
            return _CONSTANTS[token.keyword]
        readers: dict[str, Callable[[QueryField, Token], Any]] = {
            "word": self._period,
            "period": self._period,
            "text": _text,
            "number": _literal,
            "moment": _literal,
        }
        if token.kind not in readers:
            raise unexpected(token)
        return readers[token.kind](field, token)

    def _period(self, field: QueryField, token: Token) -> Period:
        if self._now is None:
            raise malformed(f"unexpected token: '{token.text}' (a date literal is not modelled here by the local org)")
        try:
            found = period(token.text, datetime.fromtimestamp(self._now, UTC).date())
        except ValueError:
            raise malformed(f"date literal out of range: '{token.text}'") from None
        if found is None:
            raise unexpected(token)
        kind = FIELD_TYPES[field.kind].describe
        if kind not in ("date", "datetime"):
            raise ApiError(
                "INVALID_FIELD", f"value of filter criterion for field '{field.name}' must be of type {kind}"
            )
        start, end = ((day - _EPOCH).days * _DAY for day in found)
        return Period(start, end)


def _text(field: QueryField, token: Token) -> Any:
    text = unescaped(token.text[1:-1])
    return from_json(field.column, field.kind, text) if text else None


def _literal(field: QueryField, token: Token) -> Any:
    return from_json(field.column, field.kind, token.text)
