"""Event log job on windows of the Streaming API and of the Pub/Sub API, on each engine."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sfstream.tables.decode.self_described import own_format
from airflow_provider_sfstream.tables.delta.landed_windows import load_windows
from tests.support.engines import BOTH_IN_TURN
from tests.support.event_log import DAY, Lake, as_utc
from tests.support.json_windows import JsonEvent, event, generic_event, push_topic_event
from tests.support.landing_files import LandedEvent

ADDRESS = {"type": "record", "name": "Address", "fields": [{"name": "City", "type": ["null", "string"]}]}
ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order__e",
    "namespace": "com.sforce.eventbus",
    "fields": [
        {"name": "CreatedDate", "type": "long", "doc": "CreatedDate:DateTime"},
        {"name": "CreatedById", "type": "string", "doc": "CreatedBy:EntityId"},
        {"name": "Amount__c", "type": ["null", "double"], "doc": "Data:Double:00N1", "default": None},
        {"name": "Due__c", "type": ["null", "long"], "doc": "Data:DateOnly:00N2", "default": None},
        {"name": "Open__c", "type": ["null", "boolean"], "doc": "Data:Boolean:00N3", "default": None},
        {"name": "Address__c", "type": ["null", ADDRESS], "default": None},
        {"name": "Tags__c", "type": ["null", {"type": "array", "items": "string"}], "default": None},
    ],
}
PUSH_TOPIC, CHANNEL = "/topic/InvoiceUpdates", "/u/notifications/Orders"


@pytest.fixture
def lake(spark: Any, tmp_path: Path, engine: Any) -> Lake:
    return Lake(spark, tmp_path, engine)


def at(number: int) -> datetime:
    """Return the time of an event: eight hours lie between two numbers."""
    return DAY + timedelta(hours=8 * (number % 9))


def fields(number: int, avro: bool) -> dict[str, Any]:
    """Return the fields of one order in the encoding of the Pub/Sub API or of the Streaming API."""
    moment, due = at(number), date(2026, 2, 1 + number % 20)
    midnight = datetime(due.year, due.month, due.day, tzinfo=UTC)
    order: dict[str, Any] = {
        "CreatedDate": int(moment.timestamp() * 1000) if avro else moment.isoformat(timespec="milliseconds"),
        "CreatedById": "005",
        "Amount__c": number / 4,
        "Due__c": int(midnight.timestamp() * 1000) if avro else due.isoformat(),
        "Open__c": number % 2 == 0,
        "Address__c": {"City": "Köln"} if number % 3 else None,
        "Tags__c": ["a", "b"][: number % 3],
    }
    return order if avro else {key: value for key, value in order.items() if value is not None}


def content(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows without the columns that the event log adds."""
    return [{k: v for k, v in row.items() if not k.startswith("_") and k != "window_id"} for row in rows]


def numbers(rows: list[dict[str, Any]]) -> list[int]:
    return [int.from_bytes(row["_replay_id"], "big") for row in rows]


def test_both_encodings_result_in_the_same_rows(lake: Lake) -> None:
    avro = lake.land(
        "20260110T000000Z-avro", [LandedEvent(n, "one", fields(n, avro=True)) for n in range(30)], {"one": ORDER}
    )
    events = [event(n, fields(n, avro=False)) for n in range(30)]
    in_json = lake.land_json("20260110T000000Z-json", "/event/Order__e", events, {"one": ORDER})
    metrics = lake.run(avro, in_json)
    rows = lake.rows()
    assert (metrics.rows_in, metrics.rows_written, metrics.tables) == (60, 60, {"Order__e": 60})
    assert metrics.decoders == {"pyruhvro": 30, "json": 30}
    from_avro, from_json = ([row for row in rows if row["window_id"].endswith(end)] for end in ("avro", "json"))
    assert content(from_json) == content(from_avro)
    assert [row["_event_time"] for row in from_json] == [row["_event_time"] for row in from_avro]
    assert [as_utc(row["_event_time"]) for row in from_json] == [at(n) for n in range(30)]
    assert numbers(from_json) == list(range(30))
    assert {row["_schema_id"] for row in rows} == {"one"}
    again = lake.run(in_json)
    assert (again.rows_written, lake.rows()) == (30, rows)


