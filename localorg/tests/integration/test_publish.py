"""Publish and PublishStream."""

from __future__ import annotations

import io
import json
import queue
from typing import Any

import fastavro
import grpc
import pytest

from airflow_provider_sfstream.salesforce import pubsub_api_pb2 as pb
from tests.support.localorg import LocalOrg
from tests.support.subscriber import Subscriber, error_code


def payload(org: LocalOrg, schema_id: str, **values: Any) -> bytes:
    info = org.stub().GetSchema(pb.SchemaRequest(schema_id=schema_id), metadata=org.metadata())
    buffer = io.BytesIO()
    schema = fastavro.parse_schema(json.loads(info.schema_json))
    fastavro.schemaless_writer(buffer, schema, {"CreatedDate": 1, "CreatedById": "005", **values})
    return buffer.getvalue()


def publish(org: LocalOrg, topic: str, *events: pb.ProducerEvent) -> pb.PublishResponse:
    request = pb.PublishRequest(topic_name=topic, events=events)
    return org.stub().Publish(request, metadata=org.metadata(), timeout=60)


def schema_of(org: LocalOrg, topic: str) -> str:
    return str(org.stub().GetTopic(pb.TopicRequest(topic_name=topic), metadata=org.metadata()).schema_id)


def test_published_payloads_are_delivered_byte_for_byte(org: LocalOrg, topic: str) -> None:
    schema_id = schema_of(org, topic)
    bodies = [payload(org, schema_id, Number__c=n) for n in range(3)]
    events = [pb.ProducerEvent(id=f"key-{n}", schema_id=schema_id, payload=body) for n, body in enumerate(bodies)]
    response = publish(org, topic, *events)
    assert [result.correlation_key for result in response.results] == ["key-0", "key-1", "key-2"]
    assert response.schema_id == schema_id
    with Subscriber(org).fetch(3, topic) as subscriber:
        received = subscriber.events(3)
    assert [event.replay_id for event in received] == [result.replay_id for result in response.results]
    assert [(e.event.id, e.event.schema_id, e.event.payload) for e in received] == [
        (e.id, e.schema_id, e.payload) for e in events
    ]


def test_invalid_event_in_a_publish_request_does_not_stop_the_others(org: LocalOrg, topic: str) -> None:
    other = org.define("Elsewhere__e", Number__c="int")["schema_id"]
    schema_id = schema_of(org, topic)
    good = payload(org, schema_id, Number__c=1)
    org.knobs(event_bytes=1_000)
    response = publish(
        org,
        topic,
        pb.ProducerEvent(id="good", schema_id=schema_id, payload=good),
        pb.ProducerEvent(id="large", schema_id=schema_id, payload=b"x" * 1_001),
        pb.ProducerEvent(id="foreign schema", schema_id=other, payload=good),
        pb.ProducerEvent(id="no schema", schema_id="", payload=good),
        pb.ProducerEvent(id="truncated", schema_id=schema_id, payload=good[:-1]),
        pb.ProducerEvent(id="more than one", schema_id=schema_id, payload=good + b"\0"),
        pb.ProducerEvent(id="also good", schema_id=schema_id, payload=good),
    )
    published = [result.correlation_key for result in response.results if result.replay_id]
    assert published == ["good", "also good"]
    failed = [result for result in response.results if not result.replay_id]
    assert all(result.error.code == pb.PUBLISH and result.error.msg for result in failed)
    assert [event["event_id"] for event in org.record(topic)] == published


def test_event_above_one_megabyte_is_refused_by_default(org: LocalOrg) -> None:
    schema_id = org.define("Large__e", Text__c="textarea")["schema_id"]
    overhead = len(payload(org, schema_id, Text__c="x" * 900_000)) - 900_000
    fits, too_large = (payload(org, schema_id, Text__c="x" * (size - overhead)) for size in (1_000_000, 1_000_001))
    response = publish(
        org,
        "/event/Large__e",
        pb.ProducerEvent(id="fits", schema_id=schema_id, payload=fits),
        pb.ProducerEvent(id="too large", schema_id=schema_id, payload=too_large),
    )
    assert [bool(result.replay_id) for result in response.results] == [True, False]


def test_publish_request_above_four_mebibytes_fails_with_the_error_of_the_gateway(org: LocalOrg, topic: str) -> None:
    event = pb.ProducerEvent(schema_id=schema_of(org, topic), payload=b"x" * 900_000)
    with pytest.raises(grpc.RpcError) as caught:
        publish(org, topic, *[event] * 5)
    assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
    assert "upstream connect error" in caught.value.details()
    assert error_code(caught.value) is None


def test_event_with_an_older_schema_is_accepted(org: LocalOrg) -> None:
    old = org.define("Older__e", Number__c="int")["schema_id"]
    body = payload(org, old, Number__c=7)
    new = org.define("Older__e", Number__c="int", Text__c="text")["schema_id"]
    response = publish(org, "/event/Older__e", pb.ProducerEvent(schema_id=old, payload=body))
    assert response.results[0].replay_id
    assert response.schema_id == new
    assert [(e["schema_id"], e["fields"]["Number__c"]) for e in org.record("/event/Older__e")] == [(old, 7)]


