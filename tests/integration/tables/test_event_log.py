"""Event log job on each engine, compared row by row with the landed events."""

from __future__ import annotations

import copy
import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import ConfigurationError, ManifestError
from airflow_provider_sfstream.tables.delta.delta_table import DeltaTableLog
from tests.support.engines import BOTH_IN_TURN
from tests.support.event_log import DAY, Lake, as_utc
from tests.support.landing_files import RECEIVED_AT, LandedEvent, drop_column, encode

ORDER = {
    "type": "record",
    "name": "Order__e",
    "namespace": "com.sforce.eventbus",
    "fields": [
        {"name": "CreatedDate", "type": "long", "doc": "CreatedDate:DateTime"},
        {"name": "CreatedById", "type": "string", "doc": "CreatedBy:EntityId"},
        {"name": "Amount__c", "type": ["null", "double"], "doc": "Data:Double:00N1", "default": None},
        {"name": "Due__c", "type": ["null", "long"], "doc": "Data:DateOnly:00N2", "default": None},
    ],
}
ORDER_2 = copy.deepcopy(ORDER)
ORDER_2["fields"].append({"name": "Note__c", "type": ["null", "string"], "doc": "Data:Text:00N3", "default": None})
ORDER_3 = copy.deepcopy(ORDER)
ORDER_3["fields"][2]["type"] = ["null", "string"]
ACCOUNT_SCHEMA = Path(__file__).parents[4] / "shared/schemas/AccountChangeEvent.avsc"
CONTACT_SCHEMA = ACCOUNT_SCHEMA.with_name("ContactChangeEvent.avsc")


def milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def order(number: int, schema_id: str = "one", **fields: Any) -> LandedEvent:
    """Return an event whose time depends on its number: eight hours lie between two numbers."""
    moment = DAY + timedelta(hours=8 * (number % 9))
    record = {"CreatedDate": milliseconds(moment), "CreatedById": "005", "Amount__c": number / 4, "Due__c": None}
    return LandedEvent(number, schema_id, record | fields)


@pytest.fixture
def lake(spark: Any, tmp_path: Path, engine: Any) -> Lake:
    return Lake(spark, tmp_path, engine)


def without_place(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k not in ("window_id", "_ordinal")} for row in rows]


def test_a_window_landed_before_a_column_existed_is_read_with_null_in_it(lake: Lake) -> None:
    manifest = lake.land("20260110T000000Z-a", [order(n) for n in range(4)], {"one": ORDER}, parts=2)
    drop_column(manifest, "event_id")
    later = lake.land("20260111T000000Z-b", [order(n) for n in range(4, 6)], {"one": ORDER})
    assert lake.run(manifest, later).rows_written == 6
    assert [row["_event_id"] for row in lake.rows()] == [None] * 4 + ["event-4", "event-5"]


@pytest.mark.usefixtures("compiled")
def test_every_event_is_one_typed_row_of_its_date(lake: Lake) -> None:
    events = [order(n, Due__c=milliseconds(datetime(1969, 12, 1, tzinfo=UTC)) if n % 2 else None) for n in range(40)]
    metrics = lake.run(lake.land("20260110T000000Z-a", events, {"one": ORDER}, parts=3))
    rows = lake.rows()
    assert len(rows) == 40
    for ordinal, (row, event) in enumerate(zip(rows, events, strict=True)):
        moment = DAY + timedelta(hours=8 * (event.number % 9))
        assert as_utc(row.pop("CreatedDate")) == as_utc(row.pop("_event_time")) == moment
        assert as_utc(row.pop("_received_at")) == RECEIVED_AT
        assert row == {
            "_replay_id": event.replay_id,
            "_event_id": f"event-{event.number}",
            "_schema_id": "one",
            "_ordinal": ordinal,
            "_topic": "/event/Order__e",
            "_org_id": "00D000000000001EAA",
            "CreatedById": "005",
            "Amount__c": event.number / 4,
            "Due__c": date(1969, 12, 1) if event.number % 2 else None,
            "event_date": moment.date(),
            "window_id": "20260110T000000Z-a",
        }
    assert {row["event_date"] for row in rows} == {date(2026, 1, 10), date(2026, 1, 11), date(2026, 1, 12)}
    assert (metrics.rows_in, metrics.rows_written, metrics.tables) == (40, 40, {"Order__e": 40})
    assert metrics.decoders == {"pyruhvro": 40}