def test_a_window_has_the_same_rows_alone_and_with_others(lake: Lake) -> None:
    """Window number and payload format must not depend on other windows; a single window is read by simpler code."""
    schemas = {"one": ORDER}
    empty = lake.land("20260110T000000Z-a", [], schemas)
    avro = lake.land("20260110T000000Z-b", [LandedEvent(1, "one", fields(1, avro=True))], schemas)
    either = [event(2, fields(2, avro=False)), event(3, fields(3, avro=False), "other")]
    both = lake.land_json("20260110T000000Z-c", "/event/Order__e", either, schemas)
    bare = lake.land_json("20260110T000000Z-d", PUSH_TOPIC, [push_topic_event(4, {"Id": "a01"}, at(4))])
    engine = lake.engine()

    def rows(*manifests: str) -> list[dict[str, Any]]:
        windows = load_windows(engine.landing, manifests)
        engine.prepare([each.window.event_count for each in windows])
        found = engine.landed_rows(windows, verify=True).collect()
        return sorted((dict(row) for row in found), key=lambda row: row["replay_id"])

    together = rows(empty, avro, both, bare)
    assert [(row["window"], row["format"]) for row in together] == [
        (1, "avro"),
        (2, "json"),
        (2, own_format("/event/Order__e")),
        (3, own_format(PUSH_TOPIC)),
    ]
    alone = [[dict(row, window=number) for row in rows(url)] for number, url in ((1, avro), (2, both), (3, bare))]
    assert together == [row for window in alone for row in window]
    assert rows(empty, avro) == alone[0]


def test_rows_of_a_push_topic(lake: Lake) -> None:
    events = [
        push_topic_event(1, {"Id": "a01", "Total__c": 12.5, "Paid__c": False, "Note__c": None}, at(1), "created"),
        push_topic_event(2, {"Id": "a01", "Total__c": 13, "Paid__c": True, "Owner": {"Name": "Zoë"}}, at(2)),
        push_topic_event(3, {"Id": "a02"}, at(3), "deleted"),
    ]
    manifest = lake.land_json("20260110T000000Z-a", PUSH_TOPIC, events)
    metrics = lake.run(manifest)
    assert (metrics.tables, metrics.decoders) == ({"InvoiceUpdates": 3}, {"json": 3})
    rows = lake.rows("InvoiceUpdates")
    assert [(row["_event_type"], row["Id"], row["Total__c"], row["Paid__c"], row["Owner"]) for row in rows] == [
        ("created", "a01", 12.5, False, None),
        ("updated", "a01", 13.0, True, '{"Name": "Zoë"}'),
        ("deleted", "a02", None, None, None),
    ]
    assert "Note__c" not in rows[0], "a field that is always null has no known type and gets no column"
    for row, one in zip(rows, events, strict=True):
        assert row["_replay_id"] == one.replay_id
        assert as_utc(row["_event_time"]) == at(one.number)
        assert row["event_date"] == at(one.number).date()
        assert (row["_schema_id"], row["_topic"]) == (PUSH_TOPIC, PUSH_TOPIC)
    assert lake.run(manifest).rows_written == 3
    assert lake.rows("InvoiceUpdates") == rows


def test_a_filtered_topic_is_a_separate_stream_in_the_same_table(lake: Lake) -> None:
    events = [push_topic_event(n, {"Id": f"a{n}", "Status__c": "Open"}, at(n)) for n in range(6)]
    filtered = PUSH_TOPIC + "?Status__c='Open'&Region__c='a/b'"
    one = lake.land_json("20260110T000000Z-a", PUSH_TOPIC, events)
    two = lake.land_json("20260110T000000Z-b", filtered, events[2:])
    three = lake.land_json("20260110T000000Z-c", filtered, events[4:])
    metrics = lake.run(one, two, three)
    assert (metrics.tables, metrics.duplicates) == ({"InvoiceUpdates": 10}, 2)
    rows = lake.rows("InvoiceUpdates")
    assert [n for n, row in zip(numbers(rows), rows, strict=True) if row["_topic"] == PUSH_TOPIC] == list(range(6))
    assert [n for n, row in zip(numbers(rows), rows, strict=True) if row["_topic"] == filtered] == [2, 3, 4, 5]
    assert {row["_schema_id"] for row in rows} == {PUSH_TOPIC}
    for manifests in ((three,), (one, two, three)):
        lake.run(*manifests)
        assert lake.rows("InvoiceUpdates") == rows


