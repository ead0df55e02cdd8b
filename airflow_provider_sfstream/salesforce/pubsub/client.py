"""The blocking client of the Pub/Sub API."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import grpc

from airflow_provider_sfstream.exceptions import (
    AccessDeniedError,
    ContactError,
    PublishError,
    SalesforceStreamError,
    SessionExpiredError,
    TopicNotFoundError,
)
from airflow_provider_sfstream.salesforce import pubsub_api_pb2 as messages
from airflow_provider_sfstream.salesforce.auth.tokens import TokenProvider
from airflow_provider_sfstream.salesforce.closing import ClosedOnExit
from airflow_provider_sfstream.salesforce.events import Responses, StartFrom, check_amounts
from airflow_provider_sfstream.salesforce.identifiers import ManagedSubscription
from airflow_provider_sfstream.salesforce.network.proxies import how_far
from airflow_provider_sfstream.salesforce.pubsub import publishing
from airflow_provider_sfstream.salesforce.pubsub.channel import (
    PubSubConnection,
    call_metadata,
    error_from_call,
    multi_callable,
)
from airflow_provider_sfstream.salesforce.pubsub.managed_stream import COMMIT_KEEPALIVE, ManagedStream
from airflow_provider_sfstream.salesforce.pubsub.publishing import EventEncoder, OutgoingEvent, PublishedEvent
from airflow_provider_sfstream.salesforce.pubsub.subscription import (
    Subscription,
    check_arguments,
    check_topic,
    first_request,
)
from airflow_provider_sfstream.salesforce.schemas import parse


class PubSubClient(PubSubConnection, ClosedOnExit):
    """Reader and writer of one org's event bus. Safe for several threads; also a context manager that closes it.

    An :class:`~airflow_provider_sfstream.streams.source.EventSource`. All methods raise errors of
    :mod:`airflow_provider_sfstream.exceptions`, never one of gRPC. Calls other than ``subscribe`` and
    ``managed_subscribe`` log in again once if Salesforce refuses the token; those leave that to their caller, who knows
    the replay ID to resume from.
    """

    def __init__(self, token_provider: TokenProvider, **settings: Any) -> None:
        super().__init__(token_provider, **settings)
        self._channel = self._open_channel(grpc)
        self._subscribe = multi_callable(self._channel, "Subscribe", sized=True)
        self._managed_subscribe = multi_callable(self._channel, "ManagedSubscribe", sized=True)
        self._schemas: dict[str, str] = {}
        self._loading_schema = threading.Lock()
        self.server_time = self.measure_time

    def close(self) -> None:
        """Close the connection; open subscriptions end."""
        self._channel.close()

    def get_topic(self, topic: str) -> Any:
        """Return Salesforce's description of ``topic``, the message ``TopicInfo`` of the Pub/Sub API.

        Its ``schema_id`` is only the newest schema of the topic; events name their own.
        """
        return self._unary("GetTopic", messages.TopicRequest(topic_name=check_topic(topic)), topic)

    def prove_contact(self, topic: str) -> None:
        """Return when Salesforce has answered a GetTopic on the connection of the subscriptions, also with a refusal.

        HTTP/2 preserves the order of the server's messages: events that it sent earlier have arrived by then.
        """
        with self.in_contact(topic), suppress(AccessDeniedError, TopicNotFoundError):  # these errors prove contact
            self.get_topic(topic)

    @contextmanager
    def in_contact(self, name: str) -> Iterator[None]:
        """Add the reachable part of the path to Salesforce to the error if the block raises :class:`ContactError`."""
        try:
            yield
        except ContactError as error:
            raise ContactError(
                f"{name}: the Pub/Sub API at {self.endpoint.target} did not answer, although the login succeeded. "
                f"{how_far(self.endpoint.url, self._network.tls_ca)} A missing response does not prove the end of the "
                "stream: no position was moved, and no event is lost while Salesforce retains it. "
                f"Cause: {error}"
            ) from None

    def schema(self, schema_id: str) -> str:
        """Return the Avro schema JSON of ``schema_id``. Send one request for each id, also for several threads."""
        if schema_id not in self._schemas:
            with self._loading_schema:
                if schema_id not in self._schemas:
                    schema_json = self._load_schema(schema_id)
                    parse(schema_json)
                    self._schemas[schema_id] = schema_json
        return self._schemas[schema_id]

    def encoder(self, topic: str) -> EventEncoder:
        """Return the encoder of events for the newest schema of ``topic``."""
        info = self.get_topic(topic)
        if not info.can_publish or not info.schema_id:
            raise PublishError(
                f"{topic}: this user cannot publish to the topic. Use the topic of a platform event, /event/Name__e. "
                "The user needs create access to the event."
            )
        created_by = self._session.token().user_id
        return EventEncoder(self.schema(info.schema_id), info.schema_id, created_by=created_by)

    def encode(self, topic: str, values: Iterable[Mapping[str, Any]]) -> list[OutgoingEvent]:
        """Return events with these values by field name; see :meth:`encoder` and :meth:`EventEncoder.encode`."""
        encoder = self.encoder(topic)
        return [encoder.encode(event) for event in values]

    def publish(self, topic: str, events: Sequence[OutgoingEvent]) -> list[PublishedEvent]:
        """Publish ``events`` in order and return a result for each, in the same order.

        Sends several requests if one would be too large. If a request fails after an earlier one succeeded, the results
        of its events and of all later events, which are not sent, contain the error. An event with a retriable error
        may nevertheless have been published.

        :raises PublishError: if an event is over 1 MB. Nothing was published.
        :raises SalesforceStreamError: if the first request fails. Nothing was published, unless the error is retriable.
        """
        outgoing = publishing.requests(check_topic(topic), events)
        published: list[PublishedEvent] = []
        for index, request in enumerate(outgoing):
            try:
                response = self._unary("Publish", request, topic)
                published += publishing.results(topic, request, response)
            except SalesforceStreamError as error:
                if not published:
                    raise
                for unpublished in outgoing[index:]:
                    published += publishing.not_published(unpublished, error)
                break
        return published

    def subscribe(
        self,
        topic: str,
        after: bytes | StartFrom,
        *,
        limit: int | None = None,
        idle_timeout: float,
        answer_within: float | None = None,
    ) -> Responses:
        """Yield batches of ``topic``, as every event source does.

        A thread requests more events as soon as a response arrives, concurrently with the consumer. A slow consumer
        stops the requests, so that memory is bounded. The first ``next`` returns the first batch or raises any fault.

        :param answer_within: unused: the Pub/Sub API cannot request an empty response.
        """
        check_arguments(topic, after, limit, idle_timeout=idle_timeout)
        return self._batches(topic, after, limit, idle_timeout)

    def latest(self, topic: str, *, idle_timeout: float) -> Responses:
        """Open a subscription to ``topic`` at ``LATEST``, for one event."""
        return self.subscribe(topic, StartFrom.LATEST, limit=1, idle_timeout=idle_timeout)

    def _batches(self, topic: str, after: bytes | StartFrom, limit: int | None, idle_timeout: float) -> Responses:
        token = self._session.token()
        opening = first_request(topic, after)
        subscription = Subscription(self._subscribe, token, topic, opening, {"topic_name": topic}, limit)
        try:
            with self.in_contact(topic), self._session.using(token):
                yield from subscription.batches(idle_timeout)
        finally:
            subscription.close()

    def managed_subscribe(
        self,
        subscription: ManagedSubscription,
        *,
        limit: int | None = None,
        idle_timeout: float,
        recommit: bytes | None = None,
        commit_keepalive: float = COMMIT_KEEPALIVE,
    ) -> ManagedStream:
        """Open the stream of a managed subscription; see :class:`ManagedStream`. The caller closes it.

        :param recommit: a committed replay ID, which the keepalive commits again until the first acknowledgement.
        :param commit_keepalive: seconds without a commit after which the committed replay ID is committed again.
        """
        check_amounts(subscription.description, limit, idle_timeout=idle_timeout, commit_keepalive=commit_keepalive)
        return ManagedStream(
            self._managed_subscribe,
            self._session,
            self._session.token(),
            subscription,
            limit=limit,
            idle_timeout=idle_timeout,
            recommit=recommit,
            commit_keepalive=commit_keepalive,
        )

    def _load_schema(self, schema_id: str) -> str:
        what = f"schema {schema_id}"
        return str(self._unary("GetSchema", messages.SchemaRequest(schema_id=schema_id), what).schema_json)

    def _unary(self, rpc: str, request: Any, what: str) -> Any:
        try:
            return self._call(rpc, request, what)
        except SessionExpiredError:
            # Salesforce refuses a call without a session before it executes any part, so that a retry is safe.
            self.renew_session()
            return self._call(rpc, request, what)

    def _call(self, rpc: str, request: Any, what: str) -> Any:
        token, call = self._session.token(), multi_callable(self._channel, rpc)
        with self._session.using(token):
            try:
                return call(request, metadata=call_metadata(token), timeout=self.call_timeout)
            except grpc.RpcError as fault:
                # Without the cause: its details may contain the request.
                raise error_from_call(fault, what) from None
