"""Filter expressions of channel members, and filtering and enrichment of change events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import fastavro
import pytest

from sfstream_localorg.channels.enrichment import Enrichment
from sfstream_localorg.channels.filters import filter_of_event, filter_of_record
from sfstream_localorg.errors import ApiError
from sfstream_localorg.records.change_events import Change, Transaction, change_events
from sfstream_localorg.records.entities import STANDARD_ENTITIES

ACCOUNT = STANDARD_ENTITIES[0]
SCHEMA = fastavro.parse_schema(ACCOUNT.schema())
_TYPES = {"City__c": "text", "Amount__c": "double", "Day__c": "date", "Paid__c": "boolean", "At__c": "datetime"}
FIELDS = [{"name": name, "type": kind} for name, kind in _TYPES.items()]
ORDER = {"City__c": "Bergen", "Amount__c": 12.5, "Day__c": 19_000 * 86_400_000, "Paid__c": True, "At__c": 1_000}
A, B = "001000000000001AAA", "001000000000002AAA"


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("City__c = 'Bergen'", True),
        ("City__c = 'BERGEN'", True),
        ("City__c='Oslo'", False),
        ("City__c != 'Oslo'", True),
        ("City__c LIKE 'Ber%'", True),
        ("City__c LIKE '_ergen'", True),
        ("City__c LIKE 'gen'", False),
        ("City__c IN ('Oslo', 'Bergen')", True),
        ("City__c NOT IN ('Oslo')", True),
        ("City__c > 'Alta' AND City__c < 'Oslo'", True),
        ("Amount__c >= 12.5", True),
        ("Amount__c > 12.5", False),
        ("Paid__c = true", True),
        ("Paid__c = null", False),
        ("Day__c = 2022-01-08", True),
        ("At__c < 1970-01-01T00:00:02Z", True),
        ("At__c < 1970-01-01T00:30:00+01:00", False),
        ("(Amount__c<10)OR(City__c='bergen')", True),
        ("Amount__c > 1 AND (City__c = 'Oslo' OR Paid__c = true)", True),
    ],
)
def test_filter_expressions_match_platform_events(expression: str, expected: bool) -> None:
    assert filter_of_event(expression, "Order__e", FIELDS).matches(ORDER, {}) is expected


@pytest.mark.parametrize(
    ("expression", "named"),
    [
        ("Town__c = 'Oslo'", "Town__c"),
        ("City__c = Oslo", "Oslo"),
        ("City__c = 'Oslo' AND", "unexpected end"),
        ("Day__c = TODAY", "TODAY"),
        ("SystemModstamp > 2022-01-08T00:00:00Z", "SystemModstamp"),
        ("Amount__c LIKE '1%'", "Amount__c"),
    ],
)
def test_invalid_filters_of_platform_events_are_refused(expression: str, named: str) -> None:
    with pytest.raises(ApiError, match=rf"INVALID_INPUT: .*{named}"):
        filter_of_event(expression, "Order__e", FIELDS)


@pytest.mark.parametrize("name", ["recordIds", "changedFields", "nulledFields", "diffFields"])
def test_list_fields_of_the_header_cannot_be_filtered(name: str) -> None:
    with pytest.raises(ApiError, match=rf"ChangeEventHeader\.{name}"):
        filter_of_record(f"ChangeEventHeader.{name} = 'x'", ACCOUNT)


def test_long_texts_cannot_be_filtered() -> None:
    with pytest.raises(ApiError, match="Description"):
        filter_of_record("Description = 'x'", ACCOUNT)


def test_filter_compares_header_and_record() -> None:
    found = filter_of_record("ChangeEventHeader.changeType = 'UPDATE' AND Name = 'ChangeEventHeader.x'", ACCOUNT)
    assert found.columns == {"Name"}
    assert found.matches({"Name": "ChangeEventHeader.x"}, {"changeType": "UPDATE"})
    assert not found.matches({"Name": "ChangeEventHeader.x"}, {"changeType": "CREATE"})


RECORDS: Mapping[str, dict[str, Any]] = {
    A: {"Name": "Acme", "Industry": "Banking", "Phone": "1", "BillingCity": "Oslo", "BillingStreet": "Kaia 1"},
    B: {"Name": "Umbrella", "Industry": "Energy", "Phone": "1"},
}


def event(kind: str, *record_ids: str, record: Mapping[str, Any], columns: frozenset[str] = frozenset()) -> Any:
    changes = [Change(kind, ACCOUNT, one, record, columns) for one in record_ids]  # type: ignore[arg-type]
    (made,) = change_events(changes, Transaction("key", 1, 1, "005000000000001AAA", "test"))
    return made.values


def delivered(of: Any, *fields: str, where: str = "") -> list[Any]:
    enrichment = Enrichment(ACCOUNT, fields, filter_of_record(where, ACCOUNT) if where else None)
    return list(enrichment.delivered(of, SCHEMA, RECORDS.get))


def update(*record_ids: str, **values: Any) -> Any:
    return event("UPDATE", *record_ids, record=values, columns=frozenset(values))


def test_enriched_update_has_the_fields_of_each_of_its_records() -> None:
    grouped = update(A, B, Phone="2")
    assert grouped["ChangeEventHeader"]["recordIds"] == [A, B]
    first, second = delivered(grouped, "Industry", "Website")
    assert [one["ChangeEventHeader"]["recordIds"] for one in (first, second)] == [[A], [B]]
    assert [(one["Phone"], one["Industry"], one["Website"]) for one in (first, second)] == [
        ("2", "Banking", None),
        ("2", "Energy", None),
    ]
    for one in (first, second):
        assert one["ChangeEventHeader"]["changedFields"] == grouped["ChangeEventHeader"]["changedFields"]
        assert one["Name"] is None


def test_changed_enriched_field_has_the_value_of_the_event() -> None:
    assert delivered(update(A, Industry=None), "Industry")[0]["Industry"] is None
    assert delivered(update(A, Industry="Media"), "Industry")[0]["Industry"] == "Media"


def test_enriched_compound_field_keeps_changed_parts_and_adds_the_others() -> None:
    (one,) = delivered(update(A, BillingCity="Bergen"), "BillingAddress")
    assert (one["BillingAddress"]["City"], one["BillingAddress"]["Street"]) == ("Bergen", "Kaia 1")


def test_delete_event_is_enriched_and_create_event_is_not() -> None:
    assert delivered(event("DELETE", A, record={}), "Industry")[0]["Industry"] == "Banking"
    assert delivered(event("CREATE", A, record={"Name": "Acme"}), "Industry")[0]["Industry"] is None


def test_filter_compares_unchanged_fields_and_enriches_events_with_them() -> None:
    (one,) = delivered(update(A, B, Phone="2"), where="Industry = 'Energy'")
    assert (one["ChangeEventHeader"]["recordIds"], one["Industry"]) == ([B], "Energy")


def test_filter_of_header_fields_leaves_events_unchanged() -> None:
    grouped = update(A, B, Phone="2")
    assert delivered(grouped, where="ChangeEventHeader.changeType = 'UPDATE'") == [grouped]
    assert delivered(grouped, where="ChangeEventHeader.changeType = 'DELETE'") == []


def test_event_without_a_record_passes_every_filter() -> None:
    overflow = update("000000000000000AAA", Phone="2")
    assert len(delivered(overflow, where="Industry = 'Energy'")) == 1
