"""Retention of a topic's events, as a hook reads it from the org."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import httpx
import pytest

from airflow_provider_sfstream.exceptions import AuthenticationError
from airflow_provider_sfstream.hooks.event_topics import event_hook
from tests.support.localorg import LocalOrg
from tests.support.rest_proxy import RestProxy
from tests.support.tasks import set_connection

UNKNOWN = "/event/Order__e: the retention of its events is unknown."
PERMISSION = "'View Setup and Configuration'"


def definition(record_id: str, event_type: str | None, namespace: str | None = None) -> dict[str, Any]:
    """Return a row of a Tooling API query of CustomObject, with the metadata that the hook reads."""
    url = f"/services/data/v62.0/tooling/sobjects/CustomObject/{record_id}"
    metadata = {"eventType": event_type, "deploymentStatus": "Deployed", "label": "Order", "fields": [], "urls": None}
    attributes = {"type": "CustomObject", "url": url}
    return {"attributes": attributes, "Id": record_id, "NamespacePrefix": namespace, "Metadata": metadata}


def answer_of(*rows: dict[str, Any]) -> dict[str, Any]:
    kind = "CustomObject"
    return {"size": len(rows), "totalSize": len(rows), "done": True, "entityTypeName": kind, "records": list(rows)}


SEVERAL = [
    {
        "errorCode": "MALFORMED_QUERY",
        "message": "When retrieving results with Metadata or FullName fields, the query qualifications must specify no "
        "more than one row for retrieval. Result size: 2",
    }
]
DENIED = [{"errorCode": "INSUFFICIENT_ACCESS", "message": "You do not have access to this resource."}]


@pytest.fixture
def proxy(org: LocalOrg, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Start a proxy between the hook and the org that can answer in place of the org."""
    with RestProxy.running(org.instance_url) as one:
        extra = {"access_token": org.token(), "instance_url": one.url, "organization_id": org.org_id}
        set_connection(monkeypatch, "sf", conn_type="salesforce", extra=extra)
        yield one


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the paths and queries of the requests that this process sends to the Tooling API."""
    sent: list[str] = []
    send = httpx.Client.send

    def noted(self: httpx.Client, request: httpx.Request, **how: Any) -> httpx.Response:
        if "/tooling/" in request.url.path:
            sent.append(request.url.params.get("q") or request.url.path.rpartition("/tooling/")[2])
        return send(self, request, **how)

    monkeypatch.setattr(httpx.Client, "send", noted)
    return sent


@pytest.mark.parametrize("api", ["pubsub", "streaming"])
@pytest.mark.parametrize(("event_type", "hours"), [("HighVolume", 72), ("StandardVolume", 24)])
def test_volume_of_a_custom_event_decides_the_retention(
    proxy: RestProxy, queries: list[str], api: Any, event_type: str, hours: int
) -> None:
    proxy.answer("GET", "/tooling/query/", 200, answer_of(definition("01I000000000001AAA", event_type)))
    hook = event_hook(api, "sf")
    assert hook.event_retention("/event/Order__e") == timedelta(hours=hours)
    assert hook.event_retention("/event/Order__e") == timedelta(hours=hours)
    assert queries == ["SELECT Id, NamespacePrefix, Metadata FROM CustomObject WHERE DeveloperName = 'Order'"]


@pytest.mark.parametrize(("volume", "hours"), [("high", 72), ("standard", 24)])
def test_volume_of_an_event_of_the_local_org_is_read_once(
    org: LocalOrg, make_connection: Callable[..., None], queries: list[str], volume: str, hours: int
) -> None:
    name = f"Volume_{volume}__e"
    org.define(name, volume=volume, Number__c="double")
    make_connection()
    hook = event_hook("pubsub", "sf")
    assert hook.event_retention(f"/event/{name}") == timedelta(hours=hours)
    assert len(queries) == 1
    assert hook.event_retention("/event/Nowhere__e") is None


@pytest.mark.parametrize(
    ("topic", "hours"), [("/data/AccountChangeEvent", 72), ("/event/Orders__chn", 72), ("/event/LoginEventStream", 72)]
)
def test_no_request_is_sent_when_the_topic_name_decides_the_retention(proxy: RestProxy, topic: str, hours: int) -> None:
    assert event_hook("pubsub", "sf").event_retention(topic) == timedelta(hours=hours)
    assert event_hook("streaming", "sf").event_retention("/u/Notes") == timedelta(hours=24)
    assert proxy.requests == []


def test_event_of_a_package_is_found_by_namespace(proxy: RestProxy, queries: list[str]) -> None:
    rows = answer_of(definition("01I000000000001AAA", "StandardVolume", "Shop"))
    proxy.answer("GET", "/tooling/query/", 200, rows, times=2)
    hook = event_hook("pubsub", "sf")
    assert hook.event_retention("/event/Shop__Order__e") == timedelta(hours=24)
    assert queries[0].endswith("WHERE DeveloperName = 'Order' AND NamespacePrefix = 'Shop'")
    assert hook.event_retention("/event/Order__e") is None, "an event of a package is a different event"


def test_event_is_found_among_objects_with_the_same_developer_name(proxy: RestProxy, queries: list[str]) -> None:
    rows = [definition("01I000000000001AAA", None), definition("01I000000000002AAA", "StandardVolume")]
    proxy.answer("GET", "/tooling/query/", 400, SEVERAL)
    proxy.answer("GET", "/tooling/query/", 200, answer_of(*rows))
    for row in rows:
        proxy.answer("GET", f"/tooling/sobjects/CustomObject/{row['Id']}", 200, row)
    assert event_hook("pubsub", "sf").event_retention("/event/Order__e") == timedelta(hours=24)
    assert queries[1:] == [
        "SELECT Id, NamespacePrefix FROM CustomObject WHERE DeveloperName = 'Order'",
        *(f"sobjects/CustomObject/{row['Id']}" for row in rows),
    ]


@pytest.mark.parametrize(
    ("status", "body", "cause"),
    [
        (403, DENIED, "the user lacks a permission"),
        (400, [{"errorCode": "INVALID_TYPE", "message": "sObject type 'CustomObject' is not supported."}], "records"),
        (503, [{"errorCode": "SERVER_UNAVAILABLE", "message": "Busy."}], "unavailable"),
        (400, SEVERAL, "rejected"),
        (200, answer_of(), "no definition"),
        (200, answer_of(definition("01I000000000001AAA", None)), "no definition"),
        (200, answer_of({"Id": "01I000000000001AAA", "Metadata": "hidden"}), "no definition"),
        (200, answer_of({"Id": "01I000000000001AAA", "Metadata": {"eventType": ["HighVolume"]}}), "no definition"),
        (200, {"records": [{"Id": "01I000000000001AAA"}]}, "the response to the query"),
        (200, {"records": "none"}, "the response to the query"),
    ],
)
def test_unknown_retention_logs_one_warning(
    proxy: RestProxy, capsys: pytest.CaptureFixture[str], status: int, body: Any, cause: str
) -> None:
    proxy.answer("GET", "/tooling/query/", status, body, times=2)
    hook = event_hook("pubsub", "sf")
    assert hook.event_retention("/event/Order__e") is None
    assert hook.event_retention("/event/Order__e") is None
    (warning,) = [line for line in capsys.readouterr().out.splitlines() if UNKNOWN in line]
    for part in (cause, PERMISSION, "24 hours are assumed", "connection 'sf'"):
        assert part in warning, part


def test_failed_login_raises_instead_of_unknown_retention(
    org: LocalOrg, make_connection: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    make_connection(consumer_secret="wrong")
    with pytest.raises(AuthenticationError):
        event_hook("pubsub", "sf").event_retention("/event/Order__e")
    assert UNKNOWN not in capsys.readouterr().out


@pytest.fixture
def make_connection(org: LocalOrg, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Define the Airflow connection. Keyword arguments override its extras."""

    def define(**changes: str) -> None:
        extra = {"login_url": org.login_url, "consumer_key": org.client_id, "consumer_secret": org.client_secret}
        set_connection(monkeypatch, "sf", conn_type="salesforce", extra={**extra, **changes})

    return define
