"""The end of a stream that a trigger confirmed, for a drain whose wait for it was on the triggerer."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from airflow_provider_sfstream.streams.drain.drain import DrainResult
from airflow_provider_sfstream.streams.drain.limits import StopReason
from airflow_provider_sfstream.streams.source import PayloadEncoding, StartFrom


@dataclass(frozen=True)
class SeenEnd:
    """Evidence of a trigger that no event follows ``after``, for the moment ``opened_at``.

    Times are Salesforce's: ``opened_at`` is a lower bound, ``contact_at`` an upper bound of the last answer.

    :param through: the replay ID that the last empty response named; ``after`` where there was none.
    """

    after: bytes
    through: bytes
    opened_at: datetime
    contact_at: datetime

    payload_encoding: PayloadEncoding = "avro"

    def drained(self, topic: str, start: bytes | StartFrom) -> DrainResult:
        """Return the result of a drain that begins at ``start`` and receives no event.

        :raises ValueError: if ``start`` is another position.
        """
        if start != self.after:
            raise ValueError(
                f"{topic}: its end was confirmed after {self.after.hex()}, and the position has moved since. Nothing "
                "was recorded. Run the task again."
            )
        return DrainResult(
            stop_reason=StopReason.CAUGHT_UP,
            through=self.through,
            event_count=0,
            payload_bytes=0,
            gap=None,
            reconnects=0,
            pinned=None,
            contact_at=self.contact_at,
            confirmed_at=self.opened_at,
        )

    def schema(self, schema_id: str) -> str | None:
        """Return nothing: there are no events."""
        return None

    def renew_session(self) -> None:
        """Do nothing: there is no session."""
