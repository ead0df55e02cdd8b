from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_sfstream.tables.delta.column_registry import ColumnRegistry
from airflow_provider_sfstream.tables.rows.change_batches import (
    ChangePlan,
    TableFlag,
    change_rows,
    transactions,
)
from airflow_provider_sfstream.tables.rows.event_batches import SchemaPlan, WindowReference
from airflow_provider_sfstream.tables.rows.replica_columns import CHANGE_ENVELOPE, TABLE_ENVELOPE, replica_columns
from sfstream_localorg.records.entities import STANDARD_ENTITIES
from sfstream_localorg.records.fields import Field
from tests.support.change_events import (
    COMMITTED,
    Record,
    captured_schema,
    encode_events,
    expected_changes,
    random_event,
)
from tests.support.decoders import LIBRARIES, decoding_with

ACCOUNT = STANDARD_ENTITIES[0]
ONE, TWO = "001000000000001AAA", "001000000000002AAA"
SCHEMA = ACCOUNT.schema()
LATER = ACCOUNT.with_field(Field("Added__c", "DateOnly")).schema()
FIRST = (1, 1001, 2001)
MOMENT = datetime(2026, 1, 10, 1, 2, 3, 4000, tzinfo=UTC)
BLANK: Record = {field["name"]: None for field in SCHEMA["fields"][1:]}

Landed = tuple[str, int, int, bytes]
"""Schema id, window, ordinal, payload."""


def plan_of(schemas: dict[str, Record]) -> ChangePlan:
    registry, placed = ColumnRegistry(), {}
    for schema_id, schema in schemas.items():
        fields = [(column.name, column.type) for column in replica_columns(json.dumps(schema))]
        columns = registry.place(fields, reserved=TABLE_ENVELOPE)
        placed[schema_id] = SchemaPlan(json.dumps(schema), columns, (None,) * len(columns))
    return ChangePlan(registry.columns, placed, FIRST)


def replay_id(window: int, ordinal: int) -> bytes:
    return (window * 1000 + ordinal).to_bytes(8, "big") + b"\0\0"


def landed(rows: Sequence[Landed]) -> pa.RecordBatch:
    """Return rows in the form of ``landed_windows.read_rows``."""
    columns = {
        "ordinal": pa.array([row[2] for row in rows], pa.int64()),
        "replay_id": pa.array([replay_id(row[1], row[2]) for row in rows], pa.binary()),
        "event_id": pa.nulls(len(rows), pa.string()),
        "schema_id": pa.array([row[0] for row in rows], pa.string()),
        "payload": pa.array([row[3] for row in rows], pa.binary()),
        "received_at": pa.array([MOMENT] * len(rows), pa.timestamp("us", tz="UTC")),
        "window": pa.array([row[1] for row in rows], pa.int32()),
        "format": pa.array(["avro"] * len(rows), pa.string()),
    }
    return pa.RecordBatch.from_pydict(columns)


def batches(rows: Sequence[Landed], size: int = 50) -> Iterator[pa.RecordBatch]:
    return (landed(rows[start : start + size]) for start in range(0, len(rows), size))


