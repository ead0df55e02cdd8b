"""Evidence on the bus of events whose publish request was not answered.

An event on the bus has the ID that its publisher assigned, as far as is known (by the proto an ID is either the
publisher's or the system's; the live check tests an org, ``published_events.event_id_is_given``). So a received ID
proves that the event was published. A missing ID is a proof only if the same read has shown, with a known event of this
run, that this org preserves IDs, and if it has reached the end of the stream
(:mod:`~airflow_provider_sfstream.streams.end_of_stream`) for a moment that is late enough. The time is counted from the
beginning of the read, which follows the request: clocks of different workers are not compared.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_provider_sfstream.publishing.ledger import AcceptedEvent
from airflow_provider_sfstream.salesforce.events import CONFIRM_TIMEOUT, EventBatch
from airflow_provider_sfstream.streams.end_of_stream import TipProbe

if TYPE_CHECKING:
    from airflow_provider_sfstream.salesforce.pubsub.client import PubSubClient

log = logging.getLogger(__name__)

_POLL_SECONDS = 1.0


@dataclass
class Evidence:
    """The result of a read of the bus.

    :param found: the replay ID of each event in doubt that is on the bus, by the event's ID.
    :param others_are_absent: whether the others are proven not to be on the bus.
    """

    found: dict[str, bytes] = field(default_factory=dict)
    others_are_absent: bool = False


def find_published(
    client: PubSubClient,
    topic: str,
    trail: Sequence[AcceptedEvent],
    in_doubt: Collection[str],
    *,
    latest_arrival: float,
) -> Evidence:
    """Read the topic for events in doubt until all are found, or the read has reached the end of the stream.

    The read starts at a replay ID before them. It takes about five minutes on a quiet topic: a second subscription that
    begins after ``latest_arrival`` shows the end. Salesforce counts the events of this read as delivered.

    :param trail: the last accepted events before them, at most two; without one there is no evidence.
    :param in_doubt: the IDs of events whose requests were sent before.
    :param latest_arrival: seconds from now within which they may still arrive.
    :raises SalesforceStreamError: if the topic cannot be read.
    """
    evidence = Evidence()
    if not trail or not in_doubt:
        return evidence
    log.info("%s: looking for %d events in doubt after replay ID %s.", topic, len(in_doubt), trail[0].replay_id.hex())
    end = TipProbe(client, topic, time.monotonic)
    search = _Search(client, topic, in_doubt, end, evidence, trail[0].replay_id, trail[-1] if len(trail) > 1 else None)
    settled_at = time.monotonic() + latest_arrival
    with closing(end):
        search.read(latest_arrival)
        if not search.is_over and time.monotonic() >= settled_at:
            end.open(None)
            search.read(CONFIRM_TIMEOUT)
    return evidence


@dataclass
class _Search:
    """A read of the bus. ``witness`` is an event that shows whether the org preserves IDs, if one is known."""

    client: PubSubClient
    topic: str
    in_doubt: Collection[str]
    end: TipProbe
    evidence: Evidence
    position: bytes
    witness: AcceptedEvent | None
    is_over: bool = False
    witness_found: bool = False

    def read(self, seconds: float) -> None:
        """Read from ``position`` on, for some seconds or until the search is over."""
        deadline = time.monotonic() + seconds
        with closing(self.client.subscribe(self.topic, self.position, idle_timeout=_POLL_SECONDS)) as responses:
            for response in responses:
                self.end.reopen(None)
                if response is None:
                    self.end.read_available()
                elif len(response):
                    self._take(response)
                    self.end.took(response.replay_ids)
                else:
                    self.position = response.latest_replay_id if response.confirms_position else self.position
                    self.end.answered(response)
                self._conclude()
                if self.is_over or time.monotonic() >= deadline:
                    return

    def _take(self, batch: EventBatch) -> None:
        self.position = batch.replay_ids[-1]
        for event_id, replay_id in zip(batch.event_ids, batch.replay_ids, strict=True):
            self.witness_found |= self.witness == AcceptedEvent(event_id or "", replay_id)
            if event_id in self.in_doubt:
                self.evidence.found.setdefault(str(event_id), replay_id)

    def _conclude(self) -> None:
        if len(self.evidence.found) == len(self.in_doubt):
            self.is_over = True
        elif self.end.is_reached:
            self.is_over, self.evidence.others_are_absent = True, self.witness_found