@BOTH_IN_TURN
def test_running_a_window_again_changes_nothing(lake: Lake) -> None:
    manifest = lake.land("w1", [order(n) for n in range(30)] + [LandedEvent(99, "one", b"\xff")], {"one": ORDER})
    metrics_file = lake.output / "metrics.json"
    first = lake.run(manifest, metrics_url=metrics_file.as_uri())
    rows, folders = lake.rows(), {Path(name).parent for name in lake.files()}
    again = lake.run(manifest, manifest)
    assert lake.rows() == rows
    assert {Path(name).parent for name in lake.files()} == folders
    by_run = {"seconds": 0, "application_id": ""}
    assert vars(again) | by_run == vars(first) | by_run
    assert json.loads(metrics_file.read_text()) == {**vars(first), "job": ""}


@BOTH_IN_TURN
def test_overlapping_windows_of_two_runs_write_each_event_once(lake: Lake) -> None:
    one = lake.land("w1", [*(order(n) for n in range(20)), order(7)], {"one": ORDER})
    two = lake.land("w2", [order(n) for n in range(10, 30)], {"one": ORDER})
    lake.run(two)
    metrics = lake.run(one)
    assert (metrics.rows_written, metrics.duplicates) == (10, 11)
    separately = lake.rows()
    assert [int.from_bytes(row["_replay_id"][:8], "big") for row in separately] == list(range(30))
    assert {row["window_id"] for row in separately if row["_replay_id"] >= order(10).replay_id} == {"w2"}
    together = lake.run(one, two)
    assert lake.rows() == separately, "an event stays assigned to the window that wrote it first"
    assert (together.rows_in, together.rows_written, together.duplicates) == (41, 30, 11)


def test_all_events_that_share_a_replay_id_become_rows(lake: Lake) -> None:
    """Salesforce sends them for a change of several records on an enriched channel; here two windows have them."""
    shared = [order(2, Due__c=None, Amount__c=float(n)) for n in range(3)]
    one = lake.land("w1", [order(1), *shared, order(3)], {"one": ORDER})
    two = lake.land("w2", [*shared, order(3), order(4), order(2)], {"one": ORDER})
    for manifests, duplicates in (((one,), 0), ((two,), 5), ((one, two), 5), ((two,), 5), ((one,), 0)):
        assert lake.run(*manifests).duplicates == duplicates
        if manifests != (one,):
            found = [(int.from_bytes(row["_replay_id"][:8], "big"), row["window_id"]) for row in lake.rows()]
            assert found == [(1, "w1"), (2, "w1"), (2, "w1"), (2, "w1"), (3, "w1"), (4, "w2")]
    amounts = {row["_ordinal"]: row["Amount__c"] for row in lake.rows() if row["_replay_id"] == order(2).replay_id}
    assert amounts == {1: 0.0, 2: 1.0, 3: 2.0}


def test_an_undecodable_event_that_shares_a_replay_id_is_quarantined_alone(lake: Lake) -> None:
    broken = LandedEvent(2, "one", b"\xff")
    one = lake.land("w1", [order(1), order(2), broken, order(2)], {"one": ORDER})
    metrics = lake.run(one)
    assert (metrics.rows_written, metrics.quarantined, metrics.duplicates) == (3, 1, 0)
    assert [row["ordinal"] for row in lake.rows("_quarantine")] == [2]


