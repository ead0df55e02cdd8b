"""Masked, hashed and excluded fields. All other values are the same as without rules."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.privacy.field_rules import NO_RULES, FieldRules
from airflow_provider_sfstream.tables.decode.self_described import Field
from airflow_provider_sfstream.tables.delta.column_registry import ColumnRegistry
from airflow_provider_sfstream.tables.event_log.table_plans import TableSources, check_columns, place, place_columns
from airflow_provider_sfstream.tables.replica.snapshots import ComputedColumns, TableState
from airflow_provider_sfstream.tables.replica.table_fields import treatment_of, under_rules
from airflow_provider_sfstream.tables.replica.table_schemas import TableSchema
from airflow_provider_sfstream.tables.rows.change_batches import ChangePlan, change_rows
from airflow_provider_sfstream.tables.rows.event_batches import (
    SchemaPlan,
    TablePlan,
    WindowReference,
    decode_rows,
)
from airflow_provider_sfstream.tables.rows.hidden_values import (
    coverage_of,
    hidden_columns,
    hidden_fields,
    shown,
    stored,
)
from airflow_provider_sfstream.tables.rows.replica_columns import TABLE_ENVELOPE, replica_columns
from sfstream_localorg.records.entities import STANDARD_ENTITIES
from tests.support.change_events import encode_events, random_event

SCHEMA = STANDARD_ENTITIES[0].schema()
TEXT = json.dumps(SCHEMA)
KEY = "a key of sixteen or more characters"
TOPIC = "/data/AccountChangeEvent"
NAMES = ("Phone", "Name", "Name.LastName", "FirstName", "BillingAddress", "BillingAddress.Street", "BillingCity")
NUMBERS = ("NumberOfEmployees", "AnnualRevenue", "BillingAddress.Latitude", "Account.Website", "Nowhere__c")


def landed(payloads: list[bytes]) -> pa.RecordBatch:
    count = len(payloads)
    columns = {
        "ordinal": pa.array(range(count), pa.int64()),
        "replay_id": pa.array([number.to_bytes(8, "big") for number in range(count)], pa.binary()),
        "event_id": pa.nulls(count, pa.string()),
        "schema_id": pa.array(["a"] * count, pa.string()),
        "payload": pa.array(payloads, pa.binary()),
        "received_at": pa.array([0] * count, pa.timestamp("us", tz="UTC")),
        "window": pa.array([0] * count, pa.int32()),
        "format": pa.array(["avro"] * count, pa.string()),
    }
    return pa.RecordBatch.from_pydict(columns)


def change_plan(rules: FieldRules) -> ChangePlan:
    hidden = hidden_columns(coverage_of(rules, "Account", (TEXT,)), TEXT)
    registry = ColumnRegistry()
    fields = [(column.name, column.type) for column in replica_columns(TEXT)]
    names = place("Account", fields, hidden, registry, TABLE_ENVELOPE)
    return ChangePlan(registry.columns, {"a": SchemaPlan(TEXT, names, hidden)}, (1,), rules=rules)


def changes(rules: FieldRules, payloads: list[bytes]) -> Iterator[tuple[dict[str, Any], set[str]]]:
    """Yield each change row, and the columns that it sets."""
    plan = change_plan(rules)
    names = list(plan.columns)
    for batch in change_rows(plan, lambda _: None)(iter([landed(payloads)])):
        batch.validate(full=True)
        for row in batch.to_pylist():
            bits = sum((word % (1 << 64)) << (64 * at) for at, word in enumerate(row.pop("_set")))
            yield row, {name for at, name in enumerate(names) if bits >> at & 1}


def log_rows(rules: FieldRules, payloads: list[bytes], table: str = "AccountChangeEvent") -> list[dict[str, Any]]:
    sources = TableSources(schemas={"a": TEXT})
    columns, schemas, fields = place_columns(table, sources, ColumnRegistry(), rules)
    window = WindowReference("w", "00D", TOPIC, has_rules=bool(rules))
    plan = TablePlan(columns, schemas, fields, (window,), rules=rules)
    return [row for batch in decode_rows(landed(payloads), plan).rows for row in batch.to_pylist()]


def expected(rules: FieldRules, name: str, value: Any, how: str | None) -> Any:
    if how is None or value is None:
        return value
    return rules.text(value, how) if isinstance(value, str) else None  # type: ignore[arg-type]


@given(st.data())
@settings(deadline=None, max_examples=6)
def test_change_rows_differ_only_in_protected_fields(data: st.DataObject) -> None:
    hows = {name: data.draw(st.sampled_from(("", "", "exclude", "mask", "hash"))) for name in (*NAMES, *NUMBERS)}
    rules = FieldRules.from_arguments(
        *([name for name in hows if hows[name] == how] for how in ("exclude", "mask", "hash")), KEY
    )
    shape = random.Random(data.draw(st.integers(0, 1 << 30)))
    payloads = encode_events(SCHEMA, [random_event(SCHEMA, shape) for _ in range(12)])
    plan = change_plan(rules)
    names, (schema,) = [column.name for column in replica_columns(TEXT)], plan.schemas.values()
    treated = dict(zip(names, hidden_columns(coverage_of(rules, "Account", (TEXT,)), TEXT), strict=True))
    left_out = {name for name, how in treated.items() if how == "exclude"}
    assert left_out == {name for name, column in zip(names, schema.columns, strict=True) if column is None}
    for (row, sets), (clear, sets_clear) in zip(changes(rules, payloads), changes(NO_RULES, payloads), strict=True):
        assert sets == sets_clear - left_out
        assert row.keys() == clear.keys() - left_out
        for name, value in row.items():
            assert value == expected(rules, name, clear[name], treated.get(name)), name  # type: ignore[arg-type]


def test_rule_covers_its_parts_under_each_name() -> None:
    def left_out(*names: str) -> set[str]:
        hidden = hidden_columns(coverage_of(FieldRules.from_arguments(names, [], []), "Account", (TEXT,)), TEXT)
        return {c.name for c, how in zip(replica_columns(TEXT), hidden, strict=True) if how == "exclude"}

    assert left_out("BillingAddress.Street") == left_out("BillingStreet") == left_out("Account.BillingStreet")
    assert left_out("BillingStreet") == {"BillingStreet"}
    assert {"BillingStreet", "BillingCity"} < left_out("BillingAddress")
    assert {"Name", "FirstName", "LastName"} <= left_out("Name")
    assert left_out("Contact.Phone", "Contact.BillingStreet") == set()
    assert left_out("AccountChangeEvent.Phone") == {"Phone"}


@pytest.mark.parametrize("name", ["BillingStreet", "BillingAddress.Street", "Account.BillingStreet"])
def test_event_log_protects_the_same_fields_in_its_structs(name: str) -> None:
    shape = random.Random(3)
    payloads = encode_events(SCHEMA, [random_event(SCHEMA, shape, "CREATE") for _ in range(20)])
    rules = FieldRules.from_arguments([name], ["Phone", "AnnualRevenue"], ["Website"], KEY)
    found, clear = log_rows(rules, payloads), log_rows(NO_RULES, payloads)
    assert any(row["BillingAddress"] and row["BillingAddress"]["Street"] for row in clear)
    assert any(row["Phone"] for row in clear)
    for row, without in zip(found, clear, strict=True):
        want = copy.deepcopy(without)
        if want["BillingAddress"]:
            del want["BillingAddress"]["Street"]
        want["Phone"] = want["Phone"] and "***"
        want["AnnualRevenue"] = None
        want["Website"] = expected(rules, "Website", want["Website"], "hash")
        assert row == want


def test_struct_without_remaining_members_has_no_column() -> None:
    payloads = encode_events(SCHEMA, [random_event(SCHEMA, random.Random(1), "CREATE")])
    (row,) = log_rows(FieldRules.from_arguments(["ShippingAddress", "Name"], [], []), payloads)
    assert not row.keys() & {"ShippingAddress", "Name", "Name_record"}


def test_protection_handles_struct_slices_and_nulls() -> None:
    rules = FieldRules.from_arguments([], [], ["A"], KEY)
    values = pa.array([{"A": "x", "B": 1}, None, {"A": None, "B": 2}, {"A": "y", "B": None}])[1:]
    assert stored(values, {"A": "hash", "B": None}, rules).to_pylist() == [
        None,
        {"A": None, "B": 2},
        {"A": rules.text("y", "hash"), "B": None},
    ]
    assert stored(pa.array([], pa.string()), "hash", rules).to_pylist() == []


@pytest.mark.parametrize("has_rules", [False, True])
def test_quarantine_stores_payloads_only_without_field_protection(has_rules: bool) -> None:
    payload = b"\x00secret of a person"
    window = WindowReference("w", "00D", TOPIC, has_rules=has_rules)
    rules = FieldRules.from_arguments(["Phone"], [], []) if has_rules else NO_RULES
    sources = TableSources(schemas={"a": TEXT})
    columns, schemas, fields = place_columns("AccountChangeEvent", sources, ColumnRegistry(), rules)
    plan = TablePlan(columns, schemas, fields, (window,), rules=rules)
    of_record = encode_events(SCHEMA, [random_event(SCHEMA, random.Random(1), "CREATE") | {}])[0]
    unusable = copy.deepcopy(random_event(SCHEMA, random.Random(1), "CREATE"))
    unusable["ChangeEventHeader"]["recordIds"] = ["Ada Lovelace"]
    unreadable: list[dict[str, Any]] = []
    changed = replace(change_plan(rules), windows=(window,))
    make = change_rows(changed, lambda _: None, lambda batch: unreadable.extend(batch.to_pylist()))
    assert list(make(iter([landed([payload, *encode_events(SCHEMA, [unusable])])]))) == []
    rows = [
        *(row for batch in decode_rows(landed([payload, of_record]), plan).quarantined for row in batch.to_pylist()),
        *unreadable,
    ]
    assert [row["replay_id"][-1] for row in rows] == [0, 0, 1]
    assert all(row["reason"] for row in rows)
    assert ("Ada" in rows[2]["reason"]) is not has_rules
    assert [row["payload"] is None for row in rows] == [has_rules] * 3


def test_stored_columns_of_newly_protected_fields_are_found() -> None:
    columns = {"Phone": "string", "Fax__double": "double", "A": {"struct": {"B": "string", "C": "long"}}}
    now = coverage_of(FieldRules.from_arguments(["Phone", "Fax", "A.B", "New__c"], [], []), "Order__e")
    before = coverage_of(FieldRules.from_arguments(["Phone"], [], []), "Order__e")
    assert shown(columns, now, before) == ["A.B", "Fax"]
    assert shown({"Phone": "string", "Phone__c": "string"}, now, before) == []


def test_replica_records_the_columns_of_its_rules() -> None:
    rules = FieldRules.from_arguments(["BillingAddress.Street", "Full_Name__c"], ["Name.FirstName"], ["Email__c"], KEY)
    table = under_rules("Account", TableState("stream"), rules, [TEXT])
    schema = TableSchema.from_json(table.schema.to_json(), "here")
    assert schema == table.schema
    again = replace(table, hidden=schema.hidden)
    assert KEY not in repr(table)
    assert treatment_of("Account", again, "BillingStreet", is_computed=False) == "exclude"
    assert treatment_of("Account", again, "FirstName", is_computed=False) == "mask"
    assert treatment_of("Account", again, "full_name__c", is_computed=True) == "exclude"
    assert treatment_of("Account", again, "Email__c__string", is_computed=False) == "hash"
    assert treatment_of("Account", again, "Phone", is_computed=True) is None
    assert treatment_of("Account", again, "Name", is_computed=True) == "mask"


@pytest.mark.parametrize(
    ("rule", "field"),
    [
        ("BillingStreet", "billingaddress"),
        ("BillingAddress.Street", "billingstreet"),
        ("BillingAddress", "billingstreet"),
        ("Accounts.ShippingAddress", "shippinglongitude"),
        ("FirstName", "name"),
        ("Name", "lastname"),
        ("Home__c", "home__street__s"),
        ("Home__Latitude__s", "home__c"),
        ("Home__c.Latitude", "home__latitude__s"),
    ],
)
def test_self_describing_events_protect_compound_fields_under_each_name(rule: str, field: str) -> None:
    """PushTopic events have the fields of their query. Change events without a schema have JSON objects."""
    rules = FieldRules.from_arguments([], [rule], [])
    fields = (Field(field, "string"), Field("billingcycle__c", "string"), Field("employer__latitude__s", "double"))
    assert hidden_fields(coverage_of(rules, "Accounts"), fields) == ("mask", None, None)


@pytest.mark.parametrize(
    ("rule", "column"),
    [
        ("Name", "MiddleName"),
        ("Name.Suffix", "Suffix"),
        ("MiddleName", "Name"),
        ("Name.MiddleName", "Name"),
        ("ShippingAddress", "ShippingGeocodeAccuracy"),
        ("Home__c", "Home__Street__s"),
        ("Account.Home__c.Street", "Home__Street__s"),
        ("AccountChangeEvent.Full_Name__c", "Full_Name__c"),
    ],
)
def test_refresh_protects_parts_that_events_lack(rule: str, column: str) -> None:
    """Salesforce describes parts that the change events of an org do not have, such as middle names."""
    schema = copy.deepcopy(SCHEMA)
    schema["fields"] = [each for each in schema["fields"] if each["name"] != "ShippingAddress"]
    rules = FieldRules.from_arguments([rule], [], [])
    table = under_rules("Account", TableState("stream"), rules, [json.dumps(schema)])
    assert treatment_of("Account", table, column, is_computed=True) == "exclude"
    assert treatment_of("Account", table, "Phone", is_computed=True) is None


@pytest.mark.parametrize(
    ("column", "rule"),
    [
        ("Name_record", "FirstName"),
        ("BillingAddress__struct", "BillingStreet"),
        ("BillingAddress__struct_2", "BillingAddress"),
        ("Phone__string_2", "Phone"),
    ],
)
def test_columns_that_are_named_after_their_type_have_the_rules_of_their_field(column: str, rule: str) -> None:
    members: dict[str, Any] = {"FirstName": "string", "Street": "string"}
    columns = {column: "string" if column.startswith("Phone") else {"struct": members}}
    now, before = (
        coverage_of(rules, "AccountChangeEvent", [TEXT])
        for rules in (FieldRules.from_arguments([rule], [], []), NO_RULES)
    )
    assert shown(columns, now, before)


def test_rule_for_a_part_is_refused_if_the_table_stores_its_compound_text() -> None:
    rules = FieldRules.from_arguments(["MiddleName"], [], [])
    computed = ComputedColumns(("Name",), "2026-01-01T00:00:00+00:00")
    table = TableState("stream", columns={"Name": "string"}, computed=computed)
    with pytest.raises(ConfigurationError, match="Account contains unprotected values of Name"):
        under_rules("Account", table, rules, [TEXT])
    sources = TableSources(fields={"push_topic": {Field("name", "string"): "Name"}})
    with pytest.raises(ConfigurationError, match="Accounts contains unprotected values of Name"):
        check_columns("Accounts", sources, ColumnRegistry({"Name": "string"}), NO_RULES, rules)
