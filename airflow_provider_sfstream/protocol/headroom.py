"""How long until a stream loses events: what is known of it, and what is assumed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any


@dataclass(frozen=True)
class Headroom:
    """The time that is left to read what was not read yet, before Salesforce forgets it.

    :param known: by the last moment at which Salesforce said that all was read: whatever is unread is younger. Below
        zero, unread events may be lost already. ``None`` where it never said so.
    :param assumed: by the time of the last event that is stored, where that is later: what is unread came after it
        only if publishers tell the time right. ``None`` where nothing later than what is known is stored.
    :param retention: how long Salesforce keeps an event.
    """

    known: timedelta | None
    assumed: timedelta | None
    retention: timedelta

    @classmethod
    def of(cls, drain: Mapping[str, Any], now: datetime) -> Headroom:
        """Return the headroom of a stream at ``now``, by the section ``drain`` of its status."""
        retention = timedelta(seconds=drain["retention"])
        confirmed, stored = (_time(drain.get(key)) for key in ("confirmed_at", "last_event_time"))
        later = stored is not None and stored <= now and (confirmed is None or stored > confirmed)
        return cls(
            known=None if confirmed is None else confirmed + retention - now,
            assumed=stored + retention - now if later and stored is not None else None,
            retention=retention,
        )

    @property
    def best(self) -> timedelta | None:
        """What is known or, where more, assumed."""
        return self.known if self.assumed is None else self.assumed


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
