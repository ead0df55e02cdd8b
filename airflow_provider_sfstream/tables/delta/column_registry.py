"""Columns of a table, and the column names for the fields of a new schema.

A column never changes its type: a field whose type differs gets its own column, named after the new type
(``Amount__c__string``). Structs only grow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from airflow_provider_sfstream.tables.decode.avro_columns import ColumnType


@dataclass
class ColumnRegistry:
    """Columns by name, in the order of registration. Names are compared without case, as in Spark."""

    columns: dict[str, ColumnType] = field(default_factory=dict)

    def place(self, wanted: Iterable[tuple[str, ColumnType]], reserved: Iterable[str]) -> tuple[str, ...]:
        """Return a column for each field of one source, in order, and register new columns.

        :param wanted: name and type of each field. No two fields share a column.
        :param reserved: names that no field may have as a column.
        """
        taken = {name.lower() for name in reserved}
        spellings = {column.lower(): column for column in self.columns}
        placed: list[str] = []
        for name, type_ in wanted:
            placed.append(self._place(name, type_, taken, spellings))
            taken.add(placed[-1].lower())
        return tuple(placed)

    def _place(self, name: str, type_: ColumnType, taken: set[str], spellings: dict[str, str]) -> str:
        for candidate in _candidates(name, type_):
            if candidate.lower() in taken:
                continue
            column = spellings.setdefault(candidate.lower(), candidate)
            merged = merge_types(self.columns.get(column, type_), type_)
            if merged is not None:
                self.columns[column] = merged
                return column
        raise AssertionError("unreachable: candidates never end")


def merge_types(old: ColumnType, new: ColumnType) -> ColumnType | None:
    """Return the type that holds values of both, or ``None``: equal types, and structs with equal common members."""
    if old == new:
        return old
    if not isinstance(old, dict) or not isinstance(new, dict) or old.keys() != new.keys():
        return None
    ((kind, inside),) = old.items()
    other = new[kind]
    if kind != "struct":
        item = merge_types(inside, other)
        return None if item is None else {kind: item}
    members = dict(inside)
    spelling = {name.lower(): name for name in inside}
    for name, type_ in other.items():
        if spelling.setdefault(name.lower(), name) != name:
            return None
        merged = merge_types(members.get(name, type_), type_)
        if merged is None:
            return None
        members[name] = merged
    return {"struct": members}


def type_of_spark(type_: Any) -> ColumnType:
    """Return the column type of a type in the JSON form of Spark's own schemas."""
    if isinstance(type_, str):
        return {"integer": "int"}.get(type_, type_)
    if type_["type"] == "struct":
        return {"struct": {member["name"]: type_of_spark(member["type"]) for member in type_["fields"]}}
    if type_["type"] == "array":
        return {"array": type_of_spark(type_["elementType"])}
    return {"map": type_of_spark(type_["valueType"])}


def _candidates(name: str, type_: ColumnType) -> Iterator[str]:
    suffixed = f"{name}__{type_ if isinstance(type_, str) else next(iter(type_))}"
    yield from (name, suffixed)
    yield from (f"{suffixed}_{number}" for number in count(2))
