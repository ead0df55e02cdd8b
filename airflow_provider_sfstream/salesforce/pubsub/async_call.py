"""One Subscribe call on an event loop: a request out, the next response in, and how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import suppress
from typing import Any

import grpc
import grpc.aio

from airflow_provider_sfstream.exceptions import ServiceUnavailableError
from airflow_provider_sfstream.salesforce.auth.tokens import AccessToken
from airflow_provider_sfstream.salesforce.pubsub.channel import call_metadata, error_from_call
from airflow_provider_sfstream.salesforce.pubsub.subscription import Request, Response


class AsyncSubscribeCall:
    """An open Subscribe or ManagedSubscribe call. Belongs to the running event loop.

    :param open_call: the multi-callable of an asyncio stub.
    :param name: the topic, or whatever names the stream in messages.
    """

    def __init__(self, open_call: Callable[..., Any], name: str, token: AccessToken) -> None:
        self._name = name
        self._status: grpc.aio.AioRpcError | None = None
        self._call = open_call(metadata=call_metadata(token))
        self._call.add_done_callback(self._note_status)
        # Not its read(), which forgets what has arrived once the call has ended.
        self._responses: AsyncGenerator[Response, None] = aiter(self._call)

    async def exchange(self, request: Request, silence_timeout: float) -> Response:
        """Send ``request``, if it asks for events, and return the next response.

        :param silence_timeout: seconds that this may take.
        :raises ServiceUnavailableError: if it takes longer.
        :raises SalesforceStreamError: if the call has ended, for whatever reason.
        """
        try:
            async with asyncio.timeout(silence_timeout):
                await self._send(request)
                return await anext(self._responses)
        except TimeoutError:
            raise ServiceUnavailableError(
                f"{self._name}: nothing came for {silence_timeout:g} seconds, not even a keepalive; the connection "
                "counts as lost. Nothing that was received is lost: resume from the last replay ID."
            ) from None
        except (grpc.RpcError, StopAsyncIteration) as end:
            raise error_from_call(self._status or end, self._name) from None

    async def aclose(self) -> None:
        """End the call at once, at Salesforce too."""
        self._call.cancel()
        await self._responses.aclose()

    async def _send(self, request: Request) -> None:
        # A call that the server has ended is not written to: what it sent before is still to be read, and then why.
        if request.num_requested and not self._call.done():
            with suppress(grpc.RpcError):
                await self._call.write(request)

    def _note_status(self, call: Any) -> None:
        """Keep the first status: a write that meets the end of the call replaces the server's with gRPC's INTERNAL."""
        if self._status is None:
            code, details, trailers = (_result(get()) for get in (call.code, call.details, call.trailing_metadata))
            self._status = grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailers, details)


def _result(ready: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of a coroutine that has nothing to wait for, such as the status of a call that has ended."""
    try:
        ready.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("The status of a gRPC call that has ended is not there.")
