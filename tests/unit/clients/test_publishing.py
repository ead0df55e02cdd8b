"""Encoding and splitting of events to publish, and what comes back."""

from __future__ import annotations

import io
import json

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_sfstream.clients.pubsub import publishing
from airflow_provider_sfstream.clients.pubsub.publishing import OutgoingEvent
from airflow_provider_sfstream.exceptions import PublishError, SchemaError
from airflow_provider_sfstream.protocol import pubsub_api_pb2 as messages

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
    event = publishing.encode(SCHEMA, "id1", {"Amount__c": 1.5}, created_by="005U")
    value = fastavro.schemaless_reader(io.BytesIO(event.payload), json.loads(SCHEMA), None)
    assert value["Amount__c"] == 1.5
    assert value["Note__c"] is None
    assert value["CreatedById"] == "005U"
    assert value["CreatedDate"] > 1_600_000_000_000
    assert event.schema_id == "id1"
    assert event.correlation_key != publishing.encode(SCHEMA, "id1", {}).correlation_key


def test_given_values_win_over_defaults() -> None:
    event = publishing.encode(SCHEMA, "id1", {"CreatedDate": 5, "CreatedById": "x"}, created_by="y")
    value = fastavro.schemaless_reader(io.BytesIO(event.payload), json.loads(SCHEMA), None)
    assert (value["CreatedDate"], value["CreatedById"]) == (5, "x")


def test_an_unknown_field_is_named() -> None:
    with pytest.raises(SchemaError, match="Order__e has no field Amonut__c; it has Amount__c"):
        publishing.encode(SCHEMA, "id1", {"Amonut__c": 1.5})


def test_a_value_of_another_type_is_refused_and_not_quoted() -> None:
    with pytest.raises(SchemaError, match="Amount__c of a Order__e is not of its type") as caught:
        publishing.encode(SCHEMA, "id1", {"Amount__c": "very private"})
    assert "very private" not in str(caught.value)


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
        PublishError, match=r"1 of 3 events are over 1 MB, the first at index 1\..*nothing was published"
    ):
        publishing.requests(TOPIC, [small, large, small])


def test_results_go_with_their_events() -> None:
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


def test_a_missing_result_is_an_error_not_a_guess() -> None:
    [request] = publishing.requests(TOPIC, [OutgoingEvent(b"a", "s", "k1")])
    with pytest.raises(PublishError, match="0 results for 1 events"):
        publishing.results(TOPIC, request, messages.PublishResponse(rpc_id="r"))


def test_a_payload_does_not_show_in_the_repr() -> None:
    assert "private" not in repr(OutgoingEvent(b"private", "s"))
