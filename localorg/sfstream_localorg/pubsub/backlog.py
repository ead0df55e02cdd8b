"""Positions of empty responses on a stream that has not yet sent the events of its backlog."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfstream_localorg.pubsub import pubsub_api_pb2 as pb

if TYPE_CHECKING:
    from sfstream_localorg.org import Org

_CHUNK = 100


class Backlog:
    """Backlog of one stream. All its positions precede the events not yet delivered.

    :param seeks: whether the stream starts at a replay ID or at the earliest event, not at the end.
    """

    def __init__(self, org: Org, topic: str, *, seeks: bool) -> None:
        seek = org.faults.delivery.seek(topic) if seeks else None
        self._org = org
        self._topic = topic
        self._responses = 0 if seek is None else seek.responses
        self.seconds = 0.0 if seek is None else seek.seconds

    @property
    def is_seeking(self) -> bool:
        """True while the stream must send empty responses before the first event."""
        return self._responses > 0 and self._org.faults.delivery.seek(self._topic) is not None

    def next_position(self, position: int) -> int:
        """Return the position of the next empty response of a stream that is at ``position``.

        While the stream seeks, this position lies between ``position`` and the first event to deliver. It may be the
        position of an event of another topic or of an event that the channel's filter drops, or have no event. The
        position of a stalled stream does not change, unless a client cannot resume from it, as at the earliest event.
        """
        bus, event = self._org.bus, self._first_event(position)
        if self._org.faults.delivery.is_stalled(self._topic):
            if event is None:
                return max(position, bus.tip())
            if bus.is_resumable(self._topic, position):
                return position
            return bus.reserve_between(position, event, 0.0) or position
        left, self._responses = self._responses, self._responses - 1
        if event is None:
            return bus.advance()
        return bus.reserve_between(position, event, 1 / (left + 1)) or position

    def _first_event(self, position: int) -> int | None:
        """Return the position of the first event to deliver, ``None`` if there is none."""
        while True:
            _, frames = self._org.bus.read(self._topic, position, _CHUNK, self._org.knobs.response_bytes)
            for frame in frames:
                position = int.from_bytes(pb.FetchResponse.FromString(frame).events[0].replay_id[:8], "big")
                if self._org.channel_delivery.frames(self._topic, [frame]):
                    return position
            if not frames:
                return None
