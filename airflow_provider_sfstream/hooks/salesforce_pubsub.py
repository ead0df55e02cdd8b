"""Hook of the Pub/Sub API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_provider_sfstream.exceptions import AccessDeniedError, SalesforceStreamError, TopicNotFoundError
from airflow_provider_sfstream.hooks.salesforce import SalesforceSettings
from airflow_provider_sfstream.hooks.salesforce_events import SalesforceEventHook, SharedOnLoop

if TYPE_CHECKING:
    from airflow_provider_sfstream.salesforce.pubsub.async_client import AsyncPubSubClient
    from airflow_provider_sfstream.salesforce.pubsub.channel import Endpoint
    from airflow_provider_sfstream.salesforce.pubsub.client import PubSubClient
    from airflow_provider_sfstream.salesforce.pubsub.publishing import PublishedEvent

_TOPIC_OF_EVERY_ORG = "/data/ChangeEvents"

_async_clients: SharedOnLoop[AsyncPubSubClient] = SharedOnLoop()


class SalesforcePubSubHook(SalesforceEventHook):
    """Subscribe to and publish Salesforce events through the Pub/Sub API.

    :param salesforce_conn_id: the Airflow connection.
    """

    def get_conn(self) -> PubSubClient:
        """Return a new client, connected on first use; the caller closes it (``with hook.get_conn() as client``)."""
        from airflow_provider_sfstream.salesforce.pubsub.client import PubSubClient

        return PubSubClient(self.token_provider(), **pubsub_arguments(self.settings()))

    @asynccontextmanager
    async def async_client(self) -> AsyncIterator[AsyncPubSubClient]:
        """Yield the asyncio client of this connection.

        Users on one event loop with equal connections share one client: one network connection and one login, closed
        when the last user leaves. Nothing blocks the loop. A hook reads its Airflow connection once; a new hook reads
        later changes, and then receives another client.
        """
        settings = await self.asettings()
        async with _async_clients.use(settings, lambda: asyncio.to_thread(self._new_async_client, settings)) as client:
            yield client

    def _new_async_client(self, settings: SalesforceSettings) -> AsyncPubSubClient:
        # Imported in a thread: gRPC takes longer than an event loop should be blocked for.
        from airflow_provider_sfstream.salesforce.pubsub.async_client import AsyncPubSubClient

        return AsyncPubSubClient(self._provider(settings), **pubsub_arguments(settings))

    def publish(self, topic: str, rows: Iterable[Mapping[str, Any]]) -> list[PublishedEvent]:
        """Publish rows as platform events, in order, and return a result for each: its ``replay_id``, or its ``error``.

        Each is sent once, in requests within Salesforce's limits. If a request fails after another one, its events
        and all unsent ones have its error; an event with a ``retriable`` error may have been published.
        :class:`~airflow_provider_sfstream.operators.publish_events.PublishEventsOperator` records accepted events
        and retries the others.

        :param rows: values by the names of the event's fields. Times need a time zone; ISO 8601 text is accepted.
        :raises SchemaError: if values do not fit the schema. Nothing was published.
        :raises PublishError: if the user cannot publish to the topic, or an event is over 1 MB. Nothing was published.
        :raises SalesforceStreamError: if the first request fails. Nothing was published, unless the error is retriable.
        """
        with self.get_conn() as client:
            return client.publish(topic, client.encode(topic, rows))

    def test_connection(self, topic: str | None = None, ports: Collection[int] = (7443, 443)) -> tuple[bool, str]:
        """Log in and request a topic from the Pub/Sub API. Return whether that works, and the failed part otherwise.

        :param topic: the topic that the user must be able to subscribe to; without it, any response about one suffices.
        :param ports: if the endpoint has one of these ports and fails, the others are tried; the answer names the one
            that works.
        """

        def test(client: PubSubClient) -> tuple[bool, str]:
            logged_in = f"Logged in to org {self.org_id}; Pub/Sub API reached at {client.endpoint.target}"
            try:
                info = client.get_topic(topic or _TOPIC_OF_EVERY_ORG)
                if topic and info.can_subscribe and info.schema_id:
                    client.schema(info.schema_id)
            except (AccessDeniedError, TopicNotFoundError) as error:
                return (False, f"Topic permission: {error}") if topic else (True, f"{logged_in}.")
            except SalesforceStreamError as error:
                return False, f"Pub/Sub endpoint: {error}{self._other_port(client.endpoint, ports)}"
            if topic and not info.can_subscribe:
                return False, f"Topic permission: the user may not subscribe to {topic}. Grant the user read access."
            return True, f"{logged_in}{f', {topic} can be subscribed to' if topic else ''}."

        return self._run_test(self.get_conn, test)

    def _other_port(self, endpoint: Endpoint, ports: Collection[int]) -> str:
        """Return the remedy if ``endpoint`` has one of the ports, and the Pub/Sub API answers on another one."""
        from airflow_provider_sfstream.salesforce.pubsub.client import PubSubClient

        host, _, failed = endpoint.target.rpartition(":")
        for port in set(ports) - {int(failed)} if int(failed) in ports else ():
            url = replace(endpoint, target=f"{host}:{port}").url.removeprefix("https://")
            with (
                suppress(SalesforceStreamError),
                PubSubClient(self.token_provider(), **pubsub_arguments(self.settings()) | {"endpoint": url}) as client,
            ):
                client.prove_contact(_TOPIC_OF_EVERY_ORG)
                return f" The Pub/Sub API answers on port {port}: set Pub/Sub API Endpoint (pubsub_endpoint) to {url}."
        return ""


def pubsub_arguments(settings: SalesforceSettings) -> dict[str, Any]:
    """Return the connection arguments of a client of the Pub/Sub API."""
    from airflow_provider_sfstream.salesforce.pubsub.channel import DEFAULT_ENDPOINT

    return {
        "endpoint": settings.pubsub_endpoint or DEFAULT_ENDPOINT,
        "network": settings.network,
        "timers": settings.timers,
    }
