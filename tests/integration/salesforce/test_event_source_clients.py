"""Connections and schemas of the client of each event source, against a real server.

A managed subscription has no client of its own: a client of the Pub/Sub API reads it.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import pytest

from airflow_provider_sfstream.exceptions import ConfigurationError, ServiceUnavailableError
from airflow_provider_sfstream.salesforce.network.settings import NetworkSettings
from airflow_provider_sfstream.salesforce.schemas import record_name
from tests.support.event_sources import EVENT_SOURCES, EventSourceAdapter, sources
from tests.support.localorg import LocalOrg
from tests.support.readers import first_events

Opened = Callable[..., EventSourceAdapter]

CLIENTS = [kind for kind in EVENT_SOURCES if not kind.is_managed]
asyncio_only = sources(lambda kind: kind in CLIENTS and kind.is_asyncio)
pubsub_only = sources(lambda kind: kind in CLIENTS and kind.rpc is not None)


@pytest.fixture(params=CLIENTS, ids=lambda kind: kind.name)
def source_kind(request: pytest.FixtureRequest) -> type[EventSourceAdapter]:
    """Return each client in turn."""
    kind: type[EventSourceAdapter] = request.param
    return kind


def schema_id_of(org: LocalOrg, topic: str) -> str:
    return str(next(t["schema_id"] for t in org.admin("GET", "/topics")["topics"] if t["name"] == topic))


class TestConnecting:
    async def test_tls_with_the_certificate_authority_of_the_org(
        self, org: LocalOrg, source_kind: type[EventSourceAdapter], open_source: Opened, topic: str
    ) -> None:
        org.publish(topic, [{"Amount__c": 1.0}])
        source = open_source(**source_kind.over_tls(org, org.ca_file))
        batch = await first_events(source, topic)
        assert batch.replay_ids == source.replay_ids(topic)
        assert await source.schema(batch.schema_ids[0])

    async def test_unknown_certificate_authority_raises_a_configuration_error(
        self,
        org: LocalOrg,
        source_kind: type[EventSourceAdapter],
        open_source: Opened,
        topic: str,
        other_authority: str,
    ) -> None:
        for tls_ca in (other_authority, None):
            with pytest.raises(ConfigurationError, match="tls_ca"):
                await first_events(open_source(**source_kind.over_tls(org, tls_ca)), topic)

    @pubsub_only
    async def test_port_with_another_protocol_raises_a_configuration_error(
        self, org: LocalOrg, open_source: Opened, topic: str
    ) -> None:
        for options, part in [
            ({"endpoint": f"localhost:{org.grpc_port}", "network": NetworkSettings(org.ca_file)}, "uses TLS"),
            ({"endpoint": f"http://localhost:{org.http_port}"}, "does not serve the Pub/Sub API"),
        ]:
            with pytest.raises(ConfigurationError, match=part):
                await first_events(open_source(**options), topic)

    @pubsub_only
    async def test_unused_port_raises_service_unavailable(self, open_source: Opened, topic: str) -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            source = open_source(endpoint=f"http://127.0.0.1:{unused.getsockname()[1]}")
            with pytest.raises(ServiceUnavailableError, match="pubsub_endpoint"):
                await first_events(source, topic)

    async def test_invalid_client_options_are_refused_before_any_request(
        self, org: LocalOrg, source_kind: type[EventSourceAdapter]
    ) -> None:
        before = len(org.requests())
        for options, part in source_kind.invalid_options:
            with pytest.raises(ConfigurationError, match=part):
                source_kind(org, **options)
        assert len(org.requests()) == before


class TestSchemas:
    async def test_schema_is_requested_once_by_concurrent_and_later_calls(
        self, org: LocalOrg, source: EventSourceAdapter, topic: str
    ) -> None:
        schema_id = schema_id_of(org, topic)
        before = source.schema_requests(schema_id)
        [schema] = set(await asyncio.gather(*(source.schema(schema_id) for _ in range(8))))
        assert await source.schema(schema_id) == schema
        assert record_name(schema or "") == topic.removeprefix("/event/")
        assert source.schema_requests(schema_id) == before + 1

    async def test_a_revoked_token_is_renewed_within_the_call(
        self, org: LocalOrg, source: EventSourceAdapter, topic: str
    ) -> None:
        await source.schema(schema_id_of(org, topic))
        org.define(topic.removeprefix("/event/"), Other__c="string")
        schema_id = schema_id_of(org, topic)
        org.revoke()
        before = int(org.admin("GET", "/oauth")["requests"])
        assert "Other__c" in (await source.schema(schema_id) or "")
        assert int(org.admin("GET", "/oauth")["requests"]) == before + 1

    @pubsub_only
    async def test_failed_schema_request_reaches_all_callers_and_is_not_cached(
        self, org: LocalOrg, source: EventSourceAdapter, topic: str
    ) -> None:
        schema_id = schema_id_of(org, topic)
        org.fault("fail_calls", rpc="GetSchema", code="service.unavailable", status="INTERNAL")
        many = 10 if source.is_asyncio else 1
        outcomes = await asyncio.gather(*(source.schema(schema_id) for _ in range(many)), return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {ServiceUnavailableError}
        assert all(schema_id in str(outcome) for outcome in outcomes)
        assert await source.schema(schema_id)

    @asyncio_only
    async def test_cancelled_schema_request_does_not_affect_others(
        self, org: LocalOrg, source: EventSourceAdapter, topic: str
    ) -> None:
        schema_id = schema_id_of(org, topic)
        request, other = (asyncio.create_task(source.schema(schema_id)) for _ in range(2))
        await asyncio.sleep(0)
        request.cancel()
        assert schema_id in (await other or "")
        assert request.cancelled()

    @asyncio_only
    async def test_close_ends_pending_schema_requests(
        self, org: LocalOrg, source: EventSourceAdapter, topic: str
    ) -> None:
        request = asyncio.create_task(source.schema(schema_id_of(org, topic)))
        await asyncio.sleep(0)
        await source.aclose()
        with pytest.raises(RuntimeError, match="closed"):
            await request
