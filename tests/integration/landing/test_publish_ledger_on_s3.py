"""The record of a publication on S3: written once, read by name, by a user who may do little."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from airflow_provider_sfstream.exceptions import PositionConflictError
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.publishing.ledger import Accepted, PublishLedger, SentRequest

pytestmark = pytest.mark.extended
ID = "00000000-0000-5000-8000-00000000000{}"
ACCEPTED = Accepted(ID.format(1), b"\x01\x00")


def sent(number: int, attempt: str) -> SentRequest:
    return SentRequest(number, attempt, datetime.now(UTC), [(ID.format(number + 1), number, None)])


def test_of_two_tries_one_begins_a_request_and_a_third_reads_what_both_left(landing: Landing) -> None:
    folder = f"{landing.base}/dag/task/run"
    one, other, third = (PublishLedger(landing.filesystem, folder, f"{landing.url}/run") for _ in range(3))
    assert one.source() is None
    assert one.read([]).next_number == 0
    one.record_source({"key": None, "trail": []})
    with pytest.raises(PositionConflictError):
        other.record_source({"key": "Id", "trail": []})
    one.begin(sent(0, "one"))
    with pytest.raises(PositionConflictError, match=r"requests/000000\.json"):
        other.begin(sent(0, "other"))
    one.finish(0, [{"id": ACCEPTED.event_id, "replay_id": ACCEPTED.replay_id.hex()}])
    one.begin(sent(1, "one"))
    one.fail("one", 0, [{"row": 5, "values": {"Note__c": b"\xff"}}])
    recorded = third.read([])
    assert recorded.has_accepted(ACCEPTED.event_id)
    assert [request.number for request in recorded.unanswered] == [1]
    assert recorded.trail == (ACCEPTED,)
    for _ in range(2):
        third.leave_trail(recorded.latest)
    assert third.trail_of_the_run_before() == [[ACCEPTED.event_id, "0100"]]
    assert third.source() == {"key": None, "trail": []}
