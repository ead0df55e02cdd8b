"""Time until a stream loses events: proven by Salesforce, or estimated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from airflow_provider_sfstream.protocol.certainty import certainty_of


@dataclass(frozen=True)
class Headroom:
    """The time that is left to read unread events before Salesforce deletes them.

    :param known: by the last moment for which the end of the stream was proven: each unread event is younger. Below
        zero, unread events may be lost already. ``None`` without proof of an end.
    :param assumed: by the last estimate, where that is later: the time of the last stored event, which its publisher
        set, or an end of the stream that is only estimated. ``None`` where nothing later than the proven end is stored.
    :param retention: how long Salesforce keeps an event.
    """

    known: timedelta | None
    assumed: timedelta | None
    retention: timedelta

    @classmethod
    def of(cls, drain: Mapping[str, Any], now: datetime) -> Headroom:
        """Return the headroom of a stream at ``now``, by the section ``drain`` of its status."""
        retention = timedelta(seconds=drain["retention"])
        certainty = certainty_of(drain)
        times = {fact: _time(drain.get(fact)) for fact in ("confirmed_at", "last_event_time")}
        proven = times["confirmed_at"] if certainty["confirmed_at"] == "proven" else None
        later = [time for time in times.values() if time is not None and time <= now and (not proven or time > proven)]
        return cls(
            known=None if proven is None else proven + retention - now,
            assumed=max(later) + retention - now if later else None,
            retention=retention,
        )

    @property
    def best(self) -> timedelta | None:
        """The proven time or, where that is longer, the estimated one."""
        return self.known if self.assumed is None else self.assumed


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
