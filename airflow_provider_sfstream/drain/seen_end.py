"""The end of a stream that somebody else saw, as a source: for a drain whose wait for it was on the triggerer."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from airflow_provider_sfstream.protocol.topics import Api
from airflow_provider_sfstream.reading.source import EventBatch, PayloadEncoding, Responses, StartFrom


@dataclass(frozen=True)
class SeenEnd:
    """What Salesforce answered to a subscription after ``after``, opened at ``opened_at``: that nothing comes.

    It is a source for one drain that begins there, with a clock that says ``opened_at``: so the drain confirms the end
    of the stream for that moment, as if it had waited itself, and contacts nobody.

    :param through: the replay ID that the answer named; ``after`` where it named none.
    """

    api: Api
    after: bytes
    through: bytes
    opened_at: datetime

    @property
    def payload_encoding(self) -> PayloadEncoding:
        """What payloads of the stream are."""
        return "avro" if self.confirms_positions else "json"

    @property
    def confirms_positions(self) -> bool:
        """Whether empty responses of the API name a replay ID."""
        return self.api == "pubsub"

    def now(self) -> datetime:
        """Return the time of day for the drain."""
        return self.opened_at

    def subscribe(self, topic: str, start: bytes | StartFrom, **_: Any) -> Responses:
        """Yield the answer, to a drain that begins after :attr:`after`.

        :raises ValueError: to any other: somebody moved the position.
        """
        if start != self.after:
            raise ValueError(
                f"{topic}: its end was seen after {self.after.hex()}, and the position is another one by now. Nothing "
                "was recorded. Run the task again."
            )
        latest = self.through if self.confirms_positions else b""
        yield EventBatch.without_events(latest_replay_id=latest, pending=1, received_at=time.time_ns())

    def prove_contact(self, topic: str) -> None:
        """Do nothing: the answer is the proof."""

    def schema(self, schema_id: str) -> str | None:
        """Return nothing: there are no events."""
        return None

    def renew_session(self) -> None:
        """Do nothing: there is no session."""
