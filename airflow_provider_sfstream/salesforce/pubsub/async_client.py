"""The asyncio client of the Pub/Sub API, which watches many topics from one event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any

import grpc
import grpc.aio

from airflow_provider_sfstream.exceptions import ServiceUnavailableError
from airflow_provider_sfstream.salesforce import pubsub_api_pb2 as messages
from airflow_provider_sfstream.salesforce.auth.tokens import AccessToken
from airflow_provider_sfstream.salesforce.clients import AsyncOrgClient
from airflow_provider_sfstream.salesforce.events import AsyncResponses, Credit, StartFrom, check_amounts
from airflow_provider_sfstream.salesforce.identifiers import ManagedSubscription
from airflow_provider_sfstream.salesforce.pubsub.channel import (
    PubSubConnection,
    call_metadata,
    error_from_call,
    multi_callable,
)
from airflow_provider_sfstream.salesforce.pubsub.subscription import (
    Request,
    Response,
    check_arguments,
    first_request,
    opening_request,
    response_batch,
)
from airflow_provider_sfstream.salesforce.schemas import parse


class AsyncSubscribeCall:
    """An open Subscribe or ManagedSubscribe call. Belongs to the running event loop."""

    def __init__(self, open_call: Callable[..., Any], name: str, token: AccessToken) -> None:
        self._name = name
        self._status: grpc.aio.AioRpcError | None = None
        self._call = open_call(metadata=call_metadata(token))
        self._call.add_done_callback(self._note_status)
        # Not its read(), which discards received responses after the end of the call.
        self._responses: AsyncGenerator[Response, None] = aiter(self._call)

    async def exchange(self, request: Request, silence_timeout: float) -> Response:
        """Send ``request``, if it requests events, and return the next response."""
        try:
            async with asyncio.timeout(silence_timeout):
                await self._send(request)
                return await anext(self._responses)
        except TimeoutError:
            raise ServiceUnavailableError(
                f"{self._name}: no response for {silence_timeout:g} seconds, not even a keepalive; the connection "
                "counts as lost. Nothing that was received is lost: resume from the last replay ID."
            ) from None
        except (grpc.RpcError, StopAsyncIteration) as end:
            raise error_from_call(self._status or end, self._name) from None

    async def aclose(self) -> None:
        """End the call immediately, at Salesforce too."""
        self._call.cancel()
        await self._responses.aclose()

    async def _send(self, request: Request) -> None:
        # Never write to a call that the server ended: its remaining responses and its status must be read first.
        if request.num_requested and not self._call.done():
            with suppress(grpc.RpcError):
                await self._call.write(request)

    def _note_status(self, call: Any) -> None:
        """Store the first status: a write after the end of the call replaces the server's status by gRPC's INTERNAL."""
        if self._status is None:
            code, details, trailers = (_result(get()) for get in (call.code, call.details, call.trailing_metadata))
            self._status = grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailers, details)


def _result(ready: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of a coroutine that does not wait, for example the status of an ended call."""
    try:
        ready.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("gRPC did not return the status of an ended call.")


class AsyncPubSubClient(PubSubConnection, AsyncOrgClient):
    """Reader of one org's event bus from one event loop; also an async context manager that closes it.

    An :class:`~airflow_provider_sfstream.streams.source.AsyncEventSource`. All subscriptions share one connection and
    one login; nothing blocks the loop, and subscriptions need no threads. Errors are those of
    :mod:`airflow_provider_sfstream.exceptions`, never gRPC's. ``schema`` logs in again once if Salesforce refuses the
    token; ``subscribe`` leaves that to its caller, who knows the replay ID to resume from.

    The constructor contacts nothing, and may run in another thread. The client then belongs to the event loop that
    first uses it.
    """

    _CLOSED = "The Pub/Sub client is closed."
    _channel: grpc.aio.Channel | None = None

    async def aclose(self) -> None:
        """Close the connection. Pending calls raise :class:`RuntimeError`."""
        await super().aclose()
        if self._channel is not None:
            await self._channel.close()

    def subscribe(
        self, topic: str, after: bytes | StartFrom, *, limit: int | None = None, silence_timeout: float
    ) -> AsyncResponses:
        """Yield batches of ``topic``, as every asynchronous event source does.

        At most 100 events are outstanding at any time. The client requests more only when the caller asks for the next
        batch, so that no more than 100 are in memory. After 60 seconds without outstanding events or requests
        Salesforce ends the stream, with a retriable error. Closing the generator, or cancelling the task that waits for
        it, ends the call at Salesforce too.

        :param silence_timeout: Salesforce sends a keepalive within 270 seconds while events are outstanding (Pub/Sub
            API proto, ``FetchResponse``).
        """
        check_arguments(topic, after, limit, silence_timeout=silence_timeout)
        opening, following = first_request(topic, after), {"topic_name": topic}
        return self._batches("Subscribe", topic, opening, following, Credit(limit), silence_timeout)

    def managed_subscribe(
        self, subscription: ManagedSubscription, *, limit: int | Credit | None = None, silence_timeout: float
    ) -> AsyncResponses:
        """Yield batches of a managed subscription, as :meth:`subscribe` does. Commits nothing, ever.

        So the next stream begins with the same events, until a stream commits; and Salesforce ends this one after 1,800
        seconds, with a retriable error.

        :param limit: as for :meth:`subscribe`; or a :class:`Credit`, with which the caller can exclude events.
        :raises SubscriptionBusyError: if another stream holds the managed subscription.
        """
        name = subscription.description
        check_amounts(name, None if isinstance(limit, Credit) else limit, silence_timeout=silence_timeout)
        credit = limit if isinstance(limit, Credit) else Credit(limit)
        return self._batches("ManagedSubscribe", name, opening_request(subscription), {}, credit, silence_timeout)

    async def _batches(
        self,
        rpc: str,
        name: str,
        request: Request,
        following: Mapping[str, Any],
        credit: Credit,
        silence_timeout: float,
    ) -> AsyncResponses:
        token = await self._session.atoken()
        request_of = type(request)
        request.num_requested = credit.request()
        call = AsyncSubscribeCall(self._rpc(rpc), name, token)
        try:
            with self._session.using(token), self._error_if_closed():
                while not credit.exhausted:
                    response = await call.exchange(request, silence_timeout)
                    batch = response_batch(name, response, time.time_ns())
                    credit.received(len(batch))
                    yield batch
                    request = request_of(num_requested=credit.request(), **following)
        finally:
            await call.aclose()

    async def _request_schema(self, schema_id: str) -> str:
        token = await self._session.atoken()
        request = messages.SchemaRequest(schema_id=schema_id)
        with self._session.using(token):
            try:
                info = await self._rpc("GetSchema")(request, metadata=call_metadata(token), timeout=self.call_timeout)
            except grpc.RpcError as fault:
                # Without the cause: its details may contain the request.
                raise error_from_call(fault, f"schema {schema_id}") from None
        schema_json = str(info.schema_json)
        parse(schema_json)
        return schema_json

    def _rpc(self, name: str) -> Callable[..., Any]:
        self._check_open()
        if self._channel is None:
            self._channel = self._open_channel(grpc.aio)
        return multi_callable(self._channel, name)
