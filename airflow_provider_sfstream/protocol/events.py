"""What a subscription begins with and what it yields: the same for every API."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

PayloadEncoding = Literal["avro", "json"]
"""What payloads are: schemaless Avro on the Pub/Sub API, JSON on the Streaming API."""


class StartFrom(Enum):
    """Where a subscription begins when it has no replay ID.

    ``COMMITTED`` is where a managed subscription itself goes on. Only the sources of managed subscriptions take it; no
    ``start_from`` argument does.
    """

    EARLIEST = "earliest"
    LATEST = "latest"
    COMMITTED = "committed"


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Events that arrived together, as columns of equal length (all empty for a keepalive).

    ``latest_replay_id`` is the replay ID that the server named with the batch; on an empty batch with
    ``pending > 0`` it is a confirmed position. ``pending`` is how many events the server still owes. The Streaming API
    has neither: there the last event's replay ID, or none, and 0.
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
