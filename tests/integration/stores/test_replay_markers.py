"""aiosfstream's replay markers, in every store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from aiosfstream import ReplayMarker, ReplayOption

from airflow_provider_sfstream.clients.streaming.cometd.messages import EventMessage
from airflow_provider_sfstream.exceptions import (
    ConfigurationError,
    InvalidReplayIdError,
    PositionConflictError,
    ReplayStoreError,
)
from airflow_provider_sfstream.protocol.replay_ids import replay_id_from_integer
from airflow_provider_sfstream.stores.base import Position
from airflow_provider_sfstream.stores.replay_markers import StoredReplayMarkers
from tests.support.replay_stores import StoreUnderTest, run_at

ORG_ID = "00D000000000001EAA"
CHANNEL = "/topic/Invoices"


@pytest.fixture
def markers(under_test: StoreUnderTest) -> StoredReplayMarkers:
    return StoredReplayMarkers(under_test.store, ORG_ID, "mine")


def message(replay_id: int, channel: str = CHANNEL) -> EventMessage:
    return EventMessage({"channel": channel, "data": {"event": {"replayId": replay_id}}}, b"")


async def arrived(markers: StoredReplayMarkers, *messages: EventMessage) -> None:
    await markers.incoming(list(messages))


async def subscribed(markers: StoredReplayMarkers, subscription: str = CHANNEL) -> dict[str, Any]:
    request = {"channel": "/meta/subscribe", "subscription": subscription}
    await markers.outgoing([request], {})
    return request


async def test_a_marker_is_the_position_of_its_stream(markers: StoredReplayMarkers, under_test: StoreUnderTest) -> None:
    assert "ext" not in await subscribed(markers)

    async with markers(message(7)):
        pass

    position = under_test.open().read(markers.stream(CHANNEL))
    assert (position.replay_id, position.fence) == (replay_id_from_integer(7), 1)
    again = StoredReplayMarkers(under_test.open(), ORG_ID, "mine")
    assert (await subscribed(again))["ext"] == {"replay": {CHANNEL: 7}}
    assert position.updated_at is not None
    assert await again.get_replay_marker(CHANNEL) == ReplayMarker(position.updated_at.isoformat(), 7)


async def test_what_failed_is_not_marked(markers: StoredReplayMarkers, under_test: StoreUnderTest) -> None:
    with pytest.raises(RuntimeError):
        async with markers(message(7)):
            raise RuntimeError

    assert under_test.store.read(markers.stream(CHANNEL)) == Position()


async def test_replay_id_zero_is_stored_and_sent(markers: StoredReplayMarkers) -> None:
    await markers.extract_replay_id(message(0))

    assert (await subscribed(markers))["ext"] == {"replay": {CHANNEL: 0}}


async def test_without_a_marker_the_default_is_sent(under_test: StoreUnderTest) -> None:
    markers = StoredReplayMarkers(under_test.store, ORG_ID, default_id=ReplayOption.ALL_EVENTS)

    assert (await subscribed(markers))["ext"] == {"replay": {CHANNEL: -2}}
    await markers.extract_replay_id(message(3))
    assert (await subscribed(markers))["ext"] == {"replay": {CHANNEL: 3}}


async def test_a_filtered_channel_has_a_stream_of_its_own(markers: StoredReplayMarkers) -> None:
    filtered = f"{CHANNEL}?Status__c='Open'"
    await markers.extract_replay_id(message(3))
    await subscribed(markers, filtered)

    await markers.extract_replay_id(message(9, CHANNEL))

    assert (await subscribed(markers, filtered))["ext"] == {"replay": {CHANNEL: 9}}
    assert (await subscribed(StoredReplayMarkers(markers._store, ORG_ID, "mine")))["ext"] == {"replay": {CHANNEL: 3}}


async def test_a_message_that_arrived_earlier_moves_nothing_back(markers: StoredReplayMarkers) -> None:
    first, second = message(20), message(10)  # replay IDs are not compared
    await arrived(markers, first, second)

    await markers.extract_replay_id(second)
    await markers.extract_replay_id(first)

    assert (await subscribed(markers))["ext"] == {"replay": {CHANNEL: 10}}


async def test_another_consumers_move_is_not_overwritten(
    markers: StoredReplayMarkers, under_test: StoreUnderTest
) -> None:
    await markers.extract_replay_id(message(1))
    other = StoredReplayMarkers(under_test.open(), ORG_ID, "mine")
    await subscribed(other)
    await other.extract_replay_id(message(5))

    for _ in range(2):
        with pytest.raises(PositionConflictError, match="no event is lost"):
            await markers.extract_replay_id(message(2))

    assert (await subscribed(markers))["ext"] == {"replay": {CHANNEL: 5}}
    await markers.extract_replay_id(message(6))
    assert (await markers.get_replay_marker(CHANNEL) or ReplayMarker("", -1)).replay_id == 6


@pytest.mark.parametrize("replay_id", [-1, -2, 2**64])
async def test_what_is_no_replay_id_is_refused(
    markers: StoredReplayMarkers, under_test: StoreUnderTest, replay_id: int
) -> None:
    with pytest.raises(InvalidReplayIdError):
        await markers.set_replay_marker(CHANNEL, ReplayMarker("", replay_id))

    assert under_test.store.read(markers.stream(CHANNEL)) == Position()


async def test_a_stream_of_windows_is_not_marked(markers: StoredReplayMarkers, under_test: StoreUnderTest) -> None:
    under_test.advance(markers.stream(CHANNEL), replay_id_from_integer(4), run_at(1))

    with pytest.raises(ConfigurationError, match="drained into windows"):
        await markers.extract_replay_id(message(5))


async def test_messages_marked_together_are_marked_one_by_one(markers: StoredReplayMarkers) -> None:
    messages = [message(number) for number in range(1, 11)]
    await arrived(markers, *messages)

    await asyncio.gather(*(markers.extract_replay_id(each) for each in messages))

    marker = await markers.get_replay_marker(CHANNEL)
    assert marker is not None
    assert marker.replay_id == 10


async def test_after_a_failure_of_the_store_it_is_looked_at_anew(
    markers: StoredReplayMarkers, under_test: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await markers.extract_replay_id(message(1))
    mark: Callable[..., Position] = under_test.store.mark

    def stored_but_not_told(*arguments: Any, **options: Any) -> Position:
        mark(*arguments, **options)
        raise ReplayStoreError("the connection broke during the commit")

    with monkeypatch.context() as patched:
        patched.setattr(under_test.store, "mark", stored_but_not_told)
        with pytest.raises(ReplayStoreError):
            await markers.extract_replay_id(message(2))
    await markers.extract_replay_id(message(3))

    marker = await markers.get_replay_marker(CHANNEL)
    assert marker is not None
    assert marker.replay_id == 3
