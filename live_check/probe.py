"""Probes: questions to an org whose JSON answers can be compared between two orgs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from live_check.run import ProbeRun

MOST_EVENTS = 200
"""Maximum number of published and delivered events of a check. A Developer Edition has 10,000 deliveries a day."""

BACKLOG = 2_000
"""Number of events that a filter drops. They are published and never delivered, and do not count towards
:data:`MOST_EVENTS`. A Developer Edition may publish 50,000 events an hour."""

FIRST, AFTER = "first", "after"
"""The parts of a check. The second part runs after the event of the first part has expired."""


@dataclass(frozen=True)
class Probe:
    """A question to an org.

    :param name: first part of the paths of its answers in the evidence table.
    :param question: the question as text for users.
    :param ask: function that returns the answer as JSON. Orgs with the same behaviour must return equal answers, so
        times are classes (:meth:`ProbeRun.seconds`); the seconds are measures beside the answer.
    :param events: maximum number of events that it publishes and receives, added up.
    :param waits: maximum number of seconds that it waits for a slow behaviour of an org. Waiting probes run in parallel
        after all other probes, and publish nothing meanwhile.
    :param lasts: maximum number of additional seconds by which it delays other probes.
    :param has_backlog: whether it also publishes the ``--backlog`` events, which are never delivered.
    :param is_long: whether it runs only with the option ``--long``.
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
    """Return a decorator that makes a probe of a function; the probe has the function's name."""
    return lambda ask: Probe(ask.__name__, question, ask, **fields)
