"""Start positions of CometD subscriptions, and stored replay markers."""

from __future__ import annotations

from typing import Any

import pytest
from aiocometd.exceptions import ServerError
from aiosfstream import (
    ConstantReplayId,
    DefaultMappingStorage,
    MappingStorage,
    ReplayMarker,
    ReplayMarkerStorage,
    ReplayOption,
)
from aiosfstream.exceptions import ReplayError

from airflow_provider_sfstream.salesforce.streaming.cometd.client import CometdClient
from airflow_provider_sfstream.salesforce.streaming.cometd.messages import EventMessage
from airflow_provider_sfstream.salesforce.streaming.cometd.replay import (
    ArrivalOrderStorage,
    is_replay_id_refused,
)

CHANNEL = "/topic/Invoices"
FILTERED = f"{CHANNEL}?Status__c='Open'"


def from_replay_id(replay_id: int) -> ArrivalOrderStorage:
    return ArrivalOrderStorage(ConstantReplayId(replay_id))


async def subscribe(storage: ReplayMarkerStorage, subscription: str = CHANNEL) -> dict[str, Any]:
    request = {"channel": "/meta/subscribe", "subscription": subscription}
    await storage.outgoing([request], {})
    return request


def event(replay_id: int, date: str | None = "2026-11-21T10:00:00.000Z", channel: str = CHANNEL) -> EventMessage:
    body: dict[str, Any] = {"event": {"replayId": replay_id, "createdDate": date}}
    if date is None:
        del body["event"]["createdDate"]
    return EventMessage({"channel": channel, "data": body}, b"")


@pytest.mark.parametrize("replay_id", [0, 1, -1, -2, 2**40])
async def test_replay_id_is_sent_unchanged(replay_id: int) -> None:
    request = await subscribe(from_replay_id(replay_id), FILTERED)

    assert request["ext"] == {"replay": {CHANNEL: replay_id}}
    assert request["subscription"] == FILTERED


async def test_constant_replay_id_stores_no_marker() -> None:
    storage = from_replay_id(5)

    async with storage(event(7)):
        pass

    assert (await subscribe(storage))["ext"] == {"replay": {CHANNEL: 5}}
    assert await storage.get_replay_marker(CHANNEL) is None


async def test_other_messages_are_sent_unchanged() -> None:
    request = {"channel": "/meta/connect"}

    await from_replay_id(5).outgoing([request], {})

    assert request == {"channel": "/meta/connect"}


async def test_a_request_that_is_sent_again_is_not_changed() -> None:
    storage = from_replay_id(5)
    storage.fall_back(CHANNEL, -2)
    request = await subscribe(storage)

    await storage.outgoing([request], {})

    assert request["ext"] == {"replay": {CHANNEL: -2}}


async def test_fallback_applies_once_to_one_subscription() -> None:
    storage = from_replay_id(5)
    storage.fall_back(CHANNEL, -1)

    assert (await subscribe(storage, "/topic/Other"))["ext"] == {"replay": {"/topic/Other": 5}}
    assert (await subscribe(storage))["ext"] == {"replay": {CHANNEL: -1}}
    assert (await subscribe(storage))["ext"] == {"replay": {CHANNEL: 5}}


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (ReplayOption.NEW_EVENTS, ConstantReplayId),
        ({}, MappingStorage),
        (ConstantReplayId(-1), ConstantReplayId),
        (from_replay_id(3), ConstantReplayId),
    ],
)
def test_replay_storage_for_each_argument(given: Any, kind: type) -> None:
    storage = CometdClient.create_replay_storage(given)
    assert isinstance(storage, ArrivalOrderStorage)
    assert type(storage.storage) is kind


@pytest.mark.parametrize("given", [None, 5, "/topic/X"])
def test_invalid_replay_argument_has_no_storage(given: Any) -> None:
    assert CometdClient.create_replay_storage(given) is None


@pytest.mark.parametrize("adapted", [False, True])
async def test_the_last_message_handled_is_the_marker(adapted: bool) -> None:
    markers: dict[str, ReplayMarker] = {}
    storage = ArrivalOrderStorage(DefaultMappingStorage(markers, -2) if adapted else MappingStorage(markers))

    for replay_id, date in [(9, "2026-11-21T10:00:00.5Z"), (3, "2026-11-21T09:00:00.5Z"), (4, None), (0, "1795")]:
        async with storage(event(replay_id, date)):
            pass
        assert markers == {CHANNEL: ReplayMarker(date or "", replay_id)}


async def test_earlier_message_does_not_move_the_marker_back() -> None:
    markers: dict[str, ReplayMarker] = {}
    storage = ArrivalOrderStorage(MappingStorage(markers))
    first, second, other = event(1), event(2), event(3, channel="/topic/Other")
    await storage.incoming([first, other, {"channel": "/meta/connect"}])
    await storage.incoming([second])

    for message in (second, first, other):
        await storage.extract_replay_id(message)

    assert {channel: marker.replay_id for channel, marker in markers.items()} == {CHANNEL: 2, "/topic/Other": 3}


@pytest.mark.parametrize("channel", [CHANNEL, FILTERED])
async def test_marker_is_stored_under_the_name_of_its_subscription(channel: str) -> None:
    markers: dict[str, ReplayMarker] = {}
    storage = ArrivalOrderStorage(MappingStorage(markers))
    assert "ext" not in await subscribe(storage, FILTERED)

    await storage.extract_replay_id(event(6, channel=channel))

    assert list(markers) == [FILTERED]
    assert (await subscribe(storage, FILTERED))["ext"] == {"replay": {CHANNEL: 6}}


@pytest.mark.parametrize(
    "message",
    [{"channel": "/x"}, {"channel": "/x", "data": None}, {"channel": "/x", "data": {"event": {"replayId": "7"}}}],
)
async def test_message_without_a_replay_id_raises_and_stores_no_marker(message: dict[str, Any]) -> None:
    markers: dict[str, ReplayMarker] = {}

    with pytest.raises(ReplayError, match="/x has no replayId"):
        await ArrivalOrderStorage(MappingStorage(markers)).extract_replay_id(message)

    assert markers == {}


async def test_custom_storage_receives_all_messages() -> None:
    class Own(ConstantReplayId):  # type: ignore[misc]
        seen: list[Any] = []
        arrived: list[Any] = []

        async def extract_replay_id(self, message: dict[str, Any]) -> None:
            self.seen.append(message)

        async def incoming(self, payload: list[Any], headers: Any = None) -> None:
            self.arrived.append(payload)

    storage = ArrivalOrderStorage(Own(-2))
    await storage.incoming([event(1)])

    async with storage(event(1)):
        pass

    assert Own.seen == [event(1)]
    assert Own.arrived == [[event(1)]]
    assert (await subscribe(storage))["ext"] == {"replay": {CHANNEL: -2}}


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        ("400::The replayId {5} you provided was invalid.  Please provide a valid ID, -2 to replay all events, or "
         "-1 to replay only new events.", True),
        ("400::The replayId for channel {/x} wasn't found using the provided replay ID map {{}}", False),
        ("400::The channel you requested to subscribe to does not exist {/x}", False),
        ("403:denied_by_security_policy:create_denied", False),
        (None, False),
    ],
)  # fmt: skip
def test_only_the_replay_error_counts_as_a_refused_replay_id(error: str | None, refused: bool) -> None:
    assert is_replay_id_refused(ServerError("Subscribe request failed.", {"error": error})) is refused
