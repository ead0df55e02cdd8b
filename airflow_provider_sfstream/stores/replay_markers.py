"""aiosfstream's replay markers in this package's replay store, for people with aiosfstream code of their own."""

from __future__ import annotations

import asyncio
import threading

from aiosfstream import ReplayMarker, ReplayOption

from airflow_provider_sfstream.clients.streaming.cometd.replay import ArrivalOrderStorage
from airflow_provider_sfstream.exceptions import PositionConflictError
from airflow_provider_sfstream.protocol.replay_ids import replay_id_from_integer, replay_id_to_integer
from airflow_provider_sfstream.protocol.streams import Stream
from airflow_provider_sfstream.stores.base import Position, ReplayStore


class StoredReplayMarkers(ArrivalOrderStorage):
    """Keeps the replay marker of each channel as the position of the stream (org, channel, subscription).

    Give it to a :class:`~airflow_provider_sfstream.clients.streaming.cometd.client.CometdClient` as ``replay`` and mark
    each message when it has been handled: ``async with client.replay_storage(message): ...``. Each mark is one write.
    The store works in a thread, never in the event loop.

    Guarantees: a marker moves in the order of arrival only; one that another consumer has moved meanwhile is not
    overwritten. Streams that are drained into windows cannot be marked: choose another ``subscription``.

    :param store: where the positions are.
    :param org_id: of the org that the client reads, 18 characters.
    :param subscription: the name of this consumer; one process at a time may use it.
    :param default_id: where a channel without a marker starts; ``None``: with new events, as Salesforce decides.
    """

    def __init__(
        self,
        store: ReplayStore,
        org_id: str,
        subscription: str = "airflow",
        *,
        default_id: ReplayOption | None = None,
    ) -> None:
        super().__init__()
        self._store = store
        self._org_id = org_id
        self._subscription = subscription
        self._default_id = default_id
        self._positions: dict[str, Position] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._store!r}, {self._org_id!r}, {self._subscription!r})"

    def stream(self, channel: str) -> Stream:
        """Return the stream whose position is the marker of ``channel``, as it is subscribed to."""
        return Stream(self._org_id, "streaming", channel, self._subscription)

    async def get_replay_id(self, subscription: str) -> int | None:
        """Return the replay ID to start after, or the default."""
        marker = await self.get_replay_marker(subscription)
        return self._default_id if marker is None else marker.replay_id

    async def get_replay_marker(self, subscription: str) -> ReplayMarker | None:
        """Return the marker of a channel, ``None`` if none is stored; its date is when it was stored.

        :raises ReplayStoreError: if the store cannot be read.
        :raises InvalidReplayIdError: if the position is not one of the Streaming API.
        """
        position = await asyncio.to_thread(self._read, subscription)
        if position.replay_id is None:
            return None
        date = "" if position.updated_at is None else position.updated_at.isoformat()
        return ReplayMarker(date=date, replay_id=replay_id_to_integer(position.replay_id))

    async def set_replay_marker(self, subscription: str, replay_marker: ReplayMarker) -> None:
        """Store the marker of a channel; the thread that does so goes on when the caller is cancelled.

        :raises InvalidReplayIdError: if its replay ID is none, such as -1 and -2.
        :raises PositionConflictError: if another consumer has moved the position since it was read or stored here.
        :raises ConfigurationError: if the stream is drained into windows.
        :raises ReplayStoreError: if the store cannot be written.
        """
        replay_id = replay_id_from_integer(replay_marker.replay_id)
        await asyncio.to_thread(self._mark, subscription, replay_id)

    def _read(self, channel: str) -> Position:
        with self._lock:
            position = self._positions[channel] = self._store.read(self.stream(channel))
            return position

    def _mark(self, channel: str, replay_id: bytes) -> None:
        with self._lock:
            stream = self.stream(channel)
            expected = self._positions.get(channel)
            if expected is None:
                expected = self._store.read(stream)
            try:
                self._positions[channel] = self._store.mark(
                    stream, expected, replay_id, updated_by=f"StoredReplayMarkers of {self._subscription}"
                )
            except PositionConflictError:
                raise
            except Exception:
                # Whether it was stored is not known: look before the next time.
                self._positions.pop(channel, None)
                raise
