"""Event schemas and platform-event publishing over REST."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from airflow_provider_sfstream.salesforce import pubsub_api_pb2 as pb
from tests.support.localorg import LocalOrg
from tests.support.sobject_client import SObjectClient, error_of


@pytest.fixture(scope="module")
def org(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOrg]:
    with LocalOrg.running(tmp_path_factory.mktemp("org")) as local_org:
        local_org.define("Order__e", Number__c="text", Amount__c="double", Due__c="datetime", Paid__c="boolean")
        yield local_org


@pytest.fixture(scope="module")
def client(org: LocalOrg) -> Iterator[SObjectClient]:
    client = SObjectClient(org)
    yield client
    client.close()


def test_platform_event_is_published_over_rest(client: SObjectClient, org: LocalOrg) -> None:
    values = {"Number__c": "A-1", "Amount__c": 3, "Due__c": "2026-11-21T03:14:15.000Z", "Paid__c": True}
    response = client.call("POST", "/sobjects/Order__e/", values)
    assert response.status_code == 201
    answer = response.json()
    assert answer["success"] is True
    assert answer["id"].startswith("e00")
    (status,) = answer["errors"]
    assert status["statusCode"] == "OPERATION_ENQUEUED"
    event = org.record("/event/Order__e")[-1]
    assert event["event_id"] == status["message"]
    assert event["fields"]["Amount__c"] == 3.0
    assert event["fields"]["Due__c"] == 1_795_230_855_000
    assert event["fields"]["CreatedById"].startswith("005")


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"Nothing__c": 1}, "INVALID_FIELD"),
        ({"CreatedDate": 1}, "INVALID_FIELD_FOR_INSERT_UPDATE"),
        ({"Amount__c": "much"}, "JSON_PARSER_ERROR"),
        ({"Due__c": "soon"}, "JSON_PARSER_ERROR"),
        ({"Number__c": "x" * 1_000_001}, "LIMIT_EXCEEDED"),
    ],
)
def test_invalid_platform_events_are_not_published(
    client: SObjectClient, org: LocalOrg, values: Any, code: str
) -> None:
    before = len(org.record("/event/Order__e"))
    assert error_of(client.call("POST", "/sobjects/Order__e", values)) == (400, code)
    assert len(org.record("/event/Order__e")) == before


def test_unknown_events_and_schemas_are_not_found(client: SObjectClient) -> None:
    assert error_of(client.call("POST", "/sobjects/Nothing__e", {})) == (404, "NOT_FOUND")
    assert error_of(client.call("GET", "/sobjects/Nothing__e/eventSchema")) == (404, "NOT_FOUND")
    assert error_of(client.call("GET", "/event/eventSchema/nothing")) == (404, "NOT_FOUND")


def test_hourly_publishing_allocation_is_enforced_over_rest(client: SObjectClient, org: LocalOrg) -> None:
    org.knobs(publish_quota=0)
    assert error_of(client.call("POST", "/sobjects/Order__e", {"Number__c": "x"})) == (403, "LIMIT_EXCEEDED")
    org.knobs(publish_quota=None)
    assert client.call("POST", "/sobjects/Order__e", {"Number__c": "x"}).status_code == 201


@pytest.mark.parametrize("topic", ["/event/Order__e", "/data/AccountChangeEvent"])
def test_event_schemas_over_rest_equal_those_of_grpc(client: SObjectClient, org: LocalOrg, topic: str) -> None:
    event = topic.rpartition("/")[2]
    schema_id = org.stub().GetTopic(pb.TopicRequest(topic_name=topic), metadata=org.metadata()).schema_id
    schema = org.stub().GetSchema(pb.SchemaRequest(schema_id=schema_id), metadata=org.metadata())
    compact = client.call("GET", f"/sobjects/{event}/eventSchema", params={"payloadFormat": "COMPACT"})
    by_id = client.call("GET", f"/event/eventSchema/{schema_id}", params={"payloadFormat": "COMPACT"})
    assert compact.text == by_id.text
    assert compact.json()["uuid"] == schema_id
    assert compact.json() == json.loads(schema.schema_json)
    expanded = client.call("GET", f"/event/eventSchema/{schema_id}").json()
    assert [field["name"] for field in expanded["fields"]] == ["data", "channel"]
    payload = expanded["fields"][0]["type"]["fields"][1]["type"]["fields"]
    assert [field["name"] for field in payload] == [field["name"] for field in compact.json()["fields"]]
    created = next(field for field in payload if field["name"] == "CreatedDate")
    assert created["type"] in ("string", ["null", "string"])  # dates are text in the Streaming API
    assert error_of(client.call("GET", f"/event/eventSchema/{schema_id}", params={"payloadFormat": "X"}))[0] == 400
