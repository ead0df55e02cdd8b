from __future__ import annotations

import json
from typing import Any

import pytest

from sfstream_localorg.bus.event_bus import BusEvent
from sfstream_localorg.bus.payloads import encode
from sfstream_localorg.cometd.payloads import EventData, iso_moment, json_event


def data_of(bench: Any, channel: str) -> list[dict[str, Any]]:
    make = EventData(bench.schemas)
    return [json.loads(make(event)) for event in bench.bus.retained(channel, 0, 100)]


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_795_254_186_472, "2026-11-21T09:43:06.472Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (-62_135_596_800_000, "0001-01-01T00:00:00.000Z"),
    ],
)
def test_iso_moment_formats_milliseconds(milliseconds: int, text: str) -> None:
    assert iso_moment(milliseconds) == text


def test_replay_id_is_inserted_without_changing_text_of_the_user(bench: Any) -> None:
    payload = {"replayId": None, "text": '"replayId":null'}
    bench.bus.publish([BusEvent("/u/a", "", json_event("2026-01-01T00:00:00.000Z", payload=payload))])
    (event,) = bench.bus.retained("/u/a", 0, 10)
    (data,) = data_of(bench, "/u/a")
    assert data["event"]["replayId"] == event.position
    assert data["payload"] == payload


def test_dates_of_platform_events_become_iso_text_and_other_numbers_stay(bench: Any) -> None:
    fields = [
        {"name": name, "type": kind}
        for name, kind in (("At__c", "datetime"), ("On__c", "date"), ("Long__c", "long"), ("Number__c", "double"))
    ]
    topic = bench.topics.define_platform_event("Order__e", fields)
    schema_id = bench.topics.schema_id(topic)
    values = {
        "CreatedDate": 1,
        "CreatedById": "005",
        "At__c": 0,
        "On__c": -86_400_000,
        "Long__c": 2**60,
        "Number__c": 1,
    }
    payload = encode(bench.schemas.parsed(schema_id), values)
    bench.bus.publish([BusEvent(topic.name, schema_id, payload, "uuid")])
    (data,) = data_of(bench, topic.name)
    assert data["schema"] == schema_id
    assert data["payload"] == {
        "CreatedDate": "1970-01-01T00:00:00.001Z",
        "CreatedById": "005",
        "At__c": "1970-01-01T00:00:00.000Z",
        "On__c": "1969-12-31",
        "Long__c": 2**60,
        "Number__c": 1.0,
    }
    assert data["event"]["EventUuid"] == "uuid"


def test_json_of_a_gap_event_has_only_a_header(bench: Any) -> None:
    bench.sobjects.gap_percent["Account"] = 100
    account = bench.write("CREATE", "Account", Name="A")
    (data,) = data_of(bench, "/data/AccountChangeEvent")
    header = data["payload"].pop("ChangeEventHeader")
    assert (header["changeType"], header["recordIds"], data["payload"]) == ("GAP_CREATE", [account], {})


def test_json_of_a_compound_field_has_set_parts_and_parts_that_became_null(bench: Any) -> None:
    contact = bench.write("CREATE", "Contact", LastName="L", FirstName="F", MailingCity="Rome", MailingLatitude=1.5)
    bench.write("UPDATE", "Contact", contact, FirstName=None, MailingCity="Bonn", Birthdate="2000-02-29")
    created, updated = (data["payload"] for data in data_of(bench, "/data/ContactChangeEvent"))
    assert created["Name"] == {"FirstName": "F", "LastName": "L"}
    assert created["MailingAddress"] == {"City": "Rome", "Latitude": 1.5}
    assert updated["Name"] == {"FirstName": None}
    assert updated["MailingAddress"] == {"City": "Bonn"}
    assert updated["Birthdate"] == "2000-02-29"


def test_times_of_day_become_iso_text(bench: Any) -> None:
    bench.write("CREATE", "Shipment__c", Pickup_Time__c="09:30:00.250Z")
    (data,) = data_of(bench, "/data/Shipment__ChangeEvent")
    assert data["payload"]["Pickup_Time__c"] == "09:30:00.250Z"


def test_event_data_cache_is_bounded_and_returns_the_same_bytes(bench: Any) -> None:
    for number in range(20):
        bench.write("CREATE", "Account", Name=f"A{number}")
    events = bench.bus.retained("/data/AccountChangeEvent", 0, 100)
    roomy, narrow = EventData(bench.schemas), EventData(bench.schemas, memory=2_000)
    expected = [roomy(event) for event in events]
    for _ in range(2):
        assert [narrow(event) for event in events] == expected
        assert [roomy(event) for event in events] == expected
        assert narrow._size <= 2_000
