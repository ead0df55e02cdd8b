"""What the bus itself shows of events whose request was not answered.

An event on the bus has the ID that its publisher gave it, as far as is known (the proto says that an ID is either the
publisher's or the system's; the live check asks an org, ``published_events.event_id_is_given``). So an ID that comes is
proof that the event was published. That one does not come proves something only where the same look has shown that this
org keeps IDs, by an event that this run knows, and where Salesforce has said, late enough, that all events had come.
How late is counted from the begin of the look, which comes after the request: no two workers' clocks are compared.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Protocol

from airflow_provider_sfstream.publishing.ledger import Accepted
from airflow_provider_sfstream.salesforce.events import CONFIRM_TIMEOUT, Responses

log = logging.getLogger(__name__)


class Bus(Protocol):
    """What is asked of the client of the Pub/Sub API."""

    def subscribe(self, topic: str, start: bytes, *, limit: int | None = None, idle_timeout: float) -> Responses: ...


@dataclass
class Evidence:
    """What a look has shown.

    :param found: the replay ID of each event in doubt that is on the bus, by the event's ID.
    :param others_are_absent: whether the others are known not to be.
    """

    found: dict[str, bytes] = field(default_factory=dict)
    others_are_absent: bool = False


def look(
    bus: Bus,
    topic: str,
    trail: Sequence[Accepted],
    in_doubt: Collection[str],
    *,
    latest_arrival: float,
    clock: Callable[[], float] = time.monotonic,
) -> Evidence:
    """Read the topic for events in doubt, from a place before them, until they have come or Salesforce has said that
    all has come: about five minutes on a quiet topic, and no longer on a busy one, where that is never said. What is
    read counts as delivered.

    :param trail: the last events, two at most, that were accepted before; without one nothing can be shown.
    :param in_doubt: the IDs of events whose requests were sent before.
    :param latest_arrival: seconds from now in which they may still come.
    :raises SalesforceStreamError: if the topic cannot be read.
    """
    evidence = Evidence()
    if not trail or not in_doubt:
        return evidence
    witness = trail[-1] if len(trail) > 1 else None
    has_come = False
    settled_at = clock() + latest_arrival
    given_up_at = settled_at + CONFIRM_TIMEOUT
    log.info("%s: looking for %d events in doubt after replay ID %s.", topic, len(in_doubt), trail[0].replay_id.hex())
    with closing(bus.subscribe(topic, trail[0].replay_id, idle_timeout=CONFIRM_TIMEOUT)) as responses:
        for batch in responses:
            if batch is None or clock() > given_up_at:
                break
            for event_id, replay_id in zip(batch.event_ids, batch.replay_ids, strict=True):
                has_come |= witness == Accepted(event_id or "", replay_id)
                if event_id in in_doubt:
                    evidence.found.setdefault(str(event_id), replay_id)
            if len(evidence.found) == len(in_doubt):
                break
            if not len(batch) and batch.pending and clock() >= settled_at:
                evidence.others_are_absent = has_come
                break
    return evidence