def changes_of(plan: ChangePlan, rows: Sequence[Landed]) -> tuple[list[Record], list[TableFlag]]:
    """Return the change rows in stream order, ``_set`` as names, and the flags."""
    flags: list[TableFlag] = []
    found: list[Record] = []
    windows = tuple(WindowReference(name, "00D", "/data/AccountChangeEvent") for name in ("one", "two"))
    for batch in change_rows(replace(plan, windows=windows), flags.append)(batches(rows)):
        batch.validate(full=True)
        assert batch.schema == plan.layout
        found += batch.to_pylist()
    names = list(plan.columns)
    for row in found:
        bits = sum((word % (1 << 64)) << (64 * at) for at, word in enumerate(row["_set"]))
        assert len(row["_set"]) == -(-len(names) // 64)
        assert bits >> len(names) == 0
        row["_set"] = {name for at, name in enumerate(names) if bits >> at & 1}
    return sorted(found, key=lambda row: row["_sequence"]), flags


def undecodable(plan: ChangePlan, windows: tuple[WindowReference, ...], rows: Sequence[Landed]) -> list[Record]:
    """Return the quarantine rows of landed rows."""
    found: list[Record] = []
    make = change_rows(replace(plan, windows=windows), lambda _: None, lambda batch: found.extend(batch.to_pylist()))
    for _ in make(batches(rows)):
        pass
    return found


def event(change_type: str = "UPDATE", *, body: Record | None = None, **header: Any) -> Record:
    """Return an event of the Account schema whose other fields are empty."""
    made = random_event(SCHEMA, random.Random(0), change_type)["ChangeEventHeader"]
    made |= {"recordIds": [ONE], "commitTimestamp": COMMITTED, "transactionKey": "key"}
    made |= {"changedFields": [], "nulledFields": [], "diffFields": []} | header
    return {"ChangeEventHeader": made, **BLANK, **(body or {})}


def rows_of(*events: Record) -> list[Landed]:
    return [("a", 0, at, payload) for at, payload in enumerate(encode_events(SCHEMA, events))]


def one(change_type: str = "UPDATE", *, body: Record | None = None, **header: Any) -> Record:
    """Return the single change row of an event."""
    (found,), _ = changes_of(plan_of({"a": SCHEMA}), rows_of(event(change_type, body=body, **header)))
    return found


def schemas_to_try() -> list[Any]:
    names = ("AccountChangeEvent", "ContactChangeEvent")
    missing = pytest.mark.skip("the captured schemas are not available")
    return [
        pytest.param(SCHEMA, id="local"),
        *(
            pytest.param(s, id=n) if (s := captured_schema(n)) else pytest.param(None, id=n, marks=missing)
            for n in names
        ),
    ]


@pytest.mark.parametrize("schema", schemas_to_try())
@pytest.mark.parametrize("library", LIBRARIES)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=3)
def test_change_rows_of_a_batch_equal_those_of_single_events(schema: Record, library: str, seed: int) -> None:
    shape = random.Random(seed)
    payloads = encode_events(schema, [random_event(schema, shape) for _ in range(shape.randrange(20, 120))])
    rows = [("a", shape.randrange(3), ordinal, payload) for ordinal, payload in enumerate(payloads)]
    with decoding_with(library):
        found, _ = changes_of(plan_of({"a": schema}), rows)
    expected = expected_changes(schema, [(p, FIRST[window] + at, replay_id(window, at)) for _, window, at, p in rows])
    assert found == sorted(expected, key=lambda row: row["_sequence"])


@given(seed=st.integers(0, 2**32))
@settings(max_examples=2)
def test_events_of_several_schemas_in_one_batch(seed: int) -> None:
    shape = random.Random(seed)
    other = copy.deepcopy(SCHEMA)  # the type of a field changed, so it has its own column
    next(field for field in other["fields"] if field["name"] == "Site")["type"] = ["null", "double"]
    schemas = {"a": SCHEMA, "b": LATER, "c": other}
    ids = [shape.choice("abc") for _ in range(90)]
    events = {name: [random_event(schemas[name], shape) for _ in range(ids.count(name))] for name in schemas}
    payloads = {name: iter(encode_events(schemas[name], own)) for name, own in events.items()}
    plan = plan_of(schemas)
    assert {"Added__c", "Site", "Site__double"} <= plan.columns.keys()
    rows = [(name, 0, at, next(payloads[name])) for at, name in enumerate(ids)]
    found, _ = changes_of(plan, rows)
    expected = []
    for name, schema in schemas.items():
        own = [(payload, 1 + at, replay_id(0, at)) for schema_id, _, at, payload in rows if schema_id == name]
        for row in expected_changes(schema, own):
            if name == "c":
                row["Site__double"] = row.pop("Site")
                row["_set"] = {"Site__double" if column == "Site" else column for column in row["_set"]}
            expected.append(dict.fromkeys([*CHANGE_ENVELOPE, *plan.columns]) | row)
    assert found == sorted(expected, key=lambda row: row["_sequence"])