def test_undecodable_publish_request_is_refused(org: LocalOrg) -> None:
    with grpc.insecure_channel(org.grpc_target) as channel:
        call = channel.unary_unary("/eventbus.v1.PubSub/Publish")
        with pytest.raises(grpc.RpcError) as caught:
            call(b"\xff\xff", metadata=org.metadata(), timeout=60)
    assert caught.value.code() == grpc.StatusCode.INTERNAL
    assert error_code(caught.value) is None


def test_publish_request_without_events_is_refused(org: LocalOrg, topic: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        publish(org, topic)
    assert error_code(caught.value) == "publish.event.count.invalid"


def test_events_above_the_hourly_publish_quota_are_refused(org: LocalOrg, topic: str) -> None:
    event = pb.ProducerEvent(schema_id=(sid := schema_of(org, topic)), payload=payload(org, sid, Number__c=1))
    used = org.admin("GET", "/org")["published"]
    org.knobs(publish_quota=used + 2)
    response = publish(org, topic, event, event, event)
    assert [result.error.msg.partition(":")[0] for result in response.results] == ["", "", "LIMIT_EXCEEDED"]


def test_publish_stream_answers_each_request(org: LocalOrg, topic: str) -> None:
    schema_id = schema_of(org, topic)
    requests = [
        pb.PublishRequest(
            topic_name=topic if n == 0 else "",
            events=[pb.ProducerEvent(id=str(n), schema_id=schema_id, payload=payload(org, schema_id, Number__c=n))],
        )
        for n in range(3)
    ]
    responses = list(org.stub().PublishStream(iter(requests), metadata=org.metadata(), timeout=60))
    keys = [result.correlation_key for response in responses for result in response.results]
    assert keys == ["0", "1", "2"] == [event["event_id"] for event in org.record(topic)]


def test_publish_stream_refuses_a_second_topic(org: LocalOrg, topic: str) -> None:
    schema_id = schema_of(org, topic)
    event = pb.ProducerEvent(schema_id=schema_id, payload=payload(org, schema_id, Number__c=1))
    names = (topic, "/event/Other__e")
    requests = iter([pb.PublishRequest(topic_name=name, events=[event]) for name in names])
    call = org.stub().PublishStream(requests, metadata=org.metadata(), timeout=60)
    assert next(call).results[0].replay_id
    with pytest.raises(grpc.RpcError) as caught:
        next(call)
    assert error_code(caught.value) == "publish.topic.mismatch"


def test_idle_publish_stream_ends_with_the_sweeper_timeout(org: LocalOrg) -> None:
    org.knobs(publish_idle_seconds=0.1)
    requests: queue.SimpleQueue[pb.PublishRequest | None] = queue.SimpleQueue()
    call = org.stub().PublishStream(iter(requests.get, None), metadata=org.metadata(), timeout=60)
    with pytest.raises(grpc.RpcError) as caught:
        next(call)
    requests.put(None)
    assert error_code(caught.value) == "publish.stream.sweeper.timeout"
    assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED


def test_admin_refuses_values_that_do_not_fit(org: LocalOrg, topic: str) -> None:
    for values in ({"Nope__c": 1}, {"Number__c": "text"}):
        with pytest.raises(Exception, match=r"has no field|do not fit"):
            org.publish(topic, [{"Number__c": 1}, values])
    assert org.record(topic) == []


def test_admin_fills_a_template(org: LocalOrg) -> None:
    org.define("Many__e", Number__c="int", Text__c="text", At__c="datetime")
    template = {"Number__c": "{n}", "Text__c": "number {n}", "At__c": "2024-01-02T03:04:05Z", "CreatedDate": 5}
    first, last = org.publish_many("/event/Many__e", 4_500, template)
    record = org.record("/event/Many__e")
    assert (record[0]["replay_id"], record[-1]["replay_id"]) == (first, last)
    assert [event["fields"]["Number__c"] for event in record] == list(range(4_500))
    assert record[17]["fields"]["Text__c"] == "number 17"
    assert record[17]["fields"]["CreatedDate"] == 5
    assert record[17]["fields"]["At__c"] == 1_704_164_645_000


def test_templates_number_texts_and_numbers(org: LocalOrg) -> None:
    org.define("Numbered__e", Text__c="text", Longer__c="textarea", Number__c="int", Double__c="double")
    template = {"Text__c": "{n}", "Longer__c": "order {n} of {n}", "Number__c": "{n}", "Double__c": "{n}"}
    org.publish_many("/event/Numbered__e", 3, template)
    last = org.record("/event/Numbered__e")[-1]["fields"]
    assert [last[name] for name in template] == ["2", "order 2 of 2", 2, 2.0]
    org.publish_many("/event/Numbered__e", 300, {"Text__c": "{n}"})
    assert org.record("/event/Numbered__e")[-1]["fields"]["Text__c"] == "299"
