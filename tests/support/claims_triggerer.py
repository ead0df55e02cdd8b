"""The wait for the end of a stream on a triggerer: the package's own, over the bus in memory, in its time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import ClassVar

from airflow_provider_sfstream.exceptions import ServiceUnavailableError
from airflow_provider_sfstream.salesforce.events import CONFIRM_TIMEOUT
from airflow_provider_sfstream.salesforce.server_time import ServerTime
from airflow_provider_sfstream.streams.drain.result import SeenEnd
from airflow_provider_sfstream.streams.source import EventBatch, PayloadEncoding, StartFrom
from airflow_provider_sfstream.streams.watch.conditions import WakeUpConditions
from airflow_provider_sfstream.streams.watch.wake_ups import first_wake_up
from tests.support.claims_source import SimulatedSource
from tests.support.virtual_time import VirtualTimeLoop


class AsyncSimulatedSource:
    """The client of a :class:`SimulatedSource` on an event loop."""

    payload_encoding: ClassVar[PayloadEncoding] = "avro"

    def __init__(self, client: SimulatedSource, began: float) -> None:
        self._client, self._began = client, began
        self.confirms_positions = client.confirms_positions

    def clock(self) -> float:
        """Return the time of the bus, and set its clock to that of the loop."""
        time = self._client.bus.time
        time.seconds = max(time.seconds, self._began + asyncio.get_running_loop().time())
        return time.seconds

    async def _sleep_until(self, at: float) -> None:
        while (left := at - self.clock()) > 1e-6:
            await asyncio.sleep(left)

    async def subscribe(
        self, topic: str, start: bytes | StartFrom, *, limit: int | None, silence_timeout: float
    ) -> AsyncGenerator[EventBatch, None]:
        client, now = self._client, self.clock()
        heard_at = client.heard(now + client.delay())
        await self._sleep_until(heard_at)
        arrivals = client.open(client.server(start, heard_at, limit, None))
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
        """Return Salesforce's time, or ``None``; the loop waits for it."""
        return self._client.server_time(clock)

    async def schema(self, schema_id: str) -> str:
        return self._client.schema(schema_id)

    def renew_session(self) -> None:
        raise AssertionError("No session ends here.")


def wait_for_end(client: SimulatedSource, topic: str, after: bytes) -> SeenEnd | None:
    """Return the end of the stream that a trigger confirmed after a position; ``None`` if events or a loss ended it.

    The time of the bus passes. Waits for 300 seconds at most.
    """
    time, source = client.bus.time, AsyncSimulatedSource(client, client.bus.time.seconds)

    async def wait() -> SeenEnd | None:
        try:
            async with asyncio.timeout(CONFIRM_TIMEOUT):
                wake_up = await first_wake_up(
                    source,
                    topic,
                    after,
                    WakeUpConditions(until_confirmed=True),
                    clock=source.clock,
                    now=time.now,
                    random=client.random.random,
                )
        except TimeoutError:
            return None
        if wake_up.confirmed_at is None:
            return None
        assert wake_up.contact_at is not None
        return SeenEnd(after, wake_up.through or after, wake_up.confirmed_at, wake_up.contact_at)

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(wait())