def test_events_of_many_records_have_a_row_for_each_record() -> None:
    ids = [f"001{number:012}" for number in range(40_000)]
    several, huge = (
        event(recordIds=ids[:200], changedFields=["0x80"], body={"Phone": "1"}),
        event("DELETE", recordIds=ids),
    )
    plan = plan_of({"a": SCHEMA})
    split = list(change_rows(plan, [].append)(batches(rows_of(several, event(), huge))))
    assert max(map(len, split)) <= 1 << 14
    rows = pa.Table.from_batches(split).sort_by([("_sequence", "ascending"), ("Id", "ascending")])
    assert rows.column("Id").to_pylist() == [*ids[:200], ONE, *ids]
    assert rows.column("_sequence").to_pylist() == [1] * 200 + [2] + [3] * 40_000
    assert rows.column("Phone").to_pylist() == ["1"] * 200 + [None] * 40_001


def test_rows_above_the_smallest_bound_are_one_batch_each() -> None:
    many = event("DELETE", recordIds=[f"001{number:012}" for number in range(50)])
    plan = replace(plan_of({"a": SCHEMA}), batch_bytes=1)
    split = list(change_rows(plan, [].append)(batches(rows_of(many, event()))))
    assert list(map(len, split)) == [2, *[1] * 49], "the first records of all events, and the others"


def test_long_text_of_many_records_is_split_into_batches() -> None:
    """The rows have more than 2 GiB, which no column of one batch can hold."""
    ids, text = [f"001{number:012}" for number in range(17_000)], "x" * 131_072
    long = event("CREATE", recordIds=ids, body={"Description": text})
    rows, largest = 0, 0
    for batch in change_rows(plan_of({"a": SCHEMA}), [].append)(batches(rows_of(long, event()))):
        rows, largest = rows + len(batch), max(largest, batch.nbytes)
    assert rows == len(ids) + 1
    assert largest < 2 * (64 << 20)


@pytest.mark.parametrize(
    ("change_type", "operation", "reason"),
    [
        ("CREATE", "full", None),
        ("UNDELETE", "full", None),
        ("UPDATE", "patch", None),
        ("DELETE", "delete", None),
        ("GAP_CREATE", "gap", "gap"),
        ("GAP_UPDATE", "gap", "gap"),
        ("GAP_DELETE", "gap", "gap"),
        ("GAP_UNDELETE", "gap", "gap"),
        ("SNAPSHOT", "gap", "gap"),
    ],
)
def test_each_change_type_has_its_operation(change_type: str, operation: str, reason: str | None) -> None:
    bits = ["not read"] if change_type != "UPDATE" else []
    found = one(change_type, body={"Phone": "1"}, changedFields=bits, nulledFields=bits)
    assert (found["_operation"], found["_dirty_reason"]) == (operation, reason)
    everything = {column.name for column in replica_columns(json.dumps(SCHEMA))}
    assert found["_set"] == (everything if operation == "full" else set())
    assert found["_commit_time"] == MOMENT
    assert (found["_transaction_key"], found["_replay_id"], found["_sequence"]) == ("key", replay_id(0, 0), 1)


def test_unknown_change_type_is_a_gap() -> None:
    schema = copy.deepcopy(SCHEMA)
    kinds = next(f for f in schema["fields"][0]["type"]["fields"] if f["name"] == "changeType")["type"]
    kinds["symbols"].append("ARCHIVE")
    payload = encode_events(schema, [event("ARCHIVE")])[0]
    (found,), _ = changes_of(plan_of({"a": schema}), [("a", 0, 0, payload)])
    assert (found["_operation"], found["_dirty_reason"]) == ("gap", "gap")


