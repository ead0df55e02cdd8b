"""Watch of a managed subscription: events that it skips after a fault, with scripted streams."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import ConfigurationError, ServiceUnavailableError
from airflow_provider_sfstream.salesforce.events import Credit, EventBatch, StartFrom
from airflow_provider_sfstream.salesforce.identifiers import ManagedSubscription
from airflow_provider_sfstream.streams.managed.source import AsyncManagedSource

TOPIC = "/event/Order__e"
ORDERS = ManagedSubscription("Orders")
COMMITTED = StartFrom.COMMITTED
CAUGHT_UP = b"caught up"


def batch(*replay_ids: bytes) -> EventBatch:
    if replay_ids == (CAUGHT_UP,):
        return EventBatch([], [], [], [], CAUGHT_UP, 100, 1)
    count = len(replay_ids)
    return EventBatch(list(replay_ids), [None] * count, ["schema"] * count, [b""] * count, replay_ids[-1], 50, 1)


class Client:
    """Client with the responses of each stream in turn; a fault ends each stream."""

    schema = renew_session = None  # no test of this module uses them

    def __init__(self, *streams: list[EventBatch]) -> None:
        self._streams = list(streams)
        self.credits: list[Credit] = []
        self.closed = 0

    async def managed_subscribe(
        self, subscription: ManagedSubscription, *, limit: Credit, silence_timeout: float
    ) -> AsyncGenerator[EventBatch, None]:
        assert (subscription, silence_timeout) == (ORDERS, 300)
        self.credits.append(limit)
        try:
            for response in self._streams.pop(0):
                limit.request()
                limit.received(len(response))
                yield response
            raise ServiceUnavailableError("the connection failed")
        finally:
            self.closed += 1


async def read_until_fault(
    source: AsyncManagedSource, after: bytes | StartFrom, limit: int | None = None
) -> list[bytes]:
    """Read one subscription until its fault; return its replay IDs, including confirmed positions."""
    got: list[bytes] = []
    stream = source.subscribe(TOPIC, after, limit=limit, silence_timeout=300)
    async with aclosing(stream):
        with pytest.raises(ServiceUnavailableError):  # noqa: PT012 - the responses before the fault count
            async for response in stream:
                got += response.replay_ids or [response.latest_replay_id]
    return [replay_id for replay_id in got if replay_id]


def source_on(*streams: list[EventBatch]) -> tuple[AsyncManagedSource, Client]:
    client = Client(*streams)
    untyped: Any = client
    return AsyncManagedSource(untyped, ORDERS), client


async def test_watch_skips_yielded_events_after_each_fault() -> None:
    source, client = source_on(
        [batch(b"1", b"2"), batch(b"3")],
        [batch(b"1"), batch(b"2", b"3", b"4")],
        [batch(b"1", b"2", b"3", b"4"), batch(b"5")],
    )
    assert await read_until_fault(source, COMMITTED) == [b"1", b"2", b"3"]
    assert await read_until_fault(source, b"3") == [b"4"]
    assert await read_until_fault(source, b"4") == [b"5"]
    assert client.closed == 3


async def test_watch_skips_events_before_a_confirmed_position() -> None:
    source, _ = source_on([batch(b"1", b"2"), batch(CAUGHT_UP)], [batch(b"1"), batch(b"2"), batch(b"3")])
    assert await read_until_fault(source, COMMITTED) == [b"1", b"2", CAUGHT_UP]
    assert await read_until_fault(source, CAUGHT_UP) == [b"3"]


async def test_watch_of_a_quiet_stream_yields_each_event_once() -> None:
    source, _ = source_on([batch(CAUGHT_UP)], [batch(b"1"), batch(b"2"), batch(b"3")], [batch(b"1", b"2", b"3", b"4")])
    assert await read_until_fault(source, COMMITTED) == [CAUGHT_UP]
    assert await read_until_fault(source, CAUGHT_UP) == [b"1", b"2", b"3"]
    assert await read_until_fault(source, b"3") == [b"4"]


async def test_watch_skips_no_event_after_a_commit_of_another_client() -> None:
    source, _ = source_on(
        [batch(b"1", b"2")], [batch(b"2", b"3"), batch(b"4")], [batch(b"2", b"3", b"4", b"5")], [batch(CAUGHT_UP)]
    )
    assert await read_until_fault(source, COMMITTED) == [b"1", b"2"]
    assert await read_until_fault(source, b"2") == [b"2", b"3", b"4"]
    assert await read_until_fault(source, b"4") == [b"5"], "the source has recorded the new start"
    assert await read_until_fault(source, b"5") == [CAUGHT_UP]


@pytest.mark.parametrize("known", [0, 1])
async def test_watch_skips_yielded_events_while_salesforce_seeks_them(known: int) -> None:
    """An empty response of a stream that still seeks does not show that the yielded events were committed."""
    first, second, third = (number.to_bytes(8, "big") + b"\0\0" for number in (10, 20, 30))
    seeks = replace(batch(CAUGHT_UP), latest_replay_id=(10 * known + 5).to_bytes(8, "big") + b"\0\0")
    redelivered = batch(second, third) if known else batch(first, second, third)
    source, _ = source_on([batch(first, second)], [*[batch(first)] * known, seeks, redelivered])
    assert await read_until_fault(source, COMMITTED) == [first, second]
    assert await read_until_fault(source, second) == [third]


async def test_watch_yields_all_events_again_if_the_redelivery_is_incomplete() -> None:
    source, _ = source_on([batch(b"1", b"2", b"3")], [batch(b"1"), batch(CAUGHT_UP)], [batch(b"1"), batch(b"4")])
    assert await read_until_fault(source, COMMITTED) == [b"1", b"2", b"3"]
    assert await read_until_fault(source, b"3") == []
    assert await read_until_fault(source, b"3") == [b"1", b"4"]


async def test_watch_from_an_unknown_start_skips_no_event() -> None:
    source, _ = source_on([batch(b"1", b"2")])
    assert await read_until_fault(source, b"1") == [b"1", b"2"]


async def test_limit_of_a_watch_does_not_count_skipped_events() -> None:
    source, client = source_on([batch(b"1", b"2")], [batch(b"1", b"2"), batch(b"3")])
    await read_until_fault(source, COMMITTED, 5)
    await read_until_fault(source, b"2", 3)
    credit = client.credits[-1]
    assert credit.outstanding == 2, "one of the three counted events has arrived"


@pytest.mark.parametrize(
    ("topic", "after", "limit", "silence"),
    [
        (TOPIC, StartFrom.LATEST, None, 300),
        (TOPIC, StartFrom.EARLIEST, None, 300),
        (TOPIC, COMMITTED, 0, 300),
        (TOPIC, COMMITTED, None, 0),
        ("/u/Generic", COMMITTED, None, 300),
    ],
)
def test_invalid_arguments_are_refused_at_once(topic: str, after: StartFrom, limit: int | None, silence: float) -> None:
    source, client = source_on()
    with pytest.raises(ConfigurationError, match="Nothing was read"):
        source.subscribe(topic, after, limit=limit, silence_timeout=silence)
    assert client.credits == []
