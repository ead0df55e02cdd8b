"""Random rules for compound fields: each part is protected under all its names, in events and in refreshes."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_sfstream.privacy.field_rules import FieldRules
from airflow_provider_sfstream.tables.decode.avro_columns import members_of
from airflow_provider_sfstream.tables.decode.self_described import Field
from airflow_provider_sfstream.tables.replica.snapshots import TableState
from airflow_provider_sfstream.tables.replica.table_fields import treatment_of, under_rules
from airflow_provider_sfstream.tables.rows.hidden_values import (
    coverage_of,
    hidden_columns,
    hidden_fields,
    hidden_members,
)
from airflow_provider_sfstream.tables.rows.replica_columns import replica_columns
from tests.support.compound_people import COMPOUNDS, ENTITIES, Column, protected, random_rules, rules_of

SCHEMAS = {name: json.dumps(entity.schema()) for name, entity in ENTITIES.items()}


def in_events(rules: FieldRules) -> Iterator[Column]:
    """Yield the parts that have a treatment in the structs of an event log."""
    for entity, text in SCHEMAS.items():
        hidden = hidden_members(coverage_of(rules, f"{entity}ChangeEvent", [text]), text)
        for member, how in zip(members_of(text), hidden, strict=True):
            for part, column in COMPOUNDS[entity].get(member.field, {}).items():
                if how is not None and (not isinstance(how, dict) or how.get(part) is not None):
                    yield entity, column


def in_replicas(rules: FieldRules) -> Iterator[Column]:
    """Yield the columns that have a treatment in the change rows of a replica."""
    for entity, text in SCHEMAS.items():
        hidden = hidden_columns(coverage_of(rules, entity, [text]), text)
        columns = [each.name for each in replica_columns(text)]
        yield from ((entity, column) for column, how in zip(columns, hidden, strict=True) if how)


def in_refreshes(rules: FieldRules) -> Iterator[Column]:
    """Yield the fields that have a treatment when a refresh fetches them."""
    for entity, text in SCHEMAS.items():
        table = under_rules(entity, TableState("stream"), rules, [text])
        for column in {"Name", *(column for parts in COMPOUNDS[entity].values() for column in parts.values())}:
            if treatment_of(entity, table, column, is_computed=column not in ENTITIES[entity].columns):
                yield entity, column


def in_json(rules: FieldRules, *, flat: bool) -> Iterator[Column]:
    """Yield the parts that have a treatment in self-describing events."""
    for entity, compounds in COMPOUNDS.items():
        table = entity if flat else f"{entity}ChangeEvent"
        for compound, parts in compounds.items():
            for column in parts.values():
                field = Field((column if flat else compound).lower(), "string")
                (how,) = hidden_fields(coverage_of(rules, table), [field])
                if how is not None:
                    yield entity, column


@settings(max_examples=6)
@given(st.integers(0, 1 << 30))
def test_every_part_is_protected_under_each_name(seed: int) -> None:
    chosen = random_rules(random.Random(seed))
    rules, wanted = rules_of(chosen), protected([name for name, _ in chosen])
    carried = {(entity, column) for entity, each in ENTITIES.items() for column in each.columns}
    parts = {(name, column) for name in COMPOUNDS for each in COMPOUNDS[name].values() for column in each.values()}
    assert wanted & carried <= {*in_replicas(rules)}
    assert set(in_replicas(rules)) <= wanted
    assert wanted & carried & parts == set(in_events(rules)) & carried
    assert wanted <= set(in_refreshes(rules))
    assert set(in_refreshes(rules)) - wanted <= {("Contact", "Name")}, "the name is computed from its parts"
    assert wanted & parts <= set(in_json(rules, flat=True))
    assert wanted & parts <= set(in_json(rules, flat=False))


@pytest.mark.parametrize("how", ["exclude", "mask", "hash"])
def test_the_text_of_a_name_has_the_treatment_of_its_parts(how: str) -> None:
    rules = rules_of([("Contact.MiddleName", how)])  # type: ignore[list-item]
    table = under_rules("Contact", TableState("stream"), rules, [SCHEMAS["Contact"]])
    assert treatment_of("Contact", table, "Name", is_computed=True) == how
    assert treatment_of("Contact", table, "LastName", is_computed=False) is None
