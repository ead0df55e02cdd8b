"""Evidence on the bus of events whose publish request was not answered.

An event on the bus has the ID that its publisher assigned, as far as is known (by the proto an ID is either the
publisher's or the system's; the live check tests an org, ``published_events.event_id_is_given``). So a received ID
proves that the event was published. A missing ID is a proof only if the same read has shown, with a known event of this
run, that this org preserves IDs, and if Salesforce has confirmed, late enough, the end of the stream. The time is
counted from the beginning of the read, which follows the request: clocks of different workers are not compared.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_provider_sfstream.publishing.ledger import AcceptedEvent
from airflow_provider_sfstream.salesforce.events import CONFIRM_TIMEOUT

if TYPE_CHECKING:
    from airflow_provider_sfstream.salesforce.pubsub.client import PubSubClient

log = logging.getLogger(__name__)


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
    """Read the topic for events in doubt until all are found or Salesforce confirms the end of the stream.

    The read starts at a replay ID before them. It takes about five minutes on a quiet topic, and no longer on a busy
    one, where Salesforce never confirms the end. Salesforce counts the events of this read as delivered.

    :param trail: the last accepted events before them, at most two; without one there is no evidence.
    :param in_doubt: the IDs of events whose requests were sent before.
    :param latest_arrival: seconds from now within which they may still arrive.
    :raises SalesforceStreamError: if the topic cannot be read.
    """
    evidence = Evidence()
    if not trail or not in_doubt:
        return evidence
    witness = trail[-1] if len(trail) > 1 else None
    witness_found = False
    settled_at = time.monotonic() + latest_arrival
    deadline = settled_at + CONFIRM_TIMEOUT
    log.info("%s: looking for %d events in doubt after replay ID %s.", topic, len(in_doubt), trail[0].replay_id.hex())
    with closing(client.subscribe(topic, trail[0].replay_id, idle_timeout=CONFIRM_TIMEOUT)) as responses:
        for batch in responses:
            if batch is None or time.monotonic() > deadline:
                break
            for event_id, replay_id in zip(batch.event_ids, batch.replay_ids, strict=True):
                witness_found |= witness == AcceptedEvent(event_id or "", replay_id)
                if event_id in in_doubt:
                    evidence.found.setdefault(str(event_id), replay_id)
            if len(evidence.found) == len(in_doubt):
                break
            if not len(batch) and batch.pending and time.monotonic() >= settled_at:
                evidence.others_are_absent = witness_found
                break
    return evidence