def test_text_difference_is_a_gap() -> None:
    found = one(diffFields=["0x020000"], changedFields=["0x82"], body={"Description": "--- \n+++ 0"})
    assert (found["_operation"], found["_dirty_reason"], found["_set"]) == ("gap", "diff", set())


def test_a_name_may_be_a_text_or_parts() -> None:
    parts = {"Salutation": None, "FirstName": "Ada", "LastName": "L"}
    names = ("Name", "Salutation", "FirstName", "LastName")
    text = one(changedFields=["0x02"], body={"Name": "Acme"})
    assert [text[name] for name in names] == ["Acme", None, None, None]
    assert text["_set"] == set(names)
    person = one(changedFields=["0x02"], body={"Name": parts})
    assert [person[name] for name in names] == [None, None, "Ada", "L"]
    assert person["_set"] == set(names)
    only = one(changedFields=["1-0x02"], body={"Name": parts})
    assert (only["_set"], only["FirstName"]) == ({"FirstName"}, "Ada")
    created = one("CREATE", body={"Name": parts})
    assert [created[name] for name in names] == [None, None, "Ada", "L"]


def test_nulled_fields_are_null_despite_values_in_the_event() -> None:
    address = dict.fromkeys(part["name"] for part in SCHEMA["fields"][5]["type"][1]["fields"])
    body = {"Phone": "1", "Fax": "2", "BillingAddress": {**address, "Street": "S", "City": "C"}}
    found = one(changedFields=["0x180", "5-0x03"], nulledFields=["0x80", "5-0x02"], body=body)
    assert found["_set"] == {"Phone", "Fax", "BillingStreet", "BillingCity"}
    assert [found[name] for name in ("Phone", "Fax", "BillingStreet", "BillingCity")] == [None, "2", "S", None]


def test_values_outside_the_bitmap_are_not_set() -> None:
    found = one(changedFields=["0x80"], body={"Phone": "1", "Fax": "enriched"})
    assert found["_set"] == {"Phone"}


def test_overflow_has_no_row_and_is_flagged() -> None:
    events = event("GAP_OVERFLOW", recordIds=["000000000000000AAA"]), event("GAP_OVERFLOW", recordIds=["001*"]), event()
    found, flags = changes_of(plan_of({"a": SCHEMA}), rows_of(*events))
    assert [row["_sequence"] for row in found] == [3]
    assert flags == [("overflow", COMMITTED, 1), ("overflow", COMMITTED, 2)]


def test_gap_of_all_records_has_no_row_and_is_flagged() -> None:
    events = event(), event("GAP_UPDATE", recordIds=["001*", TWO]), event("GAP_UPDATE", recordIds=["001*"])
    found, flags = changes_of(plan_of({"a": SCHEMA}), rows_of(*events))
    assert [(row["Id"], row["_sequence"]) for row in found] == [(ONE, 1), (TWO, 2)]
    assert flags == [("all_records", COMMITTED, 2), ("all_records", COMMITTED, 3)]


