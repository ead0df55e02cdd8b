"""The asyncio client of the Streaming API: PushTopics, generic, platform and change events over CometD."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import httpx
from aiosfstream import ConstantReplayId, ReplayOption

from airflow_provider_sfstream.exceptions import SchemaError, ServiceUnavailableError, SessionExpiredError
from airflow_provider_sfstream.salesforce.api_versions import DEFAULT_API_VERSION, api_version_from
from airflow_provider_sfstream.salesforce.auth.tokens import AccessToken, TokenProvider
from airflow_provider_sfstream.salesforce.clients import AsyncOrgClient
from airflow_provider_sfstream.salesforce.errors.streaming import error_from_status
from airflow_provider_sfstream.salesforce.events import AsyncResponses, EventBatch, PayloadEncoding, StartFrom
from airflow_provider_sfstream.salesforce.network.bounded import UNPACKED, aread
from airflow_provider_sfstream.salesforce.network.proxies import how_far
from airflow_provider_sfstream.salesforce.network.settings import DEFAULT_NETWORK, NetworkSettings
from airflow_provider_sfstream.salesforce.schemas import LARGEST_SCHEMA, parse
from airflow_provider_sfstream.salesforce.streaming.cometd.client import CometdClient
from airflow_provider_sfstream.salesforce.streaming.cometd.http import SessionAuthenticator
from airflow_provider_sfstream.salesforce.streaming.cometd.messages import JsonDumps, JsonLoads
from airflow_provider_sfstream.salesforce.streaming.subscription import (
    CLOSED,
    MOST_EVENTS_OF_A_BATCH,
    StreamingSubscription,
    check_arguments,
)

log = logging.getLogger(__name__)

SCHEMA_TIMEOUT = 30.0
"""Seconds for the request of a schema."""


class AsyncStreamingClient(AsyncOrgClient):
    """Reader of one org's event streams from one event loop; also an async context manager that closes it.

    An :class:`~airflow_provider_sfstream.streams.source.AsyncEventSource`. Every subscription has its own CometD
    session, so that a failure affects only one; all share one login. Nothing blocks the loop. Errors are those of
    :mod:`airflow_provider_sfstream.exceptions`, never aiosfstream's or aiohttp's. ``schema`` logs in again once if
    Salesforce refuses the token; ``subscribe`` leaves that to its caller, who knows the replay ID to resume from.

    The constructor reads certificate authorities, and contacts nothing; it may run in another thread. The client then
    belongs to the event loop that first uses it.

    :param api_version: 37.0 or above, a leading ``v`` allowed.
    :param connection_timeout: seconds for opening a connection.
    :param max_pending_count: event messages that wait for their consumer at most; above that, reading stops.
    :param json_dumps: serialises messages; ``json_loads`` parses each. By default orjson where it is installed.
    """

    payload_encoding: PayloadEncoding = "json"
    confirms_positions = False
    _CLOSED = CLOSED

    def __init__(
        self,
        token_provider: TokenProvider,
        *,
        api_version: str = DEFAULT_API_VERSION,
        network: NetworkSettings = DEFAULT_NETWORK,
        connection_timeout: float = 10.0,
        max_pending_count: int = 1000,
        json_dumps: JsonDumps | None = None,
        json_loads: JsonLoads | None = None,
    ) -> None:
        super().__init__(token_provider, network=network)
        self.api_version = api_version_from(api_version)
        self._cometd_arguments: dict[str, Any] = {
            "api_version": self.api_version,
            "network": network,
            "connection_timeout": connection_timeout,
            "max_pending_count": max_pending_count,
            "json_dumps": json_dumps,
            "json_loads": json_loads,
        }
        self._subscriptions: set[StreamingSubscription] = set()
        _ = network.ssl_context  # read and cached here, because that would block the event loop

    async def aclose(self) -> None:
        """End every subscription; waiting callers receive a ``RuntimeError``. May be called again."""
        await super().aclose()
        await asyncio.gather(*(subscription.aclose() for subscription in list(self._subscriptions)))

    def how_far(self) -> str:
        """Return a sentence about the reachable part of the path to the org. Blocks for at most 10 seconds."""
        return how_far(self._session.token().instance_url, self._network.tls_ca, self._network.proxies)

    async def _request_schema(self, schema_id: str) -> str | None:
        if schema_id.startswith("/"):  # the name of a channel, where an event names no schema
            return None
        token = await self._session.atoken()
        with self._session.using(token):
            return await _event_schema(token, schema_id, self.api_version, self._network)

    async def check(self, topic: str | None = None) -> None:
        """Open a session, and subscribe to ``topic`` if it is not ``None``. Read no events."""
        name = topic or f"Streaming API {self.api_version}"
        if topic is not None:
            check_arguments(topic, StartFrom.LATEST, None)
        async with self._opened(name, int(ReplayOption.NEW_EVENTS), subscribe=topic is not None):
            pass

    def subscribe(
        self,
        topic: str,
        after: bytes | StartFrom,
        *,
        limit: int | None = None,
        silence_timeout: float,
        answer_within: float | None = None,
    ) -> AsyncResponses:
        """Yield batches of ``topic``, as every asynchronous event source does.

        A batch contains the received events, up to 1,000. The first one is empty: the subscription is active. A poll
        that Salesforce answers without events, after 110 seconds at most, is an empty batch too. It only proves
        contact: Salesforce may answer polls for hours without the events that it has stored (Salesforce Knowledge
        005321562). While the consumer is busy the client prefetches at most ``max_pending_count`` messages; Salesforce
        ends a session that has not polled for 40 seconds, with a retriable error (Streaming API guide, "Clients and
        Timeouts"). Closing the generator, or cancelling the task that waits for it, ends the session at Salesforce too.

        The API cannot request a number of events: the client discards events beyond ``limit``.

        :param answer_within: requested maximum of seconds for which Salesforce holds a poll; it may ignore this.
        """
        replay_id = check_arguments(topic, after, limit, silence_timeout=silence_timeout)
        return self._responses(topic, replay_id, limit, silence_timeout, answer_within)

    async def _responses(
        self, topic: str, replay_id: int, limit: int | None, silence_timeout: float, answer_within: float | None
    ) -> AsyncResponses:
        async with self._opened(topic, replay_id, held=answer_within) as subscription:
            yield EventBatch.without_events(received_at=time.time_ns())
            remaining = limit
            while remaining is None or remaining > 0:
                most = MOST_EVENTS_OF_A_BATCH if remaining is None else min(remaining, MOST_EVENTS_OF_A_BATCH)
                batch = await subscription.next_batch(most, silence_timeout)
                remaining = None if remaining is None else remaining - len(batch)
                yield batch

    def cometd_client(self, **arguments: Any) -> CometdClient:
        """Return an aiosfstream client that shares this client's login and settings. Needs a running event loop."""
        return CometdClient(SessionAuthenticator(self._session), **{**self._cometd_arguments, **arguments})

    @asynccontextmanager
    async def _opened(
        self, topic: str, replay_id: int, *, subscribe: bool = True, held: float | None = None
    ) -> AsyncIterator[StreamingSubscription]:
        self._check_open()
        cometd = self.cometd_client(replay=ConstantReplayId(replay_id), held=held)
        subscription = StreamingSubscription(cometd, self._session, topic)
        self._subscriptions.add(subscription)
        try:
            await subscription.open(subscribe=subscribe)
            yield subscription
        finally:
            self._subscriptions.discard(subscription)
            await subscription.aclose()


async def _event_schema(token: AccessToken, schema_id: str, api_version: str, network: NetworkSettings) -> str | None:
    """Return the schema of a payload over REST, the same as the Pub/Sub API's GetSchema returns (Platform Events
    Developer Guide, "Get the Event Schema", ``payloadFormat=COMPACT``).

    JSON payloads can be read without a schema. So a schema that Salesforce does not return (the user may not call REST,
    the ID is unknown) is no error: it is ``None``, with a warning in the log.
    """
    status, text = await _response(token, schema_id, api_version, network)
    if status != httpx.codes.OK:
        log.warning(
            "Salesforce did not return the schema %s of JSON events (HTTP %d); the events are read without it. To "
            "store the schema with them, grant the user the permission 'API Enabled' and read access to the event.",
            schema_id,
            status,
        )
        return None
    try:
        parse(text)
    except SchemaError as error:
        log.warning("The schema %s of JSON events is invalid; the events are read without it. %s", schema_id, error)
        return None
    return text


async def _response(token: AccessToken, schema_id: str, api_version: str, network: NetworkSettings) -> tuple[int, str]:
    path = f"services/data/v{api_version}/event/eventSchema/{quote(schema_id, safe='')}"
    url = f"{token.instance_url}/{path}?payloadFormat=COMPACT"
    headers = {"Authorization": f"Bearer {token.value}", **UNPACKED}
    what = f"schema {schema_id}"
    try:
        # One client for each request: requests for schemas are rare, and an idle connection would be closed by then.
        async with httpx.AsyncClient(timeout=SCHEMA_TIMEOUT, **network.httpx_options(url)) as client:
            answer = await client.send(client.build_request("GET", url, headers=headers), stream=True)
            response = await aread(answer, most_bytes=LARGEST_SCHEMA, most_seconds=SCHEMA_TIMEOUT)
    except httpx.HTTPError as fault:
        # Without the cause: it contains the request, and with it the token.
        raise error_from_status(None, f"{type(fault).__name__}: {fault}", topic=what) from None
    error = error_from_status(response.status_code, topic=what)
    is_unavailable = response.status_code >= 400 and isinstance(error, ServiceUnavailableError)
    if is_unavailable or isinstance(error, SessionExpiredError):
        raise error
    return response.status_code, response.text
