"""Refusals of REST and the Tooling API. If an org unexpectedly creates a record, it is deleted again."""

from __future__ import annotations

from typing import Any

import httpx

from live_check.probe import probe
from live_check.run import CHANNEL, SAMPLE_EVENT, ProbeRun

MANAGED = "/tooling/sobjects/ManagedEventSubscription"
CHANNELS = "/tooling/sobjects/PlatformEventChannel"
MEMBERS = "/tooling/sobjects/PlatformEventChannelMember"


def answered(run: ProbeRun, answer: httpx.Response) -> Any:
    """Return the status and the error codes of a response."""
    try:
        body = answer.json() if answer.content else None
    except ValueError:
        body = "no JSON"
    errors = body if isinstance(body, list) else []
    return {
        "http_status": answer.status_code,
        "error_codes": [error.get("errorCode") for error in errors],
        "messages": run.org.redact([error.get("message") for error in errors]),
    }


@probe("How does REST refuse?")
def rest_refusals(run: ProbeRun) -> Any:
    stranger = {"Authorization": "Bearer 00D000000000000!AQ0AQwrong"}
    limits = run.org.rest("GET", "/limits")
    allocations = (
        *("DailyApiRequests", "DailyDeliveredPlatformEvents", "HourlyPublishedPlatformEvents"),
        *("DailyDurableStreamingApiEvents", "DailyDurableGenericStreamingApiEvents"),
    )
    return {
        "unknown_token": answered(run, run.org.rest("GET", "/limits", headers=stranger)),
        "unknown_path": answered(run, run.org.rest("GET", "/nothing")),
        "unknown_object": answered(run, run.org.rest("GET", "/sobjects/Nothing__c/describe")),
        "unknown_record": answered(run, run.org.rest("GET", "/sobjects/Account/001000000000000AAA")),
        "unknown_field": _query(run, "/query", "SELECT Nothing__c FROM Account"),
        "managed_in_plain_query": _query(run, "/query", "SELECT Id FROM ManagedEventSubscription"),
        "limits": [name for name in allocations if limits.is_success and name in limits.json()],
        "limit_header": "Sforce-Limit-Info" in limits.headers,
    }


def _query(run: ProbeRun, path: str, query: str) -> Any:
    return answered(run, run.org.rest("GET", path, params={"q": query}))


@probe("How does the Tooling API refuse channels, members and managed subscriptions?")
def tooling_refusals(run: ProbeRun) -> Any:
    run.topic(SAMPLE_EVENT)
    run.topic(CHANNEL)
    managed = {"label": "Live check", "topicName": SAMPLE_EVENT, "state": "RUN", "version": "62.0"}
    channel = {"channelType": "data", "label": "Live check"}
    member = {"eventChannel": CHANNEL.removeprefix("/data/"), "selectedEntity": "ContactChangeEvent"}
    bodies: dict[str, tuple[str, str, Any]] = {
        "managed_paused": (MANAGED, "Airflow_Live_Check", {**managed, "state": "PAUSE"}),
        "managed_unknown_topic": (MANAGED, "Airflow_Live_Check", {**managed, "topicName": "/event/No_Such__e"}),
        "managed_without_topic": (MANAGED, "Airflow_Live_Check", {"label": "Live check", "state": "RUN"}),
        "managed_replay": (MANAGED, "Airflow_Live_Check", {**managed, "defaultReplay": "SOMETIME"}),
        "managed_name": (MANAGED, "Airflow__Live__Check_", managed),
        "channel_type": (CHANNELS, "Airflow_Live_Check__chn", {**channel, "channelType": "nothing"}),
        "channel_name": (CHANNELS, "Airflow_Live_Check", channel),
        "channel_without_label": (CHANNELS, "Airflow_Live_Check__chn", {"channelType": "data"}),
        "member_twice": (MEMBERS, "Airflow_Live_Check", member),
        "member_unknown_channel": (MEMBERS, "Airflow_Live_Check", {**member, "eventChannel": "No_Such__chn"}),
        "member_unknown_entity": (MEMBERS, "Airflow_Live_Check", {**member, "selectedEntity": "NoSuchChangeEvent"}),
        "member_of_events": (MEMBERS, "Airflow_Live_Check", {**member, "selectedEntity": "Airflow_Order__e"}),
        "filter_syntax": (MEMBERS, "Airflow_Live_Check", _opportunities(filterExpression="Amount >")),
        "filter_field": (MEMBERS, "Airflow_Live_Check", _opportunities(filterExpression="Nothing__c = 1")),
        "enriched_field": (MEMBERS, "Airflow_Live_Check", _opportunities(enrichedFields=[{"name": "Nothing__c"}])),
    }
    answers = {case: _posted(run, *body) for case, body in bodies.items()}
    columns = "SELECT Id, Metadata FROM PlatformEventChannelMember"
    answers["metadata_of_several"] = _query(run, "/tooling/query", columns)
    answers["filter_by_metadata"] = _query(run, "/tooling/query", f"{columns} WHERE FullName = 'x'")
    answers["unknown_record"] = answered(run, run.org.rest("GET", f"{CHANNELS}/0YL000000000000AAA"))
    return answers


def _opportunities(**fields: Any) -> dict[str, Any]:
    return {"eventChannel": CHANNEL.removeprefix("/data/"), "selectedEntity": "OpportunityChangeEvent", **fields}


def _posted(run: ProbeRun, path: str, name: str, metadata: Any) -> Any:
    return answered(run, run.org.create(path, {"FullName": name, "Metadata": metadata}))


PROBES = [rest_refusals, tooling_refusals]
