"""What a drain reads from and writes to. Both are interfaces, so that either API and any landing fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class StartFrom(Enum):
    """Where a subscription begins when it has no replay ID."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Events that arrived together, as columns of equal length (all empty for a keepalive).

    ``latest_replay_id`` is the replay ID that the server named with the batch; on an empty batch with
    ``pending > 0`` it is a confirmed position. ``pending`` is how many events the server still owes.
    ``received_at`` is nanoseconds since the epoch.
    """

    replay_ids: list[bytes]
    event_ids: list[str | None]
    schema_ids: list[str]
    payloads: list[bytes]
    latest_replay_id: bytes
    pending: int
    received_at: int

    def __len__(self) -> int:
        return len(self.replay_ids)


class EventSource(Protocol):
    """A place to subscribe to one topic: the Pub/Sub client, later the Streaming client.

    ``subscribe`` yields batches in stream order, first those strictly after ``start`` when it is a replay ID. It asks for
    at most ``limit`` events over its lifetime (``None``: no limit), so that a bounded drain does not spend delivery
    allocation on events that it will not store. It yields ``None`` whenever ``idle_timeout`` seconds have passed
    without a response. A fault ends the iteration with a :class:`SalesforceStreamError`; closing the iterator
    ends the subscription. ``schema`` returns the Avro schema JSON of a schema id.
    """

    def subscribe(
        self, topic: str, start: bytes | StartFrom, *, limit: int | None, idle_timeout: float
    ) -> Iterator[EventBatch | None]: ...

    def schema(self, schema_id: str) -> str: ...

    def renew_session(self) -> None:
        """Forget the access token, so that the next call logs in again."""
        ...


class EventSink(Protocol):
    """Where drained events go. ``append`` may return before the batch is stored, but keeps order and bounds memory."""

    def append(self, batch: EventBatch) -> None: ...