def test_overlapping_windows_of_one_run_write_each_event_once(lake: Lake) -> None:
    two = lake.land("w2", [order(n) for n in range(5, 15)], {"one": ORDER})
    one = lake.land("w1", [order(n) for n in range(10)], {"one": ORDER})
    empty = lake.land("w0", [], {})
    metrics = lake.run(two, one, empty)
    assert [(row["window_id"], row["_ordinal"]) for row in lake.rows()] == [
        *(("w1", n) for n in range(10)),
        *(("w2", n) for n in range(5, 10)),
    ]
    assert (metrics.windows, metrics.rows_in, metrics.duplicates) == (["w0", "w1", "w2"], 20, 5)


def test_equal_replay_ids_of_two_topics_are_different_events(lake: Lake) -> None:
    one = lake.land("w1", [order(n) for n in range(5)], {"one": ORDER})
    two = lake.land("w2", [order(n) for n in range(5)], {"one": ORDER}, topic="/event/Orders__chn")
    assert lake.run(one, two).rows_written == 10


def test_an_empty_window_writes_nothing(lake: Lake) -> None:
    metrics = lake.run(lake.land("w0", [], {}))
    assert (metrics.windows, metrics.rows_in, metrics.rows_written) == (["w0"], 0, 0)
    assert not lake.output.exists()


def test_a_field_of_another_type_gets_its_own_column(lake: Lake) -> None:
    lake.run(lake.land("w1", [order(n) for n in range(4)], {"one": ORDER}))
    mixed = [order(n, "two", Note__c=f"note {n}") if n % 2 else order(n) for n in range(4, 8)]
    lake.run(lake.land("w2", mixed, {"one": ORDER, "two": ORDER_2}))
    lake.run(lake.land("w3", [order(n, "three", Amount__c=f"{n} EUR") for n in range(8, 10)], {"three": ORDER_3}))
    rows = lake.rows()
    assert [row["Amount__c"] for row in rows] == [*(n / 4 for n in range(8)), None, None]
    assert [row["Amount__c__string"] for row in rows] == [None] * 8 + ["8 EUR", "9 EUR"]
    assert [row["Note__c"] for row in rows] == [f"note {n}" if n in (5, 7) else None for n in range(10)]
    assert lake.columns() == {
        "CreatedDate": "timestamp",
        "CreatedById": "string",
        "Amount__c": "double",
        "Due__c": "date",
        "Note__c": "string",
        "Amount__c__string": "string",
    }


def test_undecodable_events_are_quarantined_and_the_others_are_written(lake: Lake) -> None:
    good = encode(ORDER, order(3).record)
    events = [order(n) for n in range(50)]
    broken = {10: good[:-1], 11: good + b"\x00", 12: b"", 30: b"\xff" * 30, 49: good[:5]}
    for place, payload in broken.items():
        events[place] = LandedEvent(place, "one", payload)
    events += [LandedEvent(50, "lost", good), LandedEvent(51, "unreadable", good), LandedEvent(52, None, good)]
    manifest = lake.land("w1", events, {"one": ORDER, "unreadable": {"type": "strange"}}, parts=2)
    metrics = lake.run(manifest)
    assert (metrics.rows_in, metrics.rows_written, metrics.quarantined) == (53, 45, 8)
    assert [row["_replay_id"] for row in lake.rows()] == [e.replay_id for e in events[:50] if e.number not in broken]
    quarantine = lake.rows("_quarantine")
    assert [(row["ordinal"], row["payload"]) for row in quarantine] == [
        *broken.items(),
        *((place, good) for place in (50, 51, 52)),
    ]
    assert [row["schema_id"] for row in quarantine] == ["one"] * 5 + ["lost", "unreadable", None]
    assert {row["topic"] for row in quarantine} == {"/event/Order__e"}
    assert all(row["reason"] for row in quarantine)
    assert "extra bytes after the event" in quarantine[1]["reason"]
    assert "no schema 'lost'" in quarantine[5]["reason"]

    # Once the schema can be read, its rows leave the quarantine. The manifest is unchanged.
    folder = lake.landing.rglob("schemas").__next__()
    (folder / "unreadable.avsc").write_text(json.dumps(ORDER))
    again = lake.run(manifest)
    assert (again.rows_written, again.quarantined) == (46, 7)
    assert [row["ordinal"] for row in lake.rows("_quarantine")] == [*broken, 50, 52]


