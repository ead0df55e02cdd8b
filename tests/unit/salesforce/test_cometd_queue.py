"""Queue of event messages between the connection and the application."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from airflow_provider_sfstream.salesforce.streaming.cometd.messages import EventMessage
from airflow_provider_sfstream.salesforce.streaming.cometd.queue import EventQueue


def message(number: int) -> EventMessage:
    return EventMessage({"channel": "/x", "n": number}, b"")


def numbers(messages: list[EventMessage]) -> list[int]:
    return [each["n"] for each in messages]


async def steps(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_messages_are_returned_in_order_and_not_more_than_requested() -> None:
    queue = EventQueue(0)
    for number in range(5):
        queue.put(message(number))

    assert numbers(await queue.take(2)) == [0, 1]
    assert numbers(await queue.take(9)) == [2, 3, 4]
    assert queue.qsize() == 0


async def test_messages_that_were_put_back_are_returned_first() -> None:
    queue = EventQueue(0)
    for number in range(3):
        queue.put(message(number))
    taken = await queue.take(2)

    queue.put_back(taken)

    assert numbers(await queue.take(9)) == [0, 1, 2]


async def test_failure_is_reported_after_all_messages_were_taken() -> None:
    queue = EventQueue(0)
    queue.put(message(1))
    queue.end(ValueError("first"))
    queue.end(ValueError("second"))
    queue.put(message(2))  # may follow a gap, so the queue discards it

    assert numbers(await queue.take(9)) == [1]
    assert await queue.take(9) == []
    assert str(queue.failure) == "first"


@pytest.mark.parametrize("before", range(4))
@pytest.mark.parametrize("after", range(4))
async def test_cancelled_consumer_loses_no_message(before: int, after: int) -> None:
    queue = EventQueue(0)
    consumer = asyncio.create_task(queue.take(1))
    await steps(before)
    queue.put(message(1))
    await steps(after)
    consumer.cancel()
    [outcome] = await asyncio.gather(consumer, return_exceptions=True)

    taken = outcome if isinstance(outcome, list) else await queue.take(1)

    assert numbers(taken) == [1]


async def test_each_message_goes_to_one_of_many_consumers() -> None:
    queue = EventQueue(0)
    consumers = [asyncio.create_task(queue.take(1)) for _ in range(3)]
    await steps(2)
    for number in range(3):
        queue.put(message(number))

    taken = await asyncio.gather(*consumers)

    assert sorted(itertools.chain.from_iterable(map(numbers, taken))) == [0, 1, 2]


async def test_there_is_space_again_when_messages_were_taken() -> None:
    queue = EventQueue(2)
    await queue.space()
    queue.put(message(1))
    queue.put(message(2))
    waiting = asyncio.create_task(queue.space())
    await steps(3)
    assert not waiting.done()

    await queue.take(1)

    await asyncio.wait_for(waiting, 60)


@pytest.mark.parametrize("most", [0, -1])
async def test_queue_without_a_limit_always_has_space(most: int) -> None:
    queue = EventQueue(most)
    for number in range(1000):
        queue.put(message(number))

    await asyncio.wait_for(queue.space(), 60)


async def test_heartbeat_wakes_only_consumers_that_requested_heartbeats() -> None:
    queue = EventQueue(0)
    notified, other = asyncio.create_task(queue.take(1, heartbeats=True)), asyncio.create_task(queue.take(1))
    await steps(2)

    queue.heartbeat()

    assert await asyncio.wait_for(notified, 60) == []
    assert not other.done()
    queue.put(message(1))
    assert numbers(await asyncio.wait_for(other, 60)) == [1]


async def test_heartbeat_is_reported_once_and_not_after_messages() -> None:
    queue = EventQueue(0)
    queue.heartbeat()
    assert await queue.take(1, heartbeats=True) == []
    queue.heartbeat()
    queue.put(message(1))
    assert numbers(await queue.take(1, heartbeats=True)) == [1]

    waiting = asyncio.create_task(queue.take(1, heartbeats=True))
    await steps(3)

    assert not waiting.done()
    waiting.cancel()
