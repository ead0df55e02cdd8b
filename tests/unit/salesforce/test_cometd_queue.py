"""Event messages between the connection and the application."""

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


async def test_messages_come_in_order_and_not_more_than_asked_for() -> None:
    queue = EventQueue(0)
    for number in range(5):
        queue.put(message(number))

    assert numbers(await queue.take(2)) == [0, 1]
    assert numbers(await queue.take(9)) == [2, 3, 4]
    assert queue.qsize() == 0


async def test_what_was_put_back_comes_first() -> None:
    queue = EventQueue(0)
    for number in range(3):
        queue.put(message(number))
    taken = await queue.take(2)

    queue.put_back(taken)

    assert numbers(await queue.take(9)) == [0, 1, 2]


async def test_the_failure_counts_when_all_messages_were_taken() -> None:
    queue = EventQueue(0)
    queue.put(message(1))
    queue.end(ValueError("first"))
    queue.end(ValueError("second"))
    queue.put(message(2))  # after a gap, perhaps

    assert numbers(await queue.take(9)) == [1]
    assert await queue.take(9) == []
    assert str(queue.failure) == "first"


@pytest.mark.parametrize("before", range(4))
@pytest.mark.parametrize("after", range(4))
async def test_a_cancelled_taker_loses_nothing(before: int, after: int) -> None:
    queue = EventQueue(0)
    taker = asyncio.create_task(queue.take(1))
    await steps(before)
    queue.put(message(1))
    await steps(after)
    taker.cancel()
    [outcome] = await asyncio.gather(taker, return_exceptions=True)

    taken = outcome if isinstance(outcome, list) else await queue.take(1)

    assert numbers(taken) == [1]


async def test_every_message_goes_to_one_of_many_takers() -> None:
    queue = EventQueue(0)
    takers = [asyncio.create_task(queue.take(1)) for _ in range(3)]
    await steps(2)
    for number in range(3):
        queue.put(message(number))

    taken = await asyncio.gather(*takers)

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
async def test_any_number_may_wait(most: int) -> None:
    queue = EventQueue(most)
    for number in range(1000):
        queue.put(message(number))

    await asyncio.wait_for(queue.space(), 60)


async def test_a_heartbeat_wakes_those_who_want_to_know() -> None:
    queue = EventQueue(0)
    knowing, other = asyncio.create_task(queue.take(1, heartbeats=True)), asyncio.create_task(queue.take(1))
    await steps(2)

    queue.heartbeat()

    assert await asyncio.wait_for(knowing, 60) == []
    assert not other.done()
    queue.put(message(1))
    assert numbers(await asyncio.wait_for(other, 60)) == [1]
    assert queue.heartbeats == 1


async def test_a_heartbeat_is_told_once_and_not_after_messages() -> None:
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
