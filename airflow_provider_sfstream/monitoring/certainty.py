"""Certainty of the facts that a status reports of a stream. Pure.

- *proven*: Salesforce showed it in a response, and the time is Salesforce's.
- *estimated*: a publisher, the worker's clock or a documented minimum suggests it.
- *unknown*: nothing shows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, get_args

Certainty: TypeAlias = Literal["proven", "estimated", "unknown"]
CERTAINTIES: tuple[str, ...] = get_args(Certainty)

FACTS = ("confirmed_at", "contact_at", "last_event_time", "retention")
"""Facts of the section ``drain`` that have a certainty."""


def certainty_of(drain: Mapping[str, Any]) -> dict[str, Certainty]:
    """Return the certainty of each of :data:`FACTS` in the section ``drain`` of a status.

    A section of a version that recorded none has estimates: its end of the stream rested on an empty response of the
    drain's own subscription, and its times on the worker's clock.

    :raises ValueError: if the section names another certainty.
    """
    recorded: Mapping[str, Any] = drain.get("certainty") or {}
    found: dict[str, Certainty] = {}
    for fact in FACTS:
        certainty: Any = "unknown" if drain.get(fact) is None else recorded.get(fact, "estimated")
        if certainty not in CERTAINTIES:
            raise ValueError(f"certainty={certainty!r} of {fact} must be one of {', '.join(CERTAINTIES)}.")
        found[fact] = certainty
    return found
