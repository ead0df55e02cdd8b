"""Start replay IDs of CometD subscriptions, and the storage of replay markers by arrival order."""

from __future__ import annotations

import asyncio
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
    """Adapter of a replay marker storage, whose marker is then that of the event message handled last.

    aiosfstream compares creation dates, as text, to decide whether a marker is newer: with the dates that Salesforce
    sends, a marker then stalls, or moves back. Replay IDs cannot be compared either. The order of arrival, which is the
    order of the stream, decides: handle messages in that order.

    The wire's replay map has the channel without a filter as its key, as required by Salesforce; the storage has the
    subscribed name, in both directions. 0 is a replay ID and is sent.

    :param storage: a storage that overrides ``extract_replay_id`` keeps its own rule.
    """

    def __init__(self, storage: ReplayMarkerStorage) -> None:
        super().__init__()
        self.storage = storage
        self._own_rule = type(storage).extract_replay_id is not ReplayMarkerStorage.extract_replay_id
        self._subscribed: dict[str, str] = {}
        self._fallbacks: dict[str, int] = {}
        self._arrivals = 0
        self._marked: dict[str, int] = {}
        self._marking = asyncio.Lock()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.storage!r})"

    def fall_back(self, subscription: str, replay_id: int) -> None:
        """Send ``replay_id`` with the next attempt to subscribe to ``subscription``, in place of the stored one."""
        self._fallbacks[subscription] = replay_id

    async def incoming(self, payload: list[dict[str, Any]], headers: dict[str, str] | None = None) -> None:
        """Count the event messages that arrive."""
        for message in payload:
            if isinstance(message, EventMessage):
                self._arrivals += 1
                message.arrival = self._arrivals
        await self.storage.incoming(payload, headers)

    async def get_replay_id(self, subscription: str) -> int | None:
        replay_id: int | None = await self.storage.get_replay_id(subscription)
        return replay_id

    async def get_replay_marker(self, subscription: str) -> ReplayMarker | None:
        return await self.storage.get_replay_marker(subscription)

    async def set_replay_marker(self, subscription: str, replay_marker: ReplayMarker) -> None:
        await self.storage.set_replay_marker(subscription, replay_marker)

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
        if self._own_rule:
            await self.storage.extract_replay_id(message)
            return
        replay_id = replay_id_of(message)
        channel = message["channel"]
        subscription = self._subscribed.get(channel_of(channel), channel)
        arrival = message.arrival if isinstance(message, EventMessage) else self._arrivals
        async with self._marking:
            if arrival >= self._marked.get(subscription, 0):
                await self.set_replay_marker(subscription, ReplayMarker(date=_date_of(message), replay_id=replay_id))
                self._marked[subscription] = arrival


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
