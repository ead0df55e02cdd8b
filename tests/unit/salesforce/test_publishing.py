"""Events to publish: encoding, division into requests, and results."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_sfstream.exceptions import PublishError, QuotaExceededError, SchemaError, ServiceUnavailableError
from airflow_provider_sfstream.salesforce import pubsub_api_pb2 as messages
from airflow_provider_sfstream.salesforce.pubsub import publishing
from airflow_provider_sfstream.salesforce.pubsub.publishing import EventEncoder, OutgoingEvent, event_value

TOPIC = "/event/Order__e"
SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Order__e",
        "fields": [
            {"name": "CreatedDate", "type": "long"},
            {"name": "CreatedById", "type": "string"},
            {"name": "Amount__c", "type": ["null", "double"], "default": None},
            {"name": "Note__c", "type": ["null", "string"], "default": None},
        ],
    }
)


def test_values_are_written_with_the_schema_and_the_defaults_of_a_platform_event() -> None:
    event = EventEncoder(SCHEMA, "id1", created_by="005U").encode({"Amount__c": 1.5})
    value = fastavro.schemaless_reader(io.BytesIO(event.payload), json.loads(SCHEMA), None)
    assert value["Amount__c"] == 1.5
    assert value["Note__c"] is None
    assert value["CreatedById"] == "005U"
    assert value["CreatedDate"] > 1_600_000_000_000
    assert event.schema_id == "id1"
    assert event.correlation_key != EventEncoder(SCHEMA, "id1").encode({}).correlation_key


def test_explicit_values_take_precedence_over_defaults() -> None:
    event = EventEncoder(SCHEMA, "id1", created_by="y").encode({"CreatedDate": 5, "CreatedById": "x"})
    value = fastavro.schemaless_reader(io.BytesIO(event.payload), json.loads(SCHEMA), None)
    assert (value["CreatedDate"], value["CreatedById"]) == (5, "x")


def test_an_unknown_field_is_named() -> None:
    with pytest.raises(SchemaError, match=r"Order__e has no field Amonut__c\. Its fields are Amount__c"):
        EventEncoder(SCHEMA, "id1").encode({"Amonut__c": 1.5})


def test_a_value_of_another_type_is_refused_and_not_quoted() -> None:
    with pytest.raises(SchemaError, match=r"^Order__e: a value is missing or of the wrong type: Amount__c") as caught:
        EventEncoder(SCHEMA, "id1").encode({"Amount__c": "very private"})
    assert "very private" not in str(caught.value)


@pytest.mark.parametrize("value", [datetime(2026, 1, 1), "soon"], ids=["without a zone", "no time"])  # noqa: DTZ001
def test_invalid_time_is_refused_with_its_field_name(value: Any) -> None:
    schema = {"type": "record", "name": "A__e", "fields": [{"name": "At__c", "type": "long", "doc": "Data:DateTime:0"}]}
    with pytest.raises(SchemaError, match=r"^A__e: a value is missing or of the wrong type: At__c") as caught:
        EventEncoder(json.dumps(schema), "id1").encode({"At__c": value})
    assert "soon" not in str(caught.value)


def test_date_is_written_as_milliseconds() -> None:
    schema = {"type": "record", "name": "A__e", "fields": [{"name": "On__c", "type": "long", "doc": "Data:DateOnly:0"}]}
    event = EventEncoder(json.dumps(schema), "id1").encode({"On__c": date(1970, 1, 2)}, "the key")
    assert fastavro.schemaless_reader(io.BytesIO(event.payload), schema, None) == {"On__c": 86_400_000}
    assert event.correlation_key == "the key"


@given(st.lists(st.integers(0, 400_000), max_size=450))
def test_requests_keep_order_and_limits(sizes: list[int]) -> None:
    blob = bytes(400_000)
    events = [OutgoingEvent(blob[:size], "schema", str(index)) for index, size in enumerate(sizes)]
    requests = publishing.requests(TOPIC, events)
    assert [event.id for request in requests for event in request.events] == [str(index) for index in range(len(sizes))]
    for request in requests:
        assert request.topic_name == TOPIC
        assert 1 <= len(request.events) <= 200
        assert request.ByteSize() <= 3_000_000 + 100


def test_an_event_over_1_mb_is_refused_before_anything_is_sent() -> None:
    small, large = OutgoingEvent(b"x", "s"), OutgoingEvent(bytes(1024 * 1024), "s")
    with pytest.raises(
        PublishError, match=r"1 of 3 events are over 1 MB, the first at index 1\..*Nothing was published"
    ):
        publishing.requests(TOPIC, [small, large, small])


def test_results_are_matched_to_their_events() -> None:
    [request] = publishing.requests(TOPIC, [OutgoingEvent(b"a", "s", "k1"), OutgoingEvent(b"b", "s", "k2")])
    response = messages.PublishResponse(
        results=[
            messages.PublishResult(replay_id=b"r1", correlation_key="k1"),
            messages.PublishResult(error=messages.Error(code=messages.PUBLISH, msg="too odd"), correlation_key="k2"),
        ]
    )
    first, second = publishing.results(TOPIC, request, response)
    assert (first.correlation_key, first.replay_id, first.error) == ("k1", b"r1", None)
    assert (second.correlation_key, second.replay_id) == ("k2", None)
    assert isinstance(second.error, PublishError)
    assert "too odd" in str(second.error)


@pytest.mark.parametrize(
    ("text", "error", "retriable"),
    [
        ("LIMIT_EXCEEDED: the hourly limit", QuotaExceededError, False),
        ("PLATFORM_EVENT_PUBLISHING_UNAVAILABLE", ServiceUnavailableError, True),
        ("PLATFORM_EVENT_ENCRYPTION_ERROR", PublishError, False),
        ("", PublishError, False),
    ],
)
def test_error_of_a_result_is_classified_by_its_text(text: str, error: type[Exception], retriable: bool) -> None:
    [request] = publishing.requests(TOPIC, [OutgoingEvent(b"a", "s", "k1")])
    failed = messages.PublishResult(error=messages.Error(code=messages.PUBLISH, msg=text))
    [result] = publishing.results(TOPIC, request, messages.PublishResponse(results=[failed]))
    assert type(result.error) is error
    assert result.error.retriable is retriable


def test_missing_result_is_an_error() -> None:
    [request] = publishing.requests(TOPIC, [OutgoingEvent(b"a", "s", "k1")])
    with pytest.raises(PublishError, match="0 results for 1 events"):
        publishing.results(TOPIC, request, messages.PublishResponse(rpc_id="r"))


def test_result_without_replay_id_and_error_is_no_acceptance() -> None:
    [request] = publishing.requests(TOPIC, [OutgoingEvent(b"a", "s", "k1"), OutgoingEvent(b"b", "s", "k2")])
    accepted = messages.PublishResult(replay_id=b"r1", correlation_key="k1")
    response = messages.PublishResponse(results=[accepted, messages.PublishResult(correlation_key="k2")])
    with pytest.raises(PublishError, match=r"neither a replay ID nor an error for 1 of 2 events.*It is unknown"):
        publishing.results(TOPIC, request, response)


def test_a_payload_does_not_show_in_the_repr() -> None:
    assert "private" not in repr(OutgoingEvent(b"private", "s"))


TIME = {"name": "At__c", "type": ["null", "long"], "doc": "Data:DateTime:00N000000000001"}
DAY = {"name": "Day__c", "type": ["null", "long"], "doc": "Data:DateOnly:00N000000000001"}
NUMBER = {"name": "Number__c", "type": ["null", "double"], "doc": "Data:Double:00N000000000001"}
WHOLE = {"name": "Count__c", "type": "long"}
TEXT = {"name": "Note__c", "type": ["null", "string"]}


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        (TIME, datetime(1970, 1, 2, tzinfo=UTC), 86_400_000),
        (TIME, datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=2))), -3_600_000),
        (TIME, datetime(1970, 1, 1, 0, 0, 0, 1_999, tzinfo=UTC), 1),
        (TIME, "1970-01-02T00:00:00Z", 86_400_000),
        (TIME, 5, 5),
        (DAY, date(1970, 1, 3), 172_800_000),
        (DAY, "1969-12-31", -86_400_000),
        (NUMBER, Decimal("1.25"), 1.25),
        (NUMBER, 3.0, 3.0),
        (NUMBER, 3, 3),
        (WHOLE, 3.0, 3),
        (WHOLE, 3.5, 3.5),
        (TEXT, "1970-01-02", "1970-01-02"),
        (TEXT, None, None),
        (TIME, None, None),
    ],
)
def test_value_is_converted_for_avro(field: dict[str, Any], value: Any, expected: Any) -> None:
    found = event_value(field, value)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(("field", "value"), [(TIME, "yesterday"), (TIME, datetime(2026, 1, 1)), (DAY, "2026-13-01")])  # noqa: DTZ001
def test_invalid_time_or_date_is_refused(field: dict[str, Any], value: Any) -> None:
    with pytest.raises(ValueError, match=r"time|date|month|isoformat"):
        event_value(field, value)


def test_datetime_for_a_date_field_is_not_converted() -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    assert event_value(DAY, moment) is moment, "Avro refuses it later"
