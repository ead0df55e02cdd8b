"""Change events of random histories of records, from which a replica must equal the org."""

from __future__ import annotations

import io
import random
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import fastavro
import pytest
from hypothesis import strategies as st

from live_check.bitmap_names import field_names
from sfstream_localorg.bus.database import open_database
from sfstream_localorg.bus.event_bus import BusEvent, EventBus
from sfstream_localorg.bus.schemas import SchemaRegistry
from sfstream_localorg.bus.topics import TopicRegistry
from sfstream_localorg.errors import ApiError
from sfstream_localorg.records.change_events import Change, Rules, Transaction, change_events
from sfstream_localorg.records.entities import Entities
from sfstream_localorg.records.entity import Entity
from sfstream_localorg.records.sobjects import Operation, SObjects
from sfstream_localorg.records.text_diffs import text_diff
from tests.support.examples import for_examples

USER = "005000000000001AAA"
TEXTS = st.sampled_from(["a", "b", "", None])
VALUES: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "Account": {"FirstName": TEXTS, "LastName": TEXTS, "BillingCity": TEXTS, "Phone": TEXTS},
    "Contact": {"FirstName": TEXTS, "MailingStreet": TEXTS, "MailingLatitude": st.sampled_from([1.5, None])},
    "Shipment__c": {"Status__c": TEXTS, "Insured__c": st.booleans(), "Pieces__c": st.sampled_from([1, 2, None])},
}
REQUIRED = {"Account": {"LastName": "z"}, "Contact": {"LastName": "z"}, "Shipment__c": {}}


class Bench:
    """In-memory org: records and change events on a real bus."""

    def __init__(self, rng: random.Random | None = None, path: str | Path = ":memory:") -> None:
        self.database: sqlite3.Connection = open_database(Path(path))
        self.schemas = SchemaRegistry(self.database)
        topics = TopicRegistry(self.database, self.schemas)
        self.now = 1_700_000_000.25
        self.bus = EventBus(
            self.database, clock=lambda: self.now, retention=lambda: 1e9, channels_of=topics.channels_of
        )
        self.sobjects = SObjects(
            self.database,
            self.bus,
            self.schemas,
            Entities(self.database, topics),
            clock=lambda: self.now,
            event_bytes=lambda: 1_000_000,
            rng=rng,
        )

    def entity(self, name: str) -> Entity:
        entity = self.sobjects.entities.get(name)
        assert entity is not None
        return entity

    def commit(self, *operations: Operation, all_or_none: bool = True) -> list[str | ApiError]:
        return self.sobjects.commit(operations, user_id=USER, origin="test", all_or_none=all_or_none)

    def events(self, topic: str = "/data/ChangeEvents") -> list[dict[str, Any]]:
        decoded = []
        for event in self.bus.record(topic, 0, 100_000):
            schema = self.schemas.parsed(event.schema_id)
            values = fastavro.schemaless_reader(io.BytesIO(event.payload), schema, None)
            assert isinstance(values, dict)
            decoded.append(values | {"_schema": schema})
        return decoded


