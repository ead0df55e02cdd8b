"""The blocking client of the Streaming API."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from airflow_provider_sfstream.exceptions import ContactError
from airflow_provider_sfstream.salesforce.auth.tokens import TokenProvider
from airflow_provider_sfstream.salesforce.closing import ClosedOnExit
from airflow_provider_sfstream.salesforce.events import AsyncResponses, PayloadEncoding, Responses, StartFrom
from airflow_provider_sfstream.salesforce.read_ahead import ReadAhead
from airflow_provider_sfstream.salesforce.streaming.async_client import AsyncStreamingClient
from airflow_provider_sfstream.salesforce.streaming.subscription import CLOSED, check_arguments

SILENCE_TIMEOUT = 180.0
"""Seconds without any response after which a connection counts as lost. Salesforce answers a poll within 110."""

_SECONDS_TO_END = 10.0

T = TypeVar("T")


class StreamingClient(ClosedOnExit):
    """Reader of one org's event streams; also a context manager that closes it.

    An :class:`~airflow_provider_sfstream.streams.source.EventSource`. It runs an :class:`AsyncStreamingClient` on an
    event loop in a separate thread, which polls and prefetches up to ``max_pending_count`` messages while the caller is
    busy. Any thread may call it, except from inside an event loop. Exceptions of signal handlers, for example a task's
    time limit, reach the caller immediately.

    :param token_provider: and all other arguments: see :class:`AsyncStreamingClient`.
    """

    payload_encoding: PayloadEncoding = "json"
    confirms_positions = False

    def __init__(self, token_provider: TokenProvider, **arguments: Any) -> None:
        self._client = AsyncStreamingClient(token_provider, **arguments)
        self.renew_session, self.server_time = self._client.renew_session, self._client.measure_time
        self._loop = _LoopThread()
        self._open: dict[ReadAhead, str] = {}
        """The topics of the open subscriptions."""

    @property
    def api_version(self) -> str:
        """The API version, for example ``66.0``."""
        return self._client.api_version

    def close(self) -> None:
        """End every subscription and release its resources. May be called again."""
        if not self._loop.closed:
            try:
                self._loop.run(self._client.aclose())
                for reader in list(self._open):
                    # Otherwise the end of the event loop would close its generators in any order, and asyncio would
                    # log that. A waiting caller ends its subscription itself.
                    if not reader.is_reading:
                        self._loop.run(reader.aclose())
            finally:
                self._loop.close()

    def org_id(self) -> str:
        """Return the id of the org that this client reads, 18 characters. Logs in if needed."""
        return self._loop.run(self._client.org_id())

    def schema(self, schema_id: str) -> str | None:
        """Return the Avro schema JSON of ``schema_id``; see :meth:`AsyncStreamingClient.schema`."""
        return self._loop.run(self._client.schema(schema_id))

    def check(self, topic: str | None = None) -> None:
        """Do what :meth:`AsyncStreamingClient.check` does."""
        self._loop.run(self._client.check(topic))

    def prove_contact(self, topic: str) -> None:
        """Return when Salesforce has answered the polls of the open subscriptions to ``topic``, with events or without;
        if none is open, when it has opened a session.

        :raises ContactError: if it does not within the 110 seconds for which it may hold a poll (or the advised time)
            plus ``connection_timeout``; the error names the reachable part of the path.
        :raises SalesforceStreamError: if the response is a fault.
        """
        readers = [reader for reader, read_topic in self._open.items() if read_topic == topic]
        if not readers:
            self._in_contact(self._client.check())
        for reader in readers:
            self._in_contact(reader.arrival())

    def latest(self, topic: str, *, idle_timeout: float) -> Responses:
        """Open a subscription to ``topic`` for new events."""
        return self.subscribe(topic, StartFrom.LATEST, limit=1, idle_timeout=idle_timeout)

    def subscribe(
        self,
        topic: str,
        after: bytes | StartFrom,
        *,
        limit: int | None = None,
        idle_timeout: float,
        answer_within: float | None = None,
    ) -> Responses:
        """Yield batches of ``topic``, as every event source does; see :meth:`AsyncStreamingClient.subscribe`.

        Memory is bounded: at most ``max_pending_count`` messages and the network's buffers wait for a slow consumer.
        The first ``next`` connects, and raises faults of the connection.
        """
        check_arguments(topic, after, limit, idle_timeout=idle_timeout)
        responses = self._client.subscribe(
            topic, after, limit=limit, silence_timeout=SILENCE_TIMEOUT, answer_within=answer_within
        )
        return self._batches(topic, responses, idle_timeout)

    def _batches(self, topic: str, responses: AsyncResponses, idle_timeout: float) -> Responses:
        reader = ReadAhead(responses)
        self._open[reader] = topic
        try:
            self._in_contact(reader.next(None))  # the first response: the subscription is active
            while True:
                try:
                    batch = self._in_contact(reader.next(idle_timeout))
                except StopAsyncIteration:
                    return
                yield batch
        finally:
            del self._open[reader]
            if not self._loop.closed:
                self._loop.run(reader.aclose())

    def _in_contact(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return the result of ``coroutine``; add the reachable part of the path to a :class:`ContactError`."""
        try:
            return self._loop.run(coroutine)
        except ContactError as error:
            raise ContactError(f"{error} {self._client.how_far()}") from None


class _LoopThread:
    """An event loop in a separate thread, which the first use starts.

    Exceptions of signal handlers (Ctrl-C, a task's time limit) interrupt the waiting caller, never the loop or a
    library in it, which could mistake them for network faults.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Created in its own thread, where no signal interrupts: otherwise an incomplete or unused loop could remain.
        self._loop: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = threading.Thread(target=_serve, args=(self._loop,), name="sfstream-streaming", daemon=True)
        self.closed = False

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return the result of ``coroutine``; cancel it on an interruption."""
        try:
            loop = self._ready()
        except BaseException:
            coroutine.close()
            raise
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        try:
            return future.result()
        except CancelledError:
            if self.closed:  # the end of the loop cancels the tasks that still run
                raise RuntimeError(CLOSED) from None
            raise
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Cancel the remaining tasks, and end the thread."""
        with self._lock:
            self.closed = True
        if self._thread.is_alive():
            loop = self._loop.result()
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join(_SECONDS_TO_END)

    def _ready(self) -> asyncio.AbstractEventLoop:
        if self.closed:
            raise RuntimeError(CLOSED)
        if asyncio._get_running_loop() is not None:
            raise RuntimeError(
                "StreamingClient blocks, and an event loop runs in this thread. Use AsyncStreamingClient there; in "
                "Airflow, `async with SalesforceStreamingHook(...).async_client() as client`."
            )
        with self._lock:
            if self._thread.ident is None:
                self._thread.start()
        return self._loop.result()


def _serve(started: Future[asyncio.AbstractEventLoop]) -> None:
    with asyncio.Runner() as runner:  # cancels the remaining tasks, and closes the loop
        loop = runner.get_loop()
        started.set_result(loop)
        loop.run_forever()
