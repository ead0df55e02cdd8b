"""Record IDs of an erasure, and the remaining payloads of Avro and JSON events with one or several records."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_sfstream.erasure.records import RecordIds, without_records
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.salesforce.identifiers import to_18
from tests.support.landing_files import encode

ADA, BOB, CLEO = (to_18(f"003xx0000000{name}") for name in ("Ada", "bOb", "clE"))
TEXTS = {"type": "array", "items": "string"}
HEADER = {"type": "record", "name": "Header", "fields": [{"name": "recordIds", "type": TEXTS}]}
CONTACT: dict[str, Any] = {
    "type": "record",
    "name": "ContactChangeEvent",
    "fields": [
        {"name": "ChangeEventHeader", "type": HEADER},
        {"name": "LastName", "type": ["null", "string"]},
        {"name": "ReportsToId", "type": ["null", "string"]},
    ],
}


def contact(*ids: str, reports_to: str | None = None) -> dict[str, Any]:
    return {"ChangeEventHeader": {"recordIds": list(ids)}, "LastName": "Lovelace é", "ReportsToId": reports_to}


def remaining_avro(event: dict[str, Any], *ids: str) -> bytes | None:
    return without_records(encode(CONTACT, event), RecordIds(ids), "avro", json.dumps(CONTACT))


@pytest.mark.parametrize("ids", [[ADA], [ADA[:15]], [ADA, BOB, ADA[:15]]])
def test_event_of_erased_records_only_has_an_empty_payload(ids: list[str]) -> None:
    assert remaining_avro(contact(ADA), *ids) == b""
    payload = json.dumps({"schema": "s", "payload": contact(ADA)}).encode()
    assert without_records(payload, RecordIds(ids), "json", None) == b""


def test_event_of_several_records_loses_only_the_erased_ids() -> None:
    assert remaining_avro(contact(BOB, ADA, CLEO), ADA) == encode(CONTACT, contact(BOB, CLEO))
    many = [to_18(f"003xx{number:010d}") for number in range(200)]
    assert remaining_avro(contact(*many), many[7], many[9]) == encode(
        CONTACT, contact(*(each for each in many if each not in (many[7], many[9])))
    )


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_json_event_of_several_records_preserves_its_other_bytes(separators: tuple[str, str]) -> None:
    event = {"payload": {**contact(ADA, BOB), "Amount": 0.1}, "event": {"replayId": 1}}
    payload = json.dumps(event, separators=separators).replace("0.1", "0.1000000000000000000001").encode()
    remaining = without_records(payload, RecordIds([ADA]), "json", None)
    assert remaining is not None
    assert json.loads(remaining)["payload"]["ChangeEventHeader"]["recordIds"] == [BOB]
    assert b"0.1000000000000000000001" in remaining
    assert ADA.encode() not in remaining


def test_event_that_only_mentions_a_record_is_unchanged() -> None:
    assert remaining_avro(contact(BOB, reports_to=ADA), ADA) is None
    payload = json.dumps({"payload": {"Text__c": ADA}}).encode()
    assert without_records(payload, RecordIds([ADA]), "json", None) is None


def test_unreadable_or_ambiguous_event_has_an_empty_payload() -> None:
    payload, ids = encode(CONTACT, contact(BOB, ADA)), RecordIds([ADA])
    for schema in (None, "no schema", json.dumps(HEADER | {"fields": [{"name": "recordIds", "type": "double"}]})):
        assert without_records(payload, ids, "avro", schema) == b""
    assert without_records(payload[:-2], ids, "avro", json.dumps(CONTACT)) == b""
    assert without_records(b"{" + payload, ids, "json", None) == b""
    # Two arrays have the same IDs, so the bytes do not show which one belongs to the header.
    schema = {**CONTACT, "fields": [*CONTACT["fields"], {"name": "Others", "type": TEXTS}]}
    twice = encode(schema, {**contact(BOB, ADA), "Others": [BOB, ADA]})
    assert without_records(twice, ids, "avro", json.dumps(schema)) == b""


def test_ids_are_found_in_bytes_and_hidden_in_text() -> None:
    ids = RecordIds([ADA, BOB[:15]])
    assert ids.in_full == tuple(sorted((ADA, BOB)))
    assert ids.are_in(b"\x00" + BOB.encode() + b"\x00")
    assert not ids.are_in(BOB.swapcase().encode()), "IDs are case-sensitive"
    assert (ADA in ids, CLEO in ids, 7 in ids) == (True, False, False)
    assert ADA[:15] not in f"{ids!r} {ids}"


@pytest.mark.parametrize(
    ("ids", "text"),
    [
        ([], "got 0"),
        (["", ADA], r"ids\[0\] is not a record ID"),
        ([ADA, ADA[:15] + "zzz"], r"ids\[1\] is not a record ID"),
        ([ADA, 7], r"ids\[1\] is not a record ID"),
        ([ADA, "Ada Lovelace"], r"ids\[1\] is not a record ID"),
        ([ADA, "001xx0000000Ada"], "several objects"),
        ([f"003xx{number:010d}" for number in range(1_001)], "1 to 1000 record IDs, got 1001"),
    ],
)
def test_invalid_ids_are_refused_without_quoting_them(ids: list[Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text) as caught:
        RecordIds(ids)
    assert "Nothing was erased" in str(caught.value)
    assert "Lovelace" not in str(caught.value)
    assert ADA[:15] not in str(caught.value)
