"""The package's wait for the end of a stream on a triggerer, with the bus in memory and its simulated time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import ClassVar

from airflow_provider_sfstream.exceptions import ServiceUnavailableError
from airflow_provider_sfstream.salesforce.events import CONFIRM_TIMEOUT
from airflow_provider_sfstream.salesforce.server_time import ServerTime
from airflow_provider_sfstream.streams.drain.result import ConfirmedEnd
from airflow_provider_sfstream.streams.source import EventBatch, PayloadEncoding, StartFrom
from airflow_provider_sfstream.streams.watch.conditions import WakeUpConditions
from airflow_provider_sfstream.streams.watch.wake_ups import Watch
from tests.support.claims_source import SimulatedSource
from tests.support.virtual_time import VirtualTimeLoop


class AsyncSimulatedSource:
    """Asyncio interface of a :class:`SimulatedSource`."""

    payload_encoding: ClassVar[PayloadEncoding] = "avro"

    def __init__(self, client: SimulatedSource, began: float) -> None:
        self._client, self._began = client, began
        self.confirms_positions = client.confirms_positions

    def clock(self) -> float:
        """Advance the clock of the bus to the time of the event loop and return it."""
        time = self._client.bus.time
        time.seconds = max(time.seconds, self._began + asyncio.get_running_loop().time())
        return time.seconds

    async def _sleep_until(self, at: float) -> None:
        while (left := at - self.clock()) > 1e-6:
            await asyncio.sleep(left)

    async def subscribe(
        self, topic: str, after: bytes | StartFrom, *, limit: int | None, silence_timeout: float
    ) -> AsyncGenerator[EventBatch, None]:
        client, now = self._client, self.clock()
        server_received_at = client.time_received(now + client.delay())
        await self._sleep_until(server_received_at)
        arrivals = client.open(client.server(after, server_received_at, limit, None))
        ends_at = client.drops_at()
        try:
            while arrivals.server.left != 0 or arrivals.sent:
                deadline = self.clock() + silence_timeout
                arrival = client.next_arrival(arrivals, deadline)
                await self._sleep_until(min(arrival, deadline, ends_at))
                if arrival > min(deadline, ends_at):
                    raise ServiceUnavailableError("The stream was dropped, or silent for too long.")
                client.answers.append(self.clock())
                yield client.batch(arrivals.sent.popleft()[1])
        finally:
            client.close(arrivals)

    async def server_time(self, clock: Callable[[], float]) -> ServerTime | None:
        """Return Salesforce's time, or ``None`` if it is not available. The call blocks the event loop."""
        return self._client.server_time(clock)

    async def schema(self, schema_id: str) -> str:
        return self._client.schema(schema_id)

    def renew_session(self) -> None:
        raise AssertionError("No session ends here.")


def wait_for_end(client: SimulatedSource, topic: str, after: bytes) -> ConfirmedEnd | None:
    """Return the end of the stream that a trigger confirms after a position; ``None`` after an event or a loss.

    The clock of the bus advances, by 300 seconds at most.
    """
    time, source = client.bus.time, AsyncSimulatedSource(client, client.bus.time.seconds)

    async def wait() -> ConfirmedEnd | None:
        try:
            async with asyncio.timeout(CONFIRM_TIMEOUT):
                wake_up = await Watch(
                    source,
                    topic,
                    after,
                    WakeUpConditions(until_confirmed=True),
                    clock=source.clock,
                    now=time.now,
                    random=client.random.random,
                ).first_wake_up()
        except TimeoutError:
            return None
        if wake_up.confirmed_at is None:
            return None
        assert wake_up.contact_at is not None
        return ConfirmedEnd(after, wake_up.through or after, wake_up.confirmed_at, wake_up.contact_at)

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(wait())
