"""Start replay IDs of CometD subscriptions, and the storage of replay markers by arrival order."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

from aiocometd.exceptions import ServerError
from aiosfstream import ReplayMarker, ReplayMarkerStorage
from aiosfstream.exceptions import ReplayError

from airflow_provider_sfstream.exceptions import ReplayIdLostError
from airflow_provider_sfstream.salesforce.errors.streaming import error_from_reply
from airflow_provider_sfstream.salesforce.streaming.cometd.messages import EventMessage
from airflow_provider_sfstream.salesforce.topics import channel_of


def is_replay_id_refused(error: ServerError) -> bool:
    """Return whether Salesforce refused a subscription because of its replay ID, and for no other reason.

    Other errors are 400 too: an unknown channel, a replay map without the channel.
    """
    return isinstance(error_from_reply(error.error, topic=""), ReplayIdLostError)


class ArrivalOrderStorage(ReplayMarkerStorage):  # type: ignore[misc]
    """Base of replay marker storages whose marker is that of the event message handled last.

    aiosfstream compares creation dates, as text, to decide whether a marker is newer: with the dates that Salesforce
    sends, a marker then stalls, or moves back. Replay IDs cannot be compared either. The order of arrival, which is the
    order of the stream, decides: handle messages in that order.

    The wire's replay map has the channel without a filter as its key, as required by Salesforce; the storage has the
    subscribed name, in both directions. 0 is a replay ID and is sent.
    """

    def __init__(self) -> None:
        super().__init__()
        self._subscribed: dict[str, str] = {}
        self._fallbacks: dict[str, int] = {}
        self._arrivals = 0
        self._marked: dict[str, int] = {}
        self._marking = asyncio.Lock()

    def fall_back(self, subscription: str, replay_id: int) -> None:
        """Send ``replay_id`` with the next attempt to subscribe to ``subscription``, in place of the stored one."""
        self._fallbacks[subscription] = replay_id

    async def incoming(self, payload: list[dict[str, Any]], headers: dict[str, str] | None = None) -> None:
        """Count the event messages that arrive."""
        for message in payload:
            if isinstance(message, EventMessage):
                self._arrivals += 1
                message.arrival = self._arrivals

    async def insert_replay_id(self, message: dict[str, Any]) -> None:
        """Insert the replay ID to start after into a ``/meta/subscribe`` message."""
        if "replay" in message.get("ext", {}):  # sent again, with a new access token
            return
        subscription = message["subscription"]
        channel = channel_of(subscription)
        self._subscribed[channel] = subscription
        replay_id = self._fallbacks.pop(subscription, None)
        if replay_id is None:
            replay_id = await self.get_replay_id(subscription)
        if replay_id is not None:
            message.setdefault("ext", {})["replay"] = {channel: int(replay_id)}

    async def extract_replay_id(self, message: dict[str, Any]) -> None:
        """Store the replay marker of ``message``, which means that it and all earlier messages were handled.

        :raises ReplayError: if the message has no replay ID.
        """
        replay_id = replay_id_of(message)
        channel = message["channel"]
        subscription = self._subscribed.get(channel_of(channel), channel)
        arrival = message.arrival if isinstance(message, EventMessage) else self._arrivals
        async with self._marking:
            if arrival >= self._marked.get(subscription, 0):
                await self.set_replay_marker(subscription, ReplayMarker(date=_date_of(message), replay_id=replay_id))
                self._marked[subscription] = arrival


class ReplayFrom(ArrivalOrderStorage):
    """Storage that starts every subscription after one replay ID, and stores nothing.

    :param replay_id: sent unchanged: a replay ID, 0 too, or -1 (new events only) or -2 (all retained events).
    """

    def __init__(self, replay_id: int) -> None:
        super().__init__()
        self.replay_id = int(replay_id)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.replay_id})"

    async def get_replay_id(self, subscription: str) -> int:
        return self.replay_id

    async def get_replay_marker(self, subscription: str) -> ReplayMarker | None:
        return None

    async def set_replay_marker(self, subscription: str, replay_marker: ReplayMarker) -> None:
        """Store nothing."""


class MappingMarkers(ArrivalOrderStorage):
    """Storage of replay markers in a mapping, by the subscribed name."""

    def __init__(self, mapping: MutableMapping[str, ReplayMarker]) -> None:
        super().__init__()
        self.mapping = mapping

    def __repr__(self) -> str:
        return f"{type(self).__name__}({type(self.mapping).__name__} of {len(self.mapping)})"

    async def get_replay_marker(self, subscription: str) -> ReplayMarker | None:
        return self.mapping.get(subscription)

    async def set_replay_marker(self, subscription: str, replay_marker: ReplayMarker) -> None:
        self.mapping[subscription] = replay_marker


class AdaptedStorage(ArrivalOrderStorage):
    """Adapter of aiosfstream's storages to :class:`ArrivalOrderStorage`, unless they override ``extract_replay_id``."""

    def __init__(self, storage: ReplayMarkerStorage) -> None:
        super().__init__()
        self.storage = storage
        self._own_rule = type(storage).extract_replay_id is not ReplayMarkerStorage.extract_replay_id

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.storage!r})"

    async def incoming(self, payload: list[dict[str, Any]], headers: dict[str, str] | None = None) -> None:
        await super().incoming(payload, headers)
        await self.storage.incoming(payload, headers)

    async def get_replay_id(self, subscription: str) -> int | None:
        replay_id: int | None = await self.storage.get_replay_id(subscription)
        return replay_id

    async def get_replay_marker(self, subscription: str) -> ReplayMarker | None:
        return await self.storage.get_replay_marker(subscription)

    async def set_replay_marker(self, subscription: str, replay_marker: ReplayMarker) -> None:
        await self.storage.set_replay_marker(subscription, replay_marker)

    async def extract_replay_id(self, message: dict[str, Any]) -> None:
        """Store the marker by arrival order, or by the storage's own rule."""
        if self._own_rule:
            await self.storage.extract_replay_id(message)
        else:
            await super().extract_replay_id(message)


def replay_id_of(message: dict[str, Any]) -> int:
    """Return the replay ID of an event message; raise :class:`ReplayError` if it has none."""
    try:
        replay_id = message["data"]["event"]["replayId"]
    except (KeyError, TypeError):
        replay_id = None
    if type(replay_id) is not int:
        raise ReplayError(f"An event message on {message.get('channel')} has no replayId. No marker was stored.")
    return replay_id


def _date_of(message: dict[str, Any]) -> str:
    """Return the creation date of a message in aiosfstream's form, empty if missing: no code compares it."""
    try:
        return str(ReplayMarkerStorage.get_message_date(message))
    except (ReplayError, KeyError, TypeError, AttributeError):
        return ""
