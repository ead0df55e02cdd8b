"""Publish ledger on S3: written once and read by name, by the user with the fewest rights."""

from __future__ import annotations

import pytest

from airflow_provider_sfstream.exceptions import PositionConflictError
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.publishing.ledger import AcceptedEvent, PublishLedger, SentEvents

pytestmark = pytest.mark.extended
ID = "00000000-0000-5000-8000-00000000000{}"
ACCEPTED = AcceptedEvent(ID.format(1), b"\x01\x00")


def sent(number: int) -> SentEvents:
    return [(ID.format(number + 1), number, None)]


def test_only_one_of_two_tries_begins_a_request_and_a_third_reads_both(landing: Landing) -> None:
    folder = f"{landing.base}/dag/task/run"
    one, other, third = (PublishLedger(landing.filesystem, folder, f"{landing.url}/run") for _ in range(3))
    assert one.source() is None
    assert one.read([]).next_number == 0
    one.record_source({"key": None, "trail": []})
    with pytest.raises(PositionConflictError):
        other.record_source({"key": "Id", "trail": []})
    one.begin(0, "one", sent(0))
    with pytest.raises(PositionConflictError, match=r"requests/000000\.json"):
        other.begin(0, "other", sent(0))
    one.finish(0, [{"id": ACCEPTED.event_id, "replay_id": ACCEPTED.replay_id.hex()}])
    one.begin(1, "one", sent(1))
    one.fail("one", 0, [{"row": 5, "values": {"Note__c": b"\xff"}}])
    recorded = third.read([])
    assert recorded.has_accepted(ACCEPTED.event_id)
    assert recorded.unanswered == {1: sent(1)}
    assert recorded.trail == (ACCEPTED,)
    for _ in range(2):
        third.write_trail(recorded.latest)
    assert third.previous_trail() == [[ACCEPTED.event_id, "0100"]]
    assert third.source() == {"key": None, "trail": []}
