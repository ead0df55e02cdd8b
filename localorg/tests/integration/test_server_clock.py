"""Clock of the org: the header ``Date`` of each response, and timestamps of commits."""

from __future__ import annotations

import time
from email.utils import parsedate_to_datetime

import httpx
import pytest

from tests.support.localorg import LocalOrg
from tests.support.managed_subscriber import ManagedSubscriber

HOUR = 3600.0


def answers(org: LocalOrg) -> list[httpx.Response]:
    """Call all interfaces and return their responses: REST, refusals, a login, CometD, and an unknown path."""
    token = {"Authorization": f"Bearer {org.token()}"}
    with httpx.Client(base_url=org.instance_url, trust_env=False) as client:
        return [
            client.get("/services/data"),
            client.get("/services/data/v62.0/limits", headers=token),
            client.get("/services/data/v62.0/limits"),
            client.get("/services/data/v62.0/nothing", headers=token),
            client.post("/services/oauth2/token", data={"grant_type": "nothing"}),
            client.post("/cometd/62.0", json=[{"channel": "/meta/handshake"}], headers=token),
            client.get("/nowhere"),
        ]


@pytest.mark.parametrize("offset", [0.0, 2.5 * HOUR, -48 * HOUR])
def test_each_answer_is_dated_by_the_orgs_clock(org: LocalOrg, offset: float) -> None:
    org.knobs(clock_offset_seconds=offset)
    before = int(time.time())
    dates = [parsedate_to_datetime(answer.headers["Date"]).timestamp() - offset for answer in answers(org)]
    assert all(before <= date <= time.time() for date in dates), dates
    assert all(answer.headers["Date"].endswith("GMT") for answer in answers(org))


def test_knob_http_date_omits_the_date_header(org: LocalOrg) -> None:
    org.knobs(http_date=False)
    assert [answer.headers.get("Date") for answer in answers(org)] == [None] * 7
    org.reset_knobs()
    assert all(answer.headers.get("Date") for answer in answers(org))


def test_commits_are_acknowledged_by_the_orgs_clock(org: LocalOrg, topic: str, managed: str) -> None:
    org.knobs(clock_offset_seconds=2.5 * HOUR)
    (replay_id,) = org.publish(topic, [{"Number__c": 1}])
    with ManagedSubscriber(org).fetch(1, managed) as subscriber:
        subscriber.events(1)
        answer = subscriber.answer(subscriber.commit(replay_id))
    assert abs(answer.process_time / 1000 - time.time() - 2.5 * HOUR) < 60
