"""Evidence from a real subscription about events that may not have been published."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from airflow_provider_sfstream.exceptions import ReplayIdLostError
from airflow_provider_sfstream.publishing import evidence
from airflow_provider_sfstream.publishing.evidence import find_published
from airflow_provider_sfstream.publishing.ledger import AcceptedEvent
from airflow_provider_sfstream.streams import end_of_stream
from tests.support.clients import pubsub_client
from tests.support.localorg import wait_until
from tests.support.shared_org import SharedOrg, org, shared_org

__all__ = ["org", "shared_org"]
AT_ONCE = 0.0
ANOTHER = "00000000-0000-0000-0000-000000000000"


def accepted(org: SharedOrg, count: int) -> list[AcceptedEvent]:
    with pubsub_client(org) as client:
        results = client.publish(org.topic, client.encode(org.topic, [{"Number__c": 1.0}] * count))
    return [AcceptedEvent(result.correlation_key, result.replay_id or b"") for result in results]


def test_published_events_are_found_and_others_are_proven_absent(org: SharedOrg) -> None:
    org.knobs(keepalive_seconds=0.3)
    *trail, published = accepted(org, 3)
    in_doubt = {published.event_id, ANOTHER}
    with pubsub_client(org) as client:
        result = find_published(client, org.topic, trail, in_doubt, latest_arrival=AT_ONCE)
        assert result.found == {published.event_id: published.replay_id}
        assert result.others_are_absent
        began = time.monotonic()
        later = find_published(client, org.topic, trail, in_doubt, latest_arrival=1.0)
        assert later.others_are_absent
        assert time.monotonic() > began + 1.0, "a response before the latest arrival time proves nothing"
    wait_until(lambda: not org.open_streams(), what="the end of the subscriptions")


def test_event_that_salesforce_still_seeks_is_not_proven_absent(
    org: SharedOrg, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty response of a subscription does not show that no stored event follows."""
    monkeypatch.setattr(evidence, "CONFIRM_TIMEOUT", 1.0)
    org.knobs(keepalive_seconds=0.1)
    trail = accepted(org, 2)

    with pubsub_client(org) as client, ThreadPoolExecutor(1) as executor:
        [event] = client.encode(org.topic, [{"Number__c": 1.0}])

        def seek_and_publish() -> None:
            wait_until(lambda: org.delivered == 1, what="the event of the trail")
            org.fault("stall_delivery", topic=org.topic)
            client.publish(org.topic, [event])

        published = executor.submit(seek_and_publish)
        result = find_published(client, org.topic, trail, {event.correlation_key}, latest_arrival=2.0)
        published.result()
    assert not result.others_are_absent


def test_failed_second_subscription_is_opened_again(org: SharedOrg, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(end_of_stream, "_REOPEN_SECONDS", 0.1)
    monkeypatch.setattr(evidence, "CONFIRM_TIMEOUT", 10.0)
    org.knobs(keepalive_seconds=0.3)
    trail = accepted(org, 2)

    with pubsub_client(org) as client, ThreadPoolExecutor(1) as executor:

        def fail_the_second_subscription() -> None:
            wait_until(lambda: org.delivered == 1, what="the event of the trail")
            org.fault("fail_calls", rpc="Subscribe", code="service.unavailable", status="UNAVAILABLE")

        failed = executor.submit(fail_the_second_subscription)
        result = find_published(client, org.topic, trail, {ANOTHER}, latest_arrival=2.0)
        failed.result()
    assert result.others_are_absent


def test_trail_of_one_event_does_not_prove_absence(org: SharedOrg) -> None:
    org.knobs(keepalive_seconds=0.3)
    only, published = accepted(org, 2)
    with pubsub_client(org) as client:
        result = find_published(client, org.topic, [only], {published.event_id, ANOTHER}, latest_arrival=AT_ONCE)
    assert result.found == {published.event_id: published.replay_id}
    assert not result.others_are_absent


def test_expired_trail_raises_replay_id_lost(org: SharedOrg) -> None:
    trail = accepted(org, 2)
    org.fault("expire", topic=org.topic, replay_id=trail[0].replay_id.hex())
    with pubsub_client(org) as client, pytest.raises(ReplayIdLostError):
        find_published(client, org.topic, trail, {ANOTHER}, latest_arrival=AT_ONCE)
