"""Accounts and contacts with unique values in all compound fields, and all names of the parts of these fields.

This module does not use the package's names: it lists each name that a field protection rule may have, with the
columns that the rule protects.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from airflow_provider_sfstream.privacy.field_rules import FieldRules
from sfstream_localorg.records.entities import STANDARD_ENTITIES
from sfstream_localorg.records.entity import Entity
from sfstream_localorg.records.fields import Field

KEY = "a key of sixteen or more characters"
Treatment = Literal["exclude", "mask", "hash"]
ENTITIES: dict[str, Entity] = {
    each.name: each.with_field(Field("Home__c", "Address")).with_field(Field("Place__c", "Location"))
    for each in STANDARD_ENTITIES
    if each.name in ("Account", "Contact")
}
_LACKING = {"Name": {"MiddleName": "MiddleName"}, "Work__c": {"Street": "Work__Street__s", "City": "Work__City__s"}}
"""Parts that are in an org's object descriptions and not in its change events, by compound field."""
Column = tuple[str, str]
"""Name of an object and SOQL name of one of its fields."""


def _compounds(entity: Entity) -> dict[str, dict[str, str]]:
    """Return the columns of an object by compound field and part."""
    found: dict[str, dict[str, str]] = {}
    for name, (compound, columns) in entity.compounds.items():
        assert compound.compound is not None
        found[name] = {part: column for (part, _), column in zip(compound.compound.parts, columns, strict=True)}
    return {name: found.get(name, {}) | _LACKING.get(name, {}) for name in (*found, *(_LACKING.keys() - found))}


COMPOUNDS = {name: _compounds(entity) for name, entity in ENTITIES.items()}


def _names() -> dict[str, frozenset[Column]]:
    names: defaultdict[str, set[Column]] = defaultdict(set)
    for entity, compounds in COMPOUNDS.items():
        for prefix in ("", f"{entity}.", f"{entity}ChangeEvent."):
            for compound, parts in compounds.items():
                names[f"{prefix}{compound}"] |= {(entity, column) for column in parts.values()}
                for part, column in parts.items():
                    names[f"{prefix}{compound}.{part}"].add((entity, column))
                    names[f"{prefix}{column}"].add((entity, column))
            names[f"{prefix}Name"].add((entity, "Name"))
    return {name: frozenset(columns) for name, columns in names.items()}


NAMES = _names()
"""Each name that a rule may have, with the columns that the rule protects."""


def rules_of(chosen: Sequence[tuple[str, Treatment]]) -> FieldRules:
    """Return field protection rules for names with their treatments."""
    return FieldRules.from_arguments(
        *([name for name, how in chosen if how == each] for each in get_args(Treatment)), KEY
    )


def random_rules(shape: random.Random) -> list[tuple[str, Treatment]]:
    """Return a few names, some in upper or lower case, each with a random treatment."""
    names = shape.sample(sorted(NAMES), shape.randint(1, 5))
    spelled = (shape.choice((name, name, name.upper(), name.lower())) for name in names)
    return [(name, shape.choice(get_args(Treatment))) for name in spelled]


def protected(names: Collection[str]) -> set[Column]:
    """Return the columns that rules with these names protect."""
    by_lower = {name.lower(): columns for name, columns in NAMES.items()}
    return {column for name in names for column in by_lower[name.lower()]}


@dataclass
class People:
    """Records of random values. Each value is in only one column of one record.

    ``marks`` has all values of each column, ``stored`` those that tables without rules contain.
    """

    shape: random.Random
    marks: defaultdict[Column, list[str]] = field(default_factory=lambda: defaultdict(list))
    stored: defaultdict[Column, list[str]] = field(default_factory=lambda: defaultdict(list))

    def record(self, entity: str, *, is_person: bool = True, is_stored: bool = True) -> dict[str, Any]:
        """Return values of all parts that change events have. A business account has one text as its name."""
        values: dict[str, Any] = {}
        types = {name: column.type for name, column in ENTITIES[entity].columns.items()}
        for compound, parts in COMPOUNDS[entity].items():
            if compound == "Name" and not is_person:
                values["Name"] = self._mark((entity, "Name"), "Text", is_stored)
                continue
            for column in parts.values():
                if column in types:
                    values[column] = self._mark((entity, column), types[column], is_stored)
        return values

    def described(self, entity: str, record: dict[str, Any]) -> dict[str, str]:
        """Return a record as a query returns it: with the parts that change events lack, and a person's full name."""
        values = {name: str(value) for name, value in record.items()}
        for column in (column for parts in _LACKING.values() for column in parts.values()):
            values[column] = self._mark((entity, column), "Text", False)
        if "Name" not in values:
            values["Name"] = " ".join(values[part] for part in ("Salutation", "FirstName", "MiddleName", "LastName"))
        return values

    def _mark(self, column: Column, type_: str, is_stored: bool) -> Any:
        value = (
            self.shape.randrange(10**9, 9 * 10**9) / 10**8
            if type_ == "Double"
            else f"q{self.shape.getrandbits(64):016x}z"
        )
        self.marks[column].append(str(value))
        if is_stored:
            self.stored[column].append(str(value))
        return value
