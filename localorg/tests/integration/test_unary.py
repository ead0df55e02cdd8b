"""GetTopic, GetSchema, and the validation of call metadata."""

from __future__ import annotations

import json
import re
from typing import Any

import fastavro
import grpc
import pytest

from airflow_provider_sfstream.salesforce import pubsub_api_pb2 as pb
from tests.support.localorg import LocalOrg
from tests.support.subscriber import PREFIX, error_code


def refused(call: Any, request: Any, metadata: Any) -> grpc.RpcError:
    with pytest.raises(grpc.RpcError) as caught:
        call(request, metadata=metadata, timeout=60)
    return caught.value


def test_get_topic_returns_the_topic_info(org: LocalOrg, topic: str) -> None:
    info = org.stub().GetTopic(pb.TopicRequest(topic_name=topic), metadata=org.metadata())
    assert (info.topic_name, info.can_publish, info.can_subscribe) == (topic, True, True)
    assert info.tenant_guid == f"core/prod/{org.org_id}"
    assert re.fullmatch(r"[A-Za-z0-9_-]{22}", info.schema_id)
    assert info.rpc_id


def test_platform_event_schema_has_the_form_of_salesforce(org: LocalOrg) -> None:
    topic = org.define("Shape__e", Amount__c="double", Open__c="boolean", At__c="datetime", Note__c="text", N__c="int")
    info = org.stub().GetSchema(pb.SchemaRequest(schema_id=topic["schema_id"]), metadata=org.metadata())
    schema = json.loads(info.schema_json)
    assert info.schema_id == schema["uuid"] == topic["schema_id"]
    assert (schema["type"], schema["name"], schema["namespace"]) == ("record", "Shape__e", "com.sforce.eventbus")
    assert schema["fields"][:2] == [
        {"name": "CreatedDate", "type": "long", "doc": "CreatedDate:DateTime"},
        {"name": "CreatedById", "type": "string", "doc": "CreatedBy:EntityId"},
    ]
    custom = {field["name"]: field for field in schema["fields"][2:]}
    assert {name: field["type"] for name, field in custom.items()} == {
        "Amount__c": ["null", "double"],
        "Open__c": ["null", "boolean"],
        "At__c": ["null", "long"],
        "Note__c": ["null", "string"],
        "N__c": ["null", "int"],
    }
    assert re.fullmatch(r"Data:DateTime:00N\w{15}", custom["At__c"]["doc"])
    assert all(field["default"] is None for field in custom.values())
    fastavro.parse_schema(schema)


def test_changed_fields_create_a_new_schema_and_equal_fields_do_not(org: LocalOrg) -> None:
    first = org.define("Evolving__e", A__c="int")["schema_id"]
    second = org.define("Evolving__e", A__c="int", B__c="text")["schema_id"]
    assert second != first
    assert org.define("Evolving__e", A__c="int", B__c="text")["schema_id"] == second
    stub, metadata = org.stub(), org.metadata()
    assert stub.GetTopic(pb.TopicRequest(topic_name="/event/Evolving__e"), metadata=metadata).schema_id == second
    assert stub.GetSchema(pb.SchemaRequest(schema_id=first), metadata=metadata).schema_id == first


@pytest.mark.parametrize(
    ("rpc", "message", "status", "code"),
    [
        ("GetTopic", pb.TopicRequest(topic_name="/event/Nowhere__e"), "NOT_FOUND", "topic.not.found"),
        ("GetTopic", pb.TopicRequest(), "INVALID_ARGUMENT", "topic.validation.empty"),
        ("GetSchema", pb.SchemaRequest(schema_id="x" * 22), "PERMISSION_DENIED", "schema.meta.permission"),
        ("GetSchema", pb.SchemaRequest(), "INVALID_ARGUMENT", "schema.validation.failed"),
        ("Publish", pb.PublishRequest(), "INVALID_ARGUMENT", "publish.topic.validation.empty"),
        ("Publish", pb.PublishRequest(topic_name="/event/Nowhere__e"), "NOT_FOUND", "topic.not.found"),
        ("Publish", pb.PublishRequest(topic_name="/data/ChangeEvents"), "PERMISSION_DENIED", "topic.meta.permission"),
    ],
)
def test_errors_carry_salesforce_trailers(org: LocalOrg, rpc: str, message: Any, status: str, code: str) -> None:
    error = refused(getattr(org.stub(), rpc), message, org.metadata())
    trailers = dict(error.trailing_metadata())
    assert error.code().name == status
    assert trailers["error-code"] == PREFIX + code
    assert trailers["type"] == rpc
    assert error.details().endswith(f" rpcId: {trailers['rpc-id']}")


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"accesstoken": ""}, "service.auth.headers.invalid"),
        ({"accesstoken": "00Dnot!a.token"}, "service.auth.error"),
        ({"instanceurl": "acme.my.salesforce.com"}, "service.auth.headers.invalid"),
        ({"instanceurl": "https://acme.my.salesforce.com"}, "service.auth.headers.invalid"),
        ({"instanceurl": "https://acme.my.salesforce.com/services"}, "service.auth.headers.invalid"),
        ({"tenantid": "00D000000000000AAA"}, "service.auth.headers.invalid"),
    ],
)
def test_invalid_call_metadata_is_refused(org: LocalOrg, topic: str, changed: dict[str, str], code: str) -> None:
    metadata = {**dict(org.metadata()), **changed}
    error = refused(org.stub().GetTopic, pb.TopicRequest(topic_name=topic), list(metadata.items()))
    assert error.code() == grpc.StatusCode.UNAUTHENTICATED
    assert error_code(error) == code


def test_call_without_metadata_is_refused(org: LocalOrg, topic: str) -> None:
    error = refused(org.stub().GetTopic, pb.TopicRequest(topic_name=topic), None)
    assert error_code(error) == "service.auth.headers.invalid"


def test_tenant_may_be_given_in_15_characters(org: LocalOrg, topic: str) -> None:
    metadata = {**dict(org.metadata()), "tenantid": org.org_id[:15]}
    assert org.stub().GetTopic(pb.TopicRequest(topic_name=topic), metadata=list(metadata.items())).topic_name == topic


def test_request_log_has_the_outcomes_of_calls(org: LocalOrg, topic: str) -> None:
    org.admin("DELETE", "/requests")
    stub, metadata = org.stub(), org.metadata()
    stub.GetTopic(pb.TopicRequest(topic_name=topic), metadata=metadata)
    refused(stub.GetTopic, pb.TopicRequest(topic_name="/event/Nowhere__e"), metadata)
    outcomes = [(e["detail"]["topic"], e["outcome"]) for e in org.requests("grpc", "GetTopic")]
    assert outcomes == [(topic, "OK"), ("/event/Nowhere__e", "topic.not.found")]