def test_the_readable_copy_of_an_event_is_written(lake: Lake) -> None:
    """Two windows have the same events; some copies of the first window and one of the second are broken."""
    whole = [order(n) for n in range(5)]
    first = [LandedEvent(n, "one", b"\xff") if n in (1, 2) else order(n) for n in range(5)]
    second = [LandedEvent(n, "one", b"\xfe") if n == 1 else order(n) for n in range(5)]
    windows = {"20260110T000000Z-a": first, "20260110T000100Z-b": second}
    manifests = [lake.land(name, events, {"one": ORDER}) for name, events in windows.items()]
    for _ in range(2):
        metrics = lake.run(*manifests)
        places = [(row["_replay_id"], row["window_id"][-1]) for row in lake.rows()]
        assert places == [(whole[n].replay_id, window) for n, window in zip((0, 2, 3, 4), "abaa", strict=True)]
        assert (metrics.rows_in, metrics.rows_written, metrics.quarantined, metrics.duplicates) == (10, 4, 1, 5)
        assert [(bytes(row["payload"]), row["window_id"][-1]) for row in lake.rows("_quarantine")] == [(b"\xff", "a")]


def test_a_quarantine_without_rows_has_no_files(lake: Lake) -> None:
    manifest = lake.land("w1", [order(1)], {"one": ORDER})
    schema = lake.landing.rglob("one.avsc").__next__()
    text = schema.read_text()
    schema.unlink()
    assert lake.run(manifest).quarantined == 1
    schema.write_text(text)
    assert lake.run(manifest).rows_written == 1
    assert not lake.files("_quarantine")


@BOTH_IN_TURN
def test_rows_whose_schema_was_lost_move_to_the_quarantine(lake: Lake) -> None:
    manifest = lake.land("w1", [order(1)], {"one": ORDER})
    lake.run(manifest)
    lake.landing.rglob("one.avsc").__next__().unlink()
    assert lake.run(manifest).quarantined == 1
    assert (len(lake.files("Order__e")), len(lake.files("_quarantine"))) == (0, 1)