@BOTH_IN_TURN
def test_a_field_of_several_types_has_a_column_for_each_in_any_order_of_windows(lake: Lake) -> None:
    values = {1: 1.5, 2: "two", 3: True, 4: 2**53 + 1, 5: {"a": 2**70}, 6: 2**70 + 1, 7: -4}
    events = [push_topic_event(n, {"Id": f"a{n}", "Code__c": value}, at(n)) for n, value in values.items()]
    texts = lake.land_json("20260110T000000Z-a", PUSH_TOPIC, [events[1]])
    mixed = lake.land_json("20260110T000000Z-b", PUSH_TOPIC, [events[0], *events[2:]])
    lake.run(texts)
    lake.run(mixed)
    rows = lake.rows("InvoiceUpdates")
    columns = ("Code__c", "Code__c__double", "Code__c__boolean", "Code__c__long")
    assert [tuple(row[column] for column in columns) for row in rows] == [
        (None, 1.5, None, None),
        ("two", None, None, None),
        (None, None, True, None),
        (None, None, None, 2**53 + 1),
        ('{"a": 1180591620717411303424}', None, None, None),
        ("1180591620717411303425", None, None, None),
        (None, -4.0, None, None),
    ]
    known = lake.columns("InvoiceUpdates")
    for manifests in ((texts, mixed), (mixed,)):
        lake.run(*manifests)
        assert lake.rows("InvoiceUpdates") == rows
        assert list(lake.columns("InvoiceUpdates").items()) == list(known.items())


def test_payloads_of_generic_events_are_text(lake: Lake) -> None:
    contents = ["plain text", {"id": 7, "tags": ["ü"]}, [1, 2.50], 12345678901234567890, "", None]
    events = [generic_event(n, payload, at(n)) for n, payload in enumerate(contents)]
    metrics = lake.run(lake.land_json("20260110T000000Z-a", CHANNEL, events))
    assert metrics.tables == {"u_notifications__Orders": 6}
    rows = lake.rows("u_notifications__Orders")
    texts = ["plain text", '{"id": 7, "tags": ["ü"]}', "[1, 2.5]", "12345678901234567890", "", None]
    assert [row["payload"] for row in rows] == texts
    assert [as_utc(row["_event_time"]) for row in rows] == [at(n) for n in range(6)]


def test_events_without_a_time_are_written_once(lake: Lake) -> None:
    later = datetime(2026, 1, 30, 12, tzinfo=UTC)
    dated = generic_event(9, "told", at(0))
    one = lake.land_json("20260110T000000Z-a", CHANNEL, [generic_event(1, "x", None), dated])
    two = lake.land_json("20260120T000000Z-b", CHANNEL, [generic_event(1, "x", None), dated], received_at=later)
    lake.run(one)
    metrics = lake.run(two)
    assert (metrics.rows_written, metrics.duplicates) == (0, 2)
    rows = lake.rows("u_notifications__Orders")
    assert [(row["payload"], row["event_date"]) for row in rows] == [
        ("x", date(2026, 1, 20)),
        ("told", date(2026, 1, 10)),
    ]
    assert as_utc(rows[0]["_event_time"]) == as_utc(rows[0]["_received_at"])


def test_types_of_events_without_a_schema_are_derived_from_their_json(lake: Lake) -> None:
    events = [event(n, fields(n, avro=False)) for n in range(4)]
    typed = lake.land_json("20260110T000000Z-a", "/event/Order__e", events, {"one": ORDER})
    others = [event(n, fields(n, avro=False)) for n in range(4, 8)]
    refused = lake.land_json("20260110T000000Z-b", "/event/Order__e", others)
    lake.run(typed)
    lake.run(refused)
    rows = lake.rows()
    created = [at(n).isoformat(timespec="milliseconds") for n in range(8)]
    assert [row["CreatedDate__string"] for row in rows] == [None] * 4 + created[4:]
    assert [as_utc(row["_event_time"]) for row in rows] == [at(n) for n in range(8)]
    assert [row["Amount__c"] for row in rows] == [n / 4 for n in range(8)]
    assert rows[4]["Address__c__string"] == '{"City": "Köln"}'
    for manifests in ((typed, refused), (refused,)):
        assert lake.run(*manifests).quarantined == 0
        assert lake.rows() == rows, "each window is decoded with the schemas of its own manifest"