BROKEN: dict[str, Any] = {
    "bitmap": event(changedFields=["0xZZ"]),
    "nulled": event(nulledFields=["text"]),
    "parts of a text": event(changedFields=["7-0x01"]),
    "time": event(commitTimestamp=1 << 60),
    "date": event("CREATE", body={"LastModifiedDate": 1 << 60}),
    "no record": event(recordIds=[]),
    "no id": event(recordIds=[ONE, "x' OR '1"]),
    "an id of another length": event(recordIds=["0010000000000001"]),
    "garbage": None,
}


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("library", LIBRARIES)
def test_only_unreadable_events_are_left_out(broken: str, library: str) -> None:
    good = event("CREATE", body={"Phone": "1"})
    bad = BROKEN[broken]
    payloads = encode_events(SCHEMA, [good] * 5 + ([bad] if bad else []))
    bad_payload = payloads.pop() if bad else b"\xff\xff"
    payloads[1:1], payloads[4:4] = [bad_payload], [bad_payload]
    rows = [("a", at % 2, at, payload) for at, payload in enumerate(payloads)]
    plan = plan_of({"a": SCHEMA})
    windows = tuple(WindowReference(name, "00D", "/data/AccountChangeEvent") for name in ("one", "two"))
    with decoding_with(library):
        found, flags = changes_of(plan, rows)
        quarantined = undecodable(plan, windows, rows)
    assert sorted(row["_sequence"] for row in found) == sorted(FIRST[at % 2] + at for at in (0, 2, 3, 5, 6))
    assert {row["Phone"] for row in found} == {"1"}
    assert flags == []
    assert [(row["ordinal"], row["window_id"], row["payload"]) for row in quarantined] == [
        (1, "two", bad_payload),
        (4, "one", bad_payload),
    ]
    assert all(row["reason"] for row in quarantined)


def test_unreadable_payloads_and_bitmaps_of_one_batch_are_quarantined() -> None:
    broken = event(changedFields=["0xZZ"])
    rows = rows_of(event(), event(), broken, event(), broken, event())
    rows[1] = ("a", 0, 1, b"\xff")
    rows.append(("a", 0, 6, b""))
    plan = plan_of({"a": SCHEMA})
    found, _ = changes_of(plan, rows)
    assert [row["_sequence"] for row in found] == [1, 4, 6]
    window = WindowReference("one", "00D", "/data/AccountChangeEvent")
    quarantined = undecodable(plan, (window,), rows)
    assert [(row["ordinal"], "0xZZ" in row["reason"]) for row in quarantined] == [
        (1, False),
        (2, True),
        (4, True),
        (6, False),
    ]


def test_fully_unreadable_batch_has_no_change_rows() -> None:
    plan = plan_of({"a": SCHEMA})
    for bad in (b"\xff", encode_events(SCHEMA, [event(recordIds=[])])[0]):
        assert changes_of(plan, [("a", 0, at, bad) for at in range(3)]) == ([], [])


def test_readable_events_have_no_quarantine_rows() -> None:
    window = WindowReference("one", "00D", "/data/AccountChangeEvent")
    assert undecodable(plan_of({"a": SCHEMA}), (window,), rows_of(event(), event())) == []


@pytest.mark.parametrize("library", LIBRARIES)
def test_transactions_of_all_entities(library: str) -> None:
    contact = STANDARD_ENTITIES[1].schema()
    body = {field["name"]: None for field in contact["fields"][1:]}
    header = event(transactionKey="two")["ChangeEventHeader"]
    payloads = encode_events(contact, [{"ChangeEventHeader": header, **body}])
    accounts = encode_events(SCHEMA, [event(), event(transactionKey="three"), event(changedFields=["broken"])])
    platform = {"type": "record", "name": "Order__e", "fields": [{"name": "CreatedDate", "type": "long"}]}
    rows = [
        ("a", 0, 0, accounts[0]),
        ("c", 0, 1, payloads[0]),
        ("a", 0, 2, b"\xff"),
        ("gone", 0, 3, accounts[0]),
        ("e", 0, 4, b"\x02"),
        ("a", 1, 0, accounts[1]),
        ("c", 1, 1, b""),
        ("a", 1, 2, accounts[2]),
    ]
    batch = landed([*rows, (None, 1, 3, b"")])  # type: ignore[list-item]
    schemas = {"a": json.dumps(SCHEMA), "c": json.dumps(contact), "e": json.dumps(platform)}
    with decoding_with(library):
        found = [row for each in transactions(schemas, FIRST)(iter([batch])) for row in each.to_pylist()]
    keys = {row["_sequence"]: row["_transaction_key"] for row in found}
    assert keys == {1: "key", 2: "two", 1001: "three", 1003: "key"}