def test_a_run_opens_only_the_tables_of_its_windows(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    schemas = {name: {**ORDER, "name": f"{name}__e"} for name in ("First", "Second", "Third")}
    lake.run(lake.land("w1", [order(n, name) for n, name in enumerate(schemas)], schemas))
    opened: list[str] = []
    open_log = DeltaTableLog._open

    def opening(log: DeltaTableLog, number: int | None = None) -> Any:
        opened.append(log.location.uri.rpartition("/")[2])
        return open_log(log, number)

    monkeypatch.setattr(DeltaTableLog, "_open", opening)
    assert lake.run(lake.land("w2", [order(4, "Second")], schemas={"Second": schemas["Second"]})).rows_written == 1
    assert {name for name in opened if name.endswith("__e")} == {"Second__e"}


def test_an_interval_writes_its_part_of_a_window_and_replaces_no_other_rows(lake: Lake) -> None:
    manifest = lake.land("w1", [order(n) for n in range(9)], {"one": ORDER})
    second_day = {"event_time_from": DAY + timedelta(days=1), "event_time_to": DAY + timedelta(days=2)}
    part = lake.run(manifest, **second_day)
    assert (part.rows_in, part.rows_written, part.outside_interval) == (9, 3, 6)
    assert {row["event_date"] for row in lake.rows()} == {date(2026, 1, 11)}
    whole = lake.run(manifest)
    assert (whole.rows_written, whole.duplicates) == (6, 3)
    rows = lake.rows()
    assert [int.from_bytes(row["_replay_id"][:8], "big") for row in rows] == list(range(9))
    assert lake.run(manifest, **second_day).rows_written == 3
    assert lake.rows() == rows


def test_one_table_for_each_entity_of_a_channel(lake: Lake) -> None:
    if not ACCOUNT_SCHEMA.exists():
        pytest.skip("the captured change event schemas are not here")
    account, contact = (json.loads(path.read_text()) for path in (ACCOUNT_SCHEMA, CONTACT_SCHEMA))
    person = {"Salutation": "Mx", "FirstName": "A", "LastName": "B"}
    events = [
        LandedEvent(0, "a", change_event(account, 0, Name="Acme", AnnualRevenue=1.5)),
        LandedEvent(1, "c", change_event(contact, 1, Email="a@example.com")),
        LandedEvent(2, "a", change_event(account, 2, Name=person)),
        LandedEvent(3, "a", change_event(account, 3, Name=None, BillingAddress=address(account, City="Bonn"))),
    ]
    metrics = lake.run(lake.land("w1", events, {"a": account, "c": contact}, topic="/data/ChangeEvents"))
    assert metrics.tables == {"AccountChangeEvent": 3, "ContactChangeEvent": 1}
    rows = lake.rows("AccountChangeEvent")
    assert [(row["Name"], row["Name_record"]) for row in rows] == [("Acme", None), (None, person), (None, None)]
    assert rows[2]["BillingAddress"]["City"] == "Bonn"
    assert rows[0]["BillingAddress"] is None
    for row, event in zip(rows, (events[0], events[2], events[3]), strict=True):
        assert row["ChangeEventHeader"] == event.record["ChangeEventHeader"]  # type: ignore[index]
        assert as_utc(row["_event_time"]) == DAY + timedelta(minutes=event.number)
    assert lake.rows("ContactChangeEvent")[0]["Email"] == "a@example.com"


def change_event(schema: dict[str, Any], number: int, **fields: Any) -> dict[str, Any]:
    header = {
        "entityName": schema["name"].removesuffix("ChangeEvent"),
        "recordIds": [f"001{number:015d}"],
        "changeType": "UPDATE",
        "changeOrigin": "",
        "transactionKey": f"{number:08d}-0000",
        "sequenceNumber": 1,
        "commitTimestamp": milliseconds(DAY + timedelta(minutes=number)),
        "commitNumber": 1 << 40,
        "commitUser": "005000000000001AAA",
        "nulledFields": [],
        "diffFields": [],
        "changedFields": ["0x02"],
    }
    return {item["name"]: None for item in schema["fields"]} | {"ChangeEventHeader": header} | fields


def address(schema: dict[str, Any], **parts: str) -> dict[str, Any]:
    union = next(item for item in schema["fields"] if item["name"] == "BillingAddress")["type"]
    return {item["name"]: None for item in union[1]["fields"]} | parts


def test_a_missing_or_foreign_manifest_fails_the_job_before_it_writes(lake: Lake, tmp_path: Path) -> None:
    manifest = lake.land("w1", [order(1)], {"one": ORDER})
    foreign = tmp_path / "foreign.json"
    foreign.write_text('{"format": "other"}')
    for url in (foreign.as_uri(), (tmp_path / "none.json").as_uri()):
        with pytest.raises(ManifestError, match="Nothing was written"):
            lake.run(manifest, url)
    assert not lake.output.exists()


def test_a_row_count_that_differs_from_the_manifest_fails_the_job_before_it_writes(lake: Lake) -> None:
    manifest = lake.land("w1", [order(n) for n in range(10)], {"one": ORDER}, parts=2)
    part = next(lake.landing.rglob("part-00001.parquet"))
    part.write_bytes(part.with_name("part-00000.parquet").read_bytes())
    path = Path(manifest.removeprefix("file://"))
    document = json.loads(path.read_text())
    document["files"][1]["rows"] = 6
    document["event_count"] = 11
    path.write_text(json.dumps(document))
    with pytest.raises(ConfigurationError, match="The files of window w1 have 10 rows, but its manifest records 11"):
        lake.run(manifest, verify_files=False)
    assert not lake.output.exists()
