"""What a probe is: a question to an org, and the answer as JSON in which two orgs can be compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from live_check.run import ProbeRun

MOST_EVENTS = 200
"""Events that a check may publish and have delivered, together: a Developer Edition has 10,000 deliveries a day."""

BACKLOG = 2_000
"""Events that a filter drops: published, never delivered, and not of :data:`MOST_EVENTS`. A Developer Edition may
publish 50,000 an hour."""

FIRST, AFTER = "first", "after"
"""The parts of a check: at once, and when what the first part left has expired."""


@dataclass(frozen=True)
class Probe:
    """A question to an org.

    :param name: the first part of the paths that its answers have in the table of evidence.
    :param question: what it asks, for people.
    :param ask: returns the answer: JSON that any two orgs which behave alike answer alike. Times are classes there
        (:meth:`ProbeRun.seconds`), the seconds themselves are measures beside it.
    :param events: the most events that it publishes and is delivered, together.
    :param waits: the most seconds that it waits for what takes an org that long. Those who wait do so beside each
        other, after all others, and publish nothing meanwhile.
    :param lasts: the most seconds for which it delays the others, beyond what any probe takes.
    :param has_backlog: publishes the option's ``--backlog`` events besides, which are delivered to nobody.
    :param is_long: is left out unless asked for.
    """

    name: str
    question: str
    ask: Callable[[ProbeRun], Any]
    events: int = 0
    waits: float = 0.0
    lasts: float = 0.0
    has_backlog: bool = False
    is_long: bool = False
    part: str = FIRST


def probe(question: str, **fields: Any) -> Callable[[Callable[[ProbeRun], Any]], Probe]:
    """Make a probe of the function that asks: its name is the function's."""
    return lambda ask: Probe(ask.__name__, question, ask, **fields)
