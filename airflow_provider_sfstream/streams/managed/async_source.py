"""Managed subscriptions as the event source of a watch, which commits nothing."""

from __future__ import annotations

from contextlib import aclosing

from airflow_provider_sfstream.exceptions import ServiceUnavailableError
from airflow_provider_sfstream.salesforce.credit import Credit
from airflow_provider_sfstream.salesforce.events import AsyncResponses, EventBatch, PayloadEncoding, StartFrom
from airflow_provider_sfstream.salesforce.managed_subscription import ManagedSubscription
from airflow_provider_sfstream.salesforce.pubsub.async_client import AsyncPubSubClient
from airflow_provider_sfstream.salesforce.pubsub.subscription import check_amounts
from airflow_provider_sfstream.streams.managed.continuation import DeliveredEvents, Redelivery, without_known
from airflow_provider_sfstream.streams.managed.source import check_start


class AsyncManagedSource:
    """One managed subscription as an :class:`~airflow_provider_sfstream.streams.source.AsyncEventSource`.

    It commits nothing, so each stream begins with the same events until another client commits. After a fault, the
    events that this object has already yielded are skipped if the new stream begins with the first of them. If it
    begins with another event, another client has committed since, and every event is new.

    A watch holds the only slot of a managed subscription: no other client can read it. Salesforce ends a stream without
    a commit after 1,800 seconds; the watch subscribes again.
    """

    payload_encoding: PayloadEncoding = "avro"
    confirms_positions = True

    def __init__(self, client: AsyncPubSubClient, subscription: ManagedSubscription) -> None:
        self.subscription = subscription
        self._client = client
        self._delivered = DeliveredEvents()

    async def schema(self, schema_id: str) -> str:
        """Return the Avro schema JSON of ``schema_id``."""
        return await self._client.schema(schema_id)

    def renew_session(self) -> None:
        """Discard the access token that was refused last, so that the next call logs in again."""
        self._client.renew_session()

    def subscribe(
        self, topic: str, after: bytes | StartFrom, *, limit: int | None, silence_timeout: float
    ) -> AsyncResponses:
        """Yield responses in stream order; a keepalive is an empty batch.

        :param topic: the topic of the subscription.
        :param after: ``COMMITTED``; or a replay ID. Reading continues after it if this object has yielded it.
        :param limit: number of events to yield. Skipped events do not count.
        :raises ConfigurationError: immediately, if an argument is invalid.
        :raises SubscriptionBusyError: if another stream holds the subscription.
        :raises SalesforceStreamError: if the stream ends for any other reason.
        """
        check_start(self.subscription, topic, after)
        check_amounts(self.subscription.description, limit, silence_timeout=silence_timeout)
        return self._read(after, Credit(limit), silence_timeout)

    async def _read(self, after: bytes | StartFrom, credit: Credit, silence_timeout: float) -> AsyncResponses:
        redelivery, has_begun = self._delivered.begin(after, None), False
        responses = self._client.managed_subscribe(self.subscription, limit=credit, silence_timeout=silence_timeout)
        async with aclosing(responses):
            async for response in responses:
                if response.confirms_position:
                    self._confirm(response, redelivery)
                elif len(response):
                    if not has_begun and response.replay_ids[0] != self._delivered.first:
                        self._delivered.forget()
                        redelivery = Redelivery()
                    has_begun = True
                    redelivered = redelivery.known(response.replay_ids)
                    credit.allow(redelivered)
                    response = without_known(response, redelivered)
                    self._delivered.add(response)
                yield response

    def _confirm(self, response: EventBatch, redelivery: Redelivery) -> None:
        if not redelivery.is_over and redelivery.last is not None:
            self._delivered.forget()
            raise ServiceUnavailableError(
                f"{self.subscription.description}: only some of the events that were delivered before were delivered "
                "again. All events are read again, so that none is missed."
            )
        if not redelivery.is_over:
            self._delivered.forget()
            redelivery.is_over = True
        self._delivered.confirm(response.latest_replay_id)