class Replica:
    """Replica that applies change events as in §3.3 of the protocol notes: rows of ``Field`` and ``Parent.Child``."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}

    def apply(self, event: dict[str, Any]) -> None:
        header, schema = event["ChangeEventHeader"], event["_schema"]
        flat = flattened({field["name"]: event[field["name"]] for field in schema["fields"][1:]})
        for record_id in header["recordIds"]:
            if header["changeType"] == "DELETE":
                del self.rows[record_id]
            elif header["changeType"] == "UPDATE":
                for name in field_names(header["changedFields"], schema):
                    self.rows[record_id][name] = flat.get(name)
                for name in field_names(header["nulledFields"], schema):
                    assert self.rows[record_id][name] is None
            else:
                self.rows[record_id] = dict(flat)


def flattened(body: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in body.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{child}": inside for child, inside in value.items()}
        else:
            flat[name] = value
    return flat


def state(bench: Bench) -> dict[str, dict[str, Any]]:
    """Return the records of the org without null values."""
    rows = {}
    for entity in bench.sobjects.entities:
        for record in bench.sobjects.all(entity):
            rows[record.id] = present(flattened(entity.body(record.content)))
    return rows


def present(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None}


@for_examples(st.data(), few=6, many=60)
def test_replica_of_the_change_events_equals_the_org(data: st.DataObject) -> None:
    bench = Bench()
    ids: dict[str, list[str]] = {name: [] for name in VALUES}
    for _ in range(data.draw(st.integers(1, 6))):
        bench.now += data.draw(st.sampled_from([0, 0.5, 61]))
        operations = [operation(data, bench, ids) for _ in range(data.draw(st.integers(1, 6)))]
        results = bench.commit(*operations, all_or_none=data.draw(st.booleans()))
        for one, result in zip(operations, results, strict=True):
            if one.type == "CREATE" and isinstance(result, str):
                ids[one.entity.name].append(result)
    replica = Replica()
    for event in bench.events():
        replica.apply(event)
    assert {record_id: present(row) for record_id, row in replica.rows.items()} == state(bench)
    check_transactions(bench.events())


def operation(data: st.DataObject, bench: Bench, ids: dict[str, list[str]]) -> Operation:
    name = data.draw(st.sampled_from(sorted(VALUES)))
    entity, values = bench.entity(name), data.draw(st.fixed_dictionaries({}, optional=VALUES[name]))
    if not ids[name] or data.draw(st.booleans()):
        return Operation("CREATE", entity, None, REQUIRED[name] | present(values))
    kind = data.draw(st.sampled_from(["UPDATE", "UPDATE", "DELETE", "UNDELETE"]))
    record_id = data.draw(st.sampled_from(ids[name]))
    return Operation(kind, entity, record_id, values if kind == "UPDATE" else {})


def check_transactions(events: Sequence[dict[str, Any]]) -> None:
    """Check that the events of a transaction are contiguous and numbered from 1, and that commit numbers rise."""
    seen: list[str] = []
    for before, event in zip([None, *events], events, strict=False):
        header = event["ChangeEventHeader"]
        last = before["ChangeEventHeader"] if before else None
        if last and last["transactionKey"] == header["transactionKey"]:
            assert header["sequenceNumber"] == last["sequenceNumber"] + 1
            assert header["commitNumber"] == last["commitNumber"]
        else:
            assert header["transactionKey"] not in seen
            assert header["sequenceNumber"] == 1
            assert last is None or header["commitNumber"] > last["commitNumber"]
        seen.append(header["transactionKey"])


def test_an_update_within_the_same_second_still_names_last_modified_date() -> None:
    bench = Bench()
    (account,) = bench.commit(Operation("CREATE", bench.entity("Account"), None, {"Name": "A"}))
    assert isinstance(account, str)
    bench.commit(Operation("UPDATE", bench.entity("Account"), account, {"Name": "B"}))
    update = bench.events()[-1]
    assert field_names(update["ChangeEventHeader"]["changedFields"], update["_schema"]) == ["Name", "LastModifiedDate"]
    assert update["ChangeEventHeader"]["commitTimestamp"] == 1_700_000_000_250
    assert update["LastModifiedDate"] == 1_700_000_000_000


def test_update_by_another_user_changes_last_modified_by() -> None:
    bench = Bench()
    (account,) = bench.commit(Operation("CREATE", bench.entity("Account"), None, {"Name": "A"}))
    assert isinstance(account, str)
    other = "005000000000002AAA"
    change = Operation("UPDATE", bench.entity("Account"), account, {"Name": "B"})
    bench.sobjects.commit([change], user_id=other, origin="")
    update = bench.events()[-1]
    assert update["LastModifiedById"] == update["ChangeEventHeader"]["commitUser"] == other


def test_gap_percent_replaces_some_change_events_with_gap_events() -> None:
    bench = Bench(rng=random.Random(7))
    bench.sobjects.gap_percent["Account"] = 30
    for _ in range(200):
        bench.commit(Operation("CREATE", bench.entity("Account"), None, {"Name": "A"}))
    kinds = [event["ChangeEventHeader"]["changeType"] for event in bench.events()]
    assert set(kinds) == {"CREATE", "GAP_CREATE"}
    assert 30 < kinds.count("GAP_CREATE") < 90
    assert len(bench.sobjects.all(bench.entity("Account"))) == 200


def test_equal_changes_of_different_entities_are_not_merged() -> None:
    bench = Bench()
    transaction = Transaction("key", 1, 1, USER, "")
    changes = [Change("DELETE", bench.entity(name), f"{i}") for i, name in enumerate(["Account", "Contact", "Account"])]
    events = change_events(changes, transaction)
    assert [event.values["ChangeEventHeader"]["recordIds"] for event in events] == [["0", "2"], ["1"]]


def test_changes_above_the_transaction_limit_become_one_overflow_event_per_entity() -> None:
    bench = Bench()
    account, contact = bench.entity("Account"), bench.entity("Contact")
    changes = [
        Change("CREATE", account, "1", {"Name": "A"}),
        Change("UPDATE", account, "2", {"Name": "A"}, frozenset({"Name", "Phone"})),
        Change("DELETE", contact, "3"),
        Change("DELETE", account, "4"),
        Change("DELETE", contact, "5"),
        Change("DELETE", contact, "6"),
    ]
    events = change_events(changes, Transaction("key", 1, 1, USER, ""), Rules(overflow_changes=3))
    headers = [event.values["ChangeEventHeader"] for event in events]
    assert [(h["entityName"], h["changeType"], h["recordIds"], h["sequenceNumber"]) for h in headers] == [
        ("Account", "CREATE", ["1"], 1),
        ("Account", "UPDATE", ["2"], 2),
        ("Contact", "GAP_OVERFLOW", ["000000000000000AAA"], 3),
        ("Account", "GAP_OVERFLOW", ["000000000000000AAA"], 4),
    ]
    assert {h["transactionKey"] for h in headers} == {"key"}


def test_update_of_a_long_text_is_sent_as_a_diff_and_of_a_short_text_whole() -> None:
    bench = Bench()
    before = "\n".join(f"line {n}" for n in range(50))
    after = before.replace("line 7\n", "line seven\n")
    changes = [
        Change("UPDATE", bench.entity("Account"), "1", record, frozenset(record), before_record)
        for record, before_record in (
            ({"Description": after, "Site": after}, {"Description": before, "Site": before}),
            ({"Description": "short"}, {"Description": "sharp"}),
            ({"Description": after}, {}),
            ({"Description": None}, {"Description": before}),
        )
    ]
    schema = bench.entity("Account").schema()
    for characters, in_diff in ((100, ["Description"]), (len(after) + 1, []), (None, [])):
        events = change_events(changes, Transaction("key", 1, 1, USER, ""), Rules(diff_text_characters=characters))
        headers = [event.values["ChangeEventHeader"] for event in events]
        assert [field_names(header["diffFields"], schema) for header in headers] == [in_diff, [], [], []]
        assert [field_names(header["nulledFields"], schema) for header in headers] == [[], [], [], ["Description"]]
        assert all("Description" in field_names(header["changedFields"], schema) for header in headers)
        assert events[0].values["Site"] == after
        assert [event.values["Description"] for event in events[1:]] == ["short", after, None]
        assert events[0].values["Description"] == (text_diff(before, after) if in_diff else after)
        assert events[0].as_gap().values["ChangeEventHeader"]["diffFields"] == []


def test_records_and_events_are_written_in_one_transaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(path=tmp_path / "org.sqlite3")
    publish: Callable[..., list[bytes]] = bench.bus.publish

    def with_a_bad_event(events: Sequence[BusEvent], **options: Any) -> list[bytes]:
        return publish([*events, BusEvent(events[0].topic, "", b"", channels=[None])], **options)  # type: ignore[list-item]

    monkeypatch.setattr(bench.bus, "publish", with_a_bad_event)
    with pytest.raises(sqlite3.Error):
        bench.commit(Operation("CREATE", bench.entity("Account"), None, {"Name": "A"}))
    monkeypatch.undo()
    again = Bench(path=tmp_path / "org.sqlite3")
    assert again.events() == []
    assert again.sobjects.all(again.entity("Account")) == []
    (account,) = again.commit(Operation("CREATE", again.entity("Account"), None, {"Name": "A"}))
    assert account == "001000000000001AAA"
