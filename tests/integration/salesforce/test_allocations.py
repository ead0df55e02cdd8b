"""Remaining allocations, read from a local org."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import (
    AccessDeniedError,
    AllocationUnknownError,
    ConfigurationError,
    QuotaExceededError,
    SalesforceStreamError,
    ServiceUnavailableError,
)
from airflow_provider_sfstream.hooks.salesforce_allocations import AllocationClient
from airflow_provider_sfstream.salesforce.auth.tokens import AccessToken
from airflow_provider_sfstream.salesforce.events import StartFrom
from airflow_provider_sfstream.streams.watch.conditions import WakeUpConditions
from airflow_provider_sfstream.streams.watch.poll import poll
from tests.support.clients import pubsub_client, token_provider
from tests.support.localorg import LocalOrg
from tests.support.rest_proxy import RestProxy


@pytest.fixture
def client(org: LocalOrg) -> Iterator[AllocationClient]:
    with AllocationClient(token_provider(org)) as one:
        yield one


class Tokens:
    """Token provider whose instance URL leads to the org through a proxy."""

    def __init__(self, org: LocalOrg, url: str) -> None:
        self._org, self._url = org, url

    def token(self) -> AccessToken:
        return AccessToken(self._org.token(), self._url, self._org.org_id)

    async def atoken(self) -> AccessToken:
        return self.token()

    def invalidate(self, token: AccessToken) -> None:
        """Do nothing: no token is cached."""


@pytest.fixture
def proxy(org: LocalOrg) -> Iterator[RestProxy]:
    with RestProxy.running(org.instance_url) as one:
        yield one


@pytest.fixture
def proxied(org: LocalOrg, proxy: RestProxy) -> Iterator[AllocationClient]:
    with AllocationClient(Tokens(org, proxy.url)) as one:  # type: ignore[arg-type]
        yield one


def test_delivered_events_are_counted(org: LocalOrg, topic: str, client: AllocationClient) -> None:
    delivered = org.admin("GET", "/org")["delivered"]
    org.knobs(delivery_quota=delivered + 100)
    (found,) = client.get("DailyDeliveredPlatformEvents")
    assert (found.most, found.remaining) == (delivered + 100, 100)
    org.publish(topic, [{"Amount__c": 1.0}] * 3)
    with pubsub_client(org) as reader:
        assert poll(reader, topic, StartFrom.EARLIEST, WakeUpConditions(min_events=3)) is not None
    (found,) = client.get("DailyDeliveredPlatformEvents")
    assert found.remaining == 97


def test_several_allocations_are_read_with_one_request(org: LocalOrg, client: AllocationClient) -> None:
    (before,) = client.get("DailyApiRequests")
    after, events = client.get("DailyApiRequests", "HourlyPublishedPlatformEvents")
    assert (before.remaining - after.remaining, events.name) == (1, "HourlyPublishedPlatformEvents")


def test_unknown_allocation_raises_an_error_with_similar_names(client: AllocationClient) -> None:
    with pytest.raises(AllocationUnknownError) as caught:
        client.get("DailyDeliveredPlatformEvent")
    assert "it is unknown whether enough remains" in str(caught.value)
    assert "(DailyDeliveredPlatformEvents" in str(caught.value)
    assert not caught.value.retriable


def test_revoked_token_is_renewed_by_the_allocation_client(org: LocalOrg, client: AllocationClient) -> None:
    client.all()
    org.revoke()
    assert client.all()


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (403, "INSUFFICIENT_ACCESS", AccessDeniedError),
        (403, "REQUEST_LIMIT_EXCEEDED", QuotaExceededError),
        (503, "SERVER_UNAVAILABLE", ServiceUnavailableError),
        (404, "NOT_FOUND", ConfigurationError),
    ],
)
def test_refused_request_raises_an_error_about_allocations(
    proxied: AllocationClient, proxy: RestProxy, status: int, code: str, kind: type[SalesforceStreamError]
) -> None:
    proxy.error("GET", "/limits", status, code)
    with pytest.raises(kind, match=r"^the org's allocations: "):
        proxied.all()


@pytest.mark.parametrize("answer", [[], {"DailyApiRequests": "many"}, {}])
def test_response_without_allocations_is_refused(proxied: AllocationClient, proxy: RestProxy, answer: Any) -> None:
    proxy.answer("GET", "/limits", 200, answer)
    with pytest.raises(ConfigurationError):
        proxied.get("DailyApiRequests")


NOW = datetime(2026, 11, 24, 11, 23, tzinfo=UTC)


def test_delivered_events_are_queried_as_salesforce_documents_it(
    proxied: AllocationClient, proxy: RestProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The local org has no PlatformEventUsageMetric; the rows are from the Platform Events guide."""
    queries: list[str] = []
    request = proxied.request
    monkeypatch.setattr(
        proxied,
        "request",
        lambda *path, **how: queries.append(how["parameters"]["q"]) or request(*path, **how),
    )
    for value in (1_154, 15):
        row = {"attributes": {}, "Name": "X", "StartDate": "2026-11-23T11:00:00.000+0000", "Value": value}
        proxy.answer("GET", "/query", 200, {"totalSize": 1, "done": True, "records": [row]})
    assert proxied.delivered(NOW) == {"platform events": 1_154, "change events": 15}
    assert queries[0] == (
        "SELECT Name, StartDate, EndDate, Value FROM PlatformEventUsageMetric WHERE Name = "
        "'PLATFORM_EVENTS_DELIVERED' AND StartDate = 2026-11-23T11:00:00.000Z AND EndDate = 2026-11-24T11:00:00.000Z"
    )
    assert "'CHANGE_EVENTS_DELIVERED'" in queries[1]


def test_event_kind_without_a_number_is_left_out(proxied: AllocationClient, proxy: RestProxy) -> None:
    proxy.answer("GET", "/query", 200, {"totalSize": 0, "done": True, "records": []})
    proxy.answer("GET", "/query", 200, {"totalSize": 1, "done": True, "records": [{"Value": 0}]})
    assert proxied.delivered(NOW) == {"change events": 0}


def test_org_without_the_usage_metric_raises(client: AllocationClient) -> None:
    with pytest.raises(SalesforceStreamError, match="the metric PLATFORM_EVENTS_DELIVERED of PlatformEventUsageMetric"):
        client.delivered(NOW)
