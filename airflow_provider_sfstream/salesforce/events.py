"""Start positions and event batches of subscriptions on all APIs, and flow control on the Pub/Sub API.

At most 100 events may be outstanding on one Subscribe call; Salesforce silently treats more as 100 (Pub/Sub API guide,
"Flow control"). A client that requests more only after all events arrived loses a round trip for every 100 events, so
:class:`Credit` requests more as soon as half has arrived.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Literal, NamedTuple

from airflow_provider_sfstream.exceptions import ConfigurationError

PayloadEncoding = Literal["avro", "json"]
"""Format of payloads: schemaless Avro on the Pub/Sub API, JSON on the Streaming API."""


CONFIRM_TIMEOUT = 300.0
"""Seconds within which Salesforce sends an empty response of the Pub/Sub API, or confirms a commit, unasked: it does so
within 270 (Pub/Sub API proto, ``FetchResponse``). An empty poll of the Streaming API confirms nothing."""


class StartFrom(Enum):
    """Start of a subscription without a replay ID.

    ``COMMITTED`` is the committed position of a managed subscription. Only the sources of managed subscriptions accept
    it; no ``start_from`` argument does.
    """

    EARLIEST = "earliest"
    LATEST = "latest"
    COMMITTED = "committed"


def described(after: bytes | StartFrom) -> str:
    """Return the start of a subscription as text for a log."""
    return f"replay ID {after.hex()}" if isinstance(after, bytes) else f"the {after.value}"


class EventColumn(NamedTuple):
    """Column of the landing with a value for each event: bytes or text."""

    name: str
    type: Literal["binary", "string"]
    nullable: bool = False


EVENT_COLUMNS: Mapping[str, EventColumn] = {
    "replay_ids": EventColumn("replay_id", "binary"),
    "event_ids": EventColumn("event_id", "string", nullable=True),
    "schema_ids": EventColumn("schema_id", "string"),
    "payloads": EventColumn("payload", "binary"),
}
"""Columns of the landing by the field of :class:`EventBatch` with their values, in the order of the landing."""


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Events that arrived together, as columns of equal length (all empty for a keepalive).

    ``latest_replay_id`` is the replay ID that the server named with the batch; on an empty batch with ``pending > 0``
    it is a position from which reading can continue. ``pending`` is the number of outstanding events. On the Streaming
    API ``latest_replay_id`` is that of the last event (empty without events), and ``pending`` is 0: its empty polls
    prove contact, but neither a position nor an end of stream. ``received_at`` is nanoseconds since the epoch.
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

    @property
    def confirms_position(self) -> bool:
        """Return whether an empty batch confirms a position: no unread events precede it."""
        return len(self) == 0 and self.pending > 0 and bool(self.latest_replay_id)

    def part(self, first: int, end: int) -> EventBatch:
        """Return the events from index ``first`` up to, and without, ``end``; other fields are unchanged."""
        return replace(self, **{name: getattr(self, name)[first:end] for name in EVENT_COLUMNS})

    @classmethod
    def without_events(cls, *, received_at: int) -> EventBatch:
        """Return an empty batch, which only proves that the subscription is alive."""
        columns: dict[str, Any] = {name: [] for name in EVENT_COLUMNS}
        return cls(**columns, latest_replay_id=b"", pending=0, received_at=received_at)


def check_amounts(name: str, limit: int | None, **seconds: float) -> None:
    """Raise if the limit or a time to wait of a subscription is invalid, before anything is contacted."""
    if limit is not None and limit < 1:
        raise ConfigurationError(f"{name}: limit={limit} must be at least 1, or None. Nothing was read.")
    for argument, value in seconds.items():
        if not value > 0:
            raise ConfigurationError(f"{name}: {argument}={value} must be over 0 seconds. Nothing was read.")


Responses = Generator[EventBatch | None, None, None]
"""Batches of a subscription; ``None``: no response in time. Closing it ends the subscription
(``contextlib.closing``)."""
AsyncResponses = AsyncGenerator[EventBatch, None]
"""Batches of a subscription in an event loop: use ``contextlib.aclosing``."""

MOST_OUTSTANDING = 100
"""Maximum of outstanding events of one Subscribe call."""


class Credit:
    """Counter of requested and received events. Not safe for concurrent use; the caller holds a lock.

    Guarantee: never more than 100 events outstanding, never more than ``limit`` events requested in total.
    """

    def __init__(self, limit: int | None = None) -> None:
        if limit is not None and limit < 1:
            raise ValueError(f"limit={limit} must be at least 1, or None.")
        self._remaining = limit
        self.outstanding = 0
        """Requested events that have not arrived yet."""

    def received(self, count: int) -> None:
        """Record that ``count`` events arrived (0 for a keepalive)."""
        # Not below 0: a server may send more events than were requested.
        self.outstanding = max(0, self.outstanding - count)

    def request(self) -> int:
        """Return the number of events to request now, and record them as outstanding. 0: send no request.

        Tops up to 100 outstanding events once half of them has arrived.
        """
        if self.outstanding > MOST_OUTSTANDING // 2:
            return 0
        number = MOST_OUTSTANDING - self.outstanding
        if self._remaining is not None:
            number = min(number, self._remaining)
            self._remaining -= number
        self.outstanding += number
        return number

    def allow(self, count: int) -> None:
        """Raise the limit by ``count`` events, in place of received events that do not count."""
        if self._remaining is not None:
            self._remaining += count

    def stop(self) -> None:
        """Request no more events. Outstanding events may still arrive."""
        self._remaining = 0

    @property
    def exhausted(self) -> bool:
        """Return whether all events of the limit were requested and have arrived."""
        return self._remaining == 0 and self.outstanding == 0
