"""Refusals of the Pub/Sub API: status, ``error-code``, trailers, text."""

from __future__ import annotations

from typing import Any

from airflow_provider_sfstream.salesforce import pubsub_api_pb2 as pb
from live_check.calls import Stream, asked
from live_check.events import publish, sample_schema
from live_check.probe import probe
from live_check.run import ACCOUNT_CHANGES, MANAGED_SUBSCRIPTION, SAMPLE_EVENT, ProbeRun

UNKNOWN_TOPIC = "/event/Airflow_No_Such_Event__e"
UNKNOWN_SCHEMA = "AAAAAAAAAAAAAAAAAAAAAA"
NEVER_GIVEN = b"\x7f\xff\xff\xff\xff\xff\xff\x00\x00\x00"
"""A replay ID in the usual format that is higher than those of all orgs."""
END_SECONDS = 20.0


@probe("How are calls with wrong login headers refused?")
def header_refusals(run: ProbeRun) -> Any:
    run.topic(SAMPLE_EVENT)
    request = pb.TopicRequest(topic_name=SAMPLE_EVENT)
    cases: dict[str, dict[str, str | None]] = {
        "no_token": {"accesstoken": None},
        "blank_token": {"accesstoken": " "},
        "unknown_token": {"accesstoken": f"{run.org.login.org_id[:15]}!AQ0AQwrong"},
        "no_instance_url": {"instanceurl": None},
        "instance_url_of_another_host": {"instanceurl": "https://elsewhere.my.salesforce.com"},
        "no_tenant": {"tenantid": None},
        "tenant_of_another_org": {"tenantid": "00D000000000000AAA"},
        "tenant_of_15_characters": {"tenantid": run.org.login.org_id[:15]},
    }
    return {case: asked(run, "GetTopic", request, **changes) for case, changes in cases.items()}


@probe("How are unknown topics and schemas refused?")
def topic_refusals(run: ProbeRun) -> Any:
    run.topic(SAMPLE_EVENT)
    return {
        "empty_topic": asked(run, "GetTopic", pb.TopicRequest()),
        "unknown_topic": asked(run, "GetTopic", pb.TopicRequest(topic_name=UNKNOWN_TOPIC)),
        "other_case": asked(run, "GetTopic", pb.TopicRequest(topic_name=SAMPLE_EVENT.lower())),
        "push_topic": asked(run, "GetTopic", pb.TopicRequest(topic_name="/topic/AirflowNoSuchTopic")),
        "empty_schema": asked(run, "GetSchema", pb.SchemaRequest()),
        "unknown_schema": asked(run, "GetSchema", pb.SchemaRequest(schema_id=UNKNOWN_SCHEMA)),
    }


def subscribed(run: ProbeRun, *requests: dict[str, Any]) -> dict[str, Any]:
    """Send a Subscribe call with these requests and return its end."""
    with Stream(run) as stream:
        for fields in requests:
            stream.send(**fields)
        return stream.end(END_SECONDS)


@probe("How are subscriptions refused?")
def subscribe_refusals(run: ProbeRun) -> Any:
    run.topic(SAMPLE_EVENT)
    one = {"topic_name": SAMPLE_EVENT, "num_requested": 1}
    custom = {**one, "replay_preset": pb.CUSTOM}
    return {
        "empty_topic": subscribed(run, {"num_requested": 1}),
        "unknown_topic": subscribed(run, {**one, "topic_name": UNKNOWN_TOPIC}),
        "unknown_token": _unknown_token(run, one),
        "none_requested": subscribed(run, {**one, "num_requested": 0}),
        "fewer_than_none_requested": subscribed(run, {**one, "num_requested": -1}),
        "none_requested_later": subscribed(run, one, {"num_requested": 0}),
        "another_topic_later": subscribed(run, one, {**one, "topic_name": ACCOUNT_CHANGES}),
        "no_replay_id": subscribed(run, custom),
        "malformed_replay_id": subscribed(run, {**custom, "replay_id": b"\x01\x02\x03"}),
        "replay_id_never_given": subscribed(run, {**custom, "replay_id": NEVER_GIVEN}),
    }


def _unknown_token(run: ProbeRun, request: dict[str, Any]) -> dict[str, Any]:
    with Stream(run, accesstoken=f"{run.org.login.org_id[:15]}!AQ0AQwrong") as stream:
        return stream.send(**request).end(END_SECONDS)


@probe("How is publishing refused?", events=2)
def publish_refusals(run: ProbeRun) -> Any:
    schema = sample_schema(run)
    event = pb.ProducerEvent(id="1", schema_id=schema.id, payload=b"\x00")
    unknown = pb.ProducerEvent(id="1", schema_id=UNKNOWN_SCHEMA, payload=b"\x00")
    cases = {
        "no_event": pb.PublishRequest(topic_name=SAMPLE_EVENT),
        "empty_topic": pb.PublishRequest(events=[event]),
        "unknown_topic": pb.PublishRequest(topic_name=UNKNOWN_TOPIC, events=[event]),
        "change_event": pb.PublishRequest(topic_name=ACCOUNT_CHANGES, events=[event]),
    }
    answers: dict[str, Any] = {name: asked(run, "Publish", request) for name, request in cases.items()}
    for name, one in {"unreadable_payload": event, "unknown_schema": unknown}.items():
        answers[name] = _result(run, one)
    return answers


def _result(run: ProbeRun, event: pb.ProducerEvent) -> Any:
    """Publish an invalid event; return the error in its result, or the error of the whole call."""
    refused = asked(run, "Publish", pb.PublishRequest(topic_name=SAMPLE_EVENT, events=[event]))
    if refused["status"] != "OK":
        return refused
    result = publish(run, event).results[0]
    return {
        "status": "OK",
        "error": pb.ErrorCode.Name(result.error.code) if result.HasField("error") else None,
        "message": run.org.redact(result.error.msg),
        "has_replay_id": bool(result.replay_id),
        "has_key": bool(result.correlation_key),
    }


@probe("How are managed streams refused?", events=4)
def managed_refusals(run: ProbeRun) -> Any:
    run.managed_id()
    name = {"developer_name": MANAGED_SUBSCRIPTION, "num_requested": 1}
    commit = pb.CommitReplayRequest(commit_request_id="1", replay_id=NEVER_GIVEN)
    cases: dict[str, dict[str, Any]] = {
        "none_named": {"num_requested": 1},
        "two_named": {**name, "subscription_id": "18x000000000000AAA"},
        "unknown_name": {"developer_name": "Airflow_No_Such_Subscription", "num_requested": 1},
        "unknown_id": {"subscription_id": "18x000000000000AAA", "num_requested": 1},
        "id_of_something_else": {"subscription_id": "001000000000000AAA", "num_requested": 1},
        "commit_in_first_request": {**name, "commit_replay_id_request": commit},
        "none_requested": {**name, "num_requested": 0},
    }
    answers = {case: _managed(run, fields) for case, fields in cases.items()}
    with Stream(run, "ManagedSubscribe") as first:
        first.send(**name).next(END_SECONDS)
        answers["already_active"] = _managed(run, name)
        answers["another_name_later"] = first.send(developer_name="Another", num_requested=1).end(END_SECONDS)
    return answers


def _managed(run: ProbeRun, fields: dict[str, Any]) -> dict[str, Any]:
    with Stream(run, "ManagedSubscribe") as stream:
        return stream.send(**fields).end(END_SECONDS)


PROBES = [
    header_refusals,
    topic_refusals,
    subscribe_refusals,
    publish_refusals,
    managed_refusals,
]