def test_undecodable_json_events_are_quarantined_and_the_others_are_written(lake: Lake) -> None:
    good = event(0, fields(0, avro=False)).payload
    broken = {
        3: good[:-1],
        4: good.replace(b'"005"', b'"\\ud800"'),
        5: good.replace(b'"005"', b"5"),
        6: good.replace(b'"CreatedById"', b'"Surprise__c": 1, "CreatedById"'),
        7: good.replace(b'"CreatedDate"', b'"Amount__c": 1, "CreatedDate"'),
        8: b"",
        9: good.replace(b'"Amount__c": 0.0', b'"Amount__c": NaN'),
        10: good.replace(b'"Amount__c": 0.0', b'"Amount__c": 0.1000000000000000055'),
    }
    assert len(set(broken.values())) == len(broken)
    typed = [JsonEvent(n, broken.get(n, good), "one") for n in range(12)]
    one = lake.land_json("20260110T000000Z-a", "/event/Order__e", typed, {"one": ORDER})
    rows = [push_topic_event(1, {"Id": "a"}, at(1)), JsonEvent(2, b'{"event": {"createdDate": "x"}, "sobject": {}}')]
    two = lake.land_json("20260110T000000Z-b", PUSH_TOPIC, [*rows, JsonEvent(3, b"\xff")])
    lost = lake.land_json("20260110T000000Z-c", "/event/Lost__e", [JsonEvent(1, good, "lost")], {"lost": ORDER})
    schema = next(lake.landing.rglob("lost.avsc"))
    text = schema.read_text()
    schema.unlink()
    metrics = lake.run(one, two, lost)
    assert (metrics.rows_in, metrics.rows_written, metrics.quarantined) == (16, 5, 11)
    assert numbers(lake.rows()) == [0, 1, 2, 11]
    assert numbers(lake.rows("InvoiceUpdates")) == [1]
    quarantine = lake.rows("_quarantine")
    assert {(row["topic"], row["payload"]) for row in quarantine} == {
        *(("/event/Order__e", payload) for payload in broken.values()),
        (PUSH_TOPIC, b'{"event": {"createdDate": "x"}, "sobject": {}}'),
        (PUSH_TOPIC, b"\xff"),
        ("/event/Lost__e", good),
    }
    reasons = {row["payload"]: row["reason"] for row in quarantine}
    assert "Surprise__c" in reasons[broken[6]]
    assert "more than once" in reasons[broken[7]]
    assert "file of schema lost is missing" in reasons[good]
    schema.write_text(text)
    again = lake.run(lost)
    assert (again.rows_written, again.quarantined) == (1, 0)
    assert len(lake.rows("_quarantine")) == 10


def test_an_interval_writes_its_part_of_every_window(lake: Lake) -> None:
    pushed = lake.land_json(
        "20260110T000000Z-a", PUSH_TOPIC, [push_topic_event(n, {"Id": f"a{n}"}, at(n)) for n in range(9)]
    )
    sent = lake.land_json("20260110T000000Z-b", CHANNEL, [generic_event(n, str(n), at(n)) for n in range(9)])
    typed = lake.land_json(
        "20260110T000000Z-c", "/event/Order__e", [event(n, fields(n, avro=False)) for n in range(9)], {"one": ORDER}
    )
    bounds = {"event_time_from": DAY + timedelta(days=1), "event_time_to": DAY + timedelta(days=2)}
    part = lake.run(pushed, sent, typed, **bounds)
    tables = ("InvoiceUpdates", "u_notifications__Orders", "Order__e")
    assert (part.rows_written, part.outside_interval) == (9, 18)
    assert [numbers(lake.rows(table)) for table in tables] == [[3, 4, 5]] * 3
    whole = lake.run(pushed, sent, typed)
    assert (whole.rows_written, whole.duplicates) == (18, 9)
    assert [numbers(lake.rows(table)) for table in tables] == [list(range(9))] * 3


def test_one_job_writes_many_small_windows_of_a_topic(lake: Lake) -> None:
    manifests = [
        lake.land_json(
            f"20260110T{hour:02d}0000Z-a",
            PUSH_TOPIC,
            [push_topic_event(n, {"Id": f"a{n}", f"F{n % 3}__c": n}, at(n)) for n in range(hour * 4, hour * 4 + 6)],
        )
        for hour in range(6)
    ]
    metrics = lake.run(*manifests)
    assert (metrics.rows_in, metrics.rows_written, metrics.duplicates) == (36, 26, 10)
    rows = lake.rows("InvoiceUpdates")
    assert numbers(rows) == list(range(26))
    assert [row[f"F{n % 3}__c"] for n, row in enumerate(rows)] == [float(n) for n in range(26)]
    assert lake.columns("InvoiceUpdates").keys() == {"_event_type", "Id", "F0__c", "F1__c", "F2__c"}
