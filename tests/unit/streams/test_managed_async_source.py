"""What a watch on a managed subscription leaves out after a fault, with scripted streams."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import ConfigurationError, ServiceUnavailableError
from airflow_provider_sfstream.salesforce.credit import Credit
from airflow_provider_sfstream.salesforce.events import EventBatch, StartFrom
from airflow_provider_sfstream.salesforce.managed_subscription import ManagedSubscription
from airflow_provider_sfstream.streams.managed.async_source import AsyncManagedSource

TOPIC = "/event/Order__e"
ORDERS = ManagedSubscription(developer_name="Orders")
COMMITTED = StartFrom.COMMITTED
CAUGHT_UP = b"caught up"


def batch(*replay_ids: bytes) -> EventBatch:
    if replay_ids == (CAUGHT_UP,):
        return EventBatch([], [], [], [], CAUGHT_UP, 100, 1)
    count = len(replay_ids)
    return EventBatch(list(replay_ids), [None] * count, ["schema"] * count, [b""] * count, replay_ids[-1], 50, 1)


class Client:
    """Streams in turn, each of batches; a fault ends it."""

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


async def told(source: AsyncManagedSource, start: bytes | StartFrom, limit: int | None = None) -> list[bytes]:
    """Return the replay IDs of one subscription, and the position of a confirmation, until its fault."""
    got: list[bytes] = []
    stream = source.subscribe(TOPIC, start, limit=limit, silence_timeout=300)
    async with aclosing(stream):
        with pytest.raises(ServiceUnavailableError):  # noqa: PT012 - what comes before the fault counts
            async for response in stream:
                got += response.replay_ids or [response.latest_replay_id]
    return [replay_id for replay_id in got if replay_id]


def source_on(*streams: list[EventBatch]) -> tuple[AsyncManagedSource, Client]:
    client = Client(*streams)
    given: Any = client
    return AsyncManagedSource(given, ORDERS), client


async def test_what_was_yielded_is_left_out_however_often() -> None:
    source, client = source_on(
        [batch(b"1", b"2"), batch(b"3")],
        [batch(b"1"), batch(b"2", b"3", b"4")],
        [batch(b"1", b"2", b"3", b"4"), batch(b"5")],
    )
    assert await told(source, COMMITTED) == [b"1", b"2", b"3"]
    assert await told(source, b"3") == [b"4"]
    assert await told(source, b"4") == [b"5"]
    assert client.closed == 3


async def test_what_lies_before_a_confirmed_position_is_left_out() -> None:
    source, _ = source_on([batch(b"1", b"2"), batch(CAUGHT_UP)], [batch(b"1"), batch(b"2"), batch(b"3")])
    assert await told(source, COMMITTED) == [b"1", b"2", CAUGHT_UP]
    assert await told(source, CAUGHT_UP) == [b"3"]


async def test_a_quiet_stream() -> None:
    source, _ = source_on([batch(CAUGHT_UP)], [batch(b"1"), batch(b"2"), batch(b"3")], [batch(b"1", b"2", b"3", b"4")])
    assert await told(source, COMMITTED) == [CAUGHT_UP]
    assert await told(source, CAUGHT_UP) == [b"1", b"2", b"3"]
    assert await told(source, b"3") == [b"4"]


async def test_nothing_is_left_out_where_somebody_committed() -> None:
    source, _ = source_on(
        [batch(b"1", b"2")], [batch(b"2", b"3"), batch(b"4")], [batch(b"2", b"3", b"4", b"5")], [batch(CAUGHT_UP)]
    )
    assert await told(source, COMMITTED) == [b"1", b"2"]
    assert await told(source, b"2") == [b"2", b"3", b"4"]
    assert await told(source, b"4") == [b"5"], "the new beginning is known"
    assert await told(source, b"5") == [CAUGHT_UP]


async def test_everything_is_told_again_where_not_all_came_again() -> None:
    source, _ = source_on([batch(b"1", b"2", b"3")], [batch(b"1"), batch(CAUGHT_UP)], [batch(b"1"), batch(b"4")])
    assert await told(source, COMMITTED) == [b"1", b"2", b"3"]
    assert await told(source, b"3") == []
    assert await told(source, b"3") == [b"1", b"4"]


async def test_a_start_from_elsewhere_leaves_nothing_out() -> None:
    source, _ = source_on([batch(b"1", b"2")])
    assert await told(source, b"1") == [b"1", b"2"]


async def test_the_limit_does_not_count_what_is_left_out() -> None:
    source, client = source_on([batch(b"1", b"2")], [batch(b"1", b"2"), batch(b"3")])
    await told(source, COMMITTED, 5)
    await told(source, b"2", 3)
    credit = client.credits[-1]
    assert credit.outstanding == 2, "of the three that count, one has come"


@pytest.mark.parametrize(
    ("topic", "start", "limit", "silence"),
    [
        (TOPIC, StartFrom.LATEST, None, 300),
        (TOPIC, StartFrom.EARLIEST, None, 300),
        (TOPIC, COMMITTED, 0, 300),
        (TOPIC, COMMITTED, None, 0),
        ("/u/Generic", COMMITTED, None, 300),
    ],
)
def test_arguments_are_refused_at_once(topic: str, start: StartFrom, limit: int | None, silence: float) -> None:
    source, client = source_on()
    with pytest.raises(ConfigurationError, match="Nothing was read"):
        source.subscribe(topic, start, limit=limit, silence_timeout=silence)
    assert client.credits == []
