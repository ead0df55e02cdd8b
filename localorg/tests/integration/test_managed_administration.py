"""Changes of a managed subscription by administrators and other clients during a run."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.localorg import AdminError, LocalOrg
from tests.support.managed_subscriber import ManagedSubscriber
from tests.support.subscriber import error_code


def publish(org: LocalOrg, topic: str, count: int) -> list[bytes]:
    return org.publish(topic, [{"Number__c": n} for n in range(count)])


def commit_first(org: LocalOrg, managed: str) -> bytes:
    with ManagedSubscriber(org).fetch(1, managed) as subscriber:
        (event,) = subscriber.events(1)
        subscriber.committed(event.replay_id)
        subscriber.half_close()
        assert list(subscriber.call) == []
    return event.replay_id


def delivered(org: LocalOrg, managed: str, count: int) -> list[bytes]:
    with ManagedSubscriber(org).fetch(count, managed) as subscriber:
        return [event.replay_id for event in subscriber.events(count)]


def test_recreated_subscription_has_another_id_and_starts_at_its_default_replay(
    org: LocalOrg, topic: str, managed: str
) -> None:
    ids = publish(org, topic, 3)
    commit_first(org, managed)
    before = org.managed_subscriptions()[managed]
    with ManagedSubscriber(org).fetch(1, managed) as subscriber:
        subscriber.events(1)
        after = org.recreate_managed_subscription(managed)
        error: Any = subscriber.error()
    assert error_code(error) == "managed.subscription.config.deleted"
    assert after["id"] != before["id"]
    assert (after["committed"], after["metadata"]) == (None, before["metadata"])
    assert delivered(org, managed, 3) == ids


def test_a_recreated_subscription_may_be_on_another_topic(org: LocalOrg, topic: str, managed: str) -> None:
    name = topic.removeprefix("/event/").replace("T", "Other", 1)
    org.define(name, Number__c="int")
    publish(org, topic, 1)
    ids = publish(org, f"/event/{name}", 1)
    org.recreate_managed_subscription(managed, topicName=f"/event/{name}")
    assert delivered(org, managed, 1) == ids


def test_refused_recreation_leaves_the_subscription_unchanged(org: LocalOrg, topic: str, managed: str) -> None:
    before = org.managed_subscriptions()
    with pytest.raises(AdminError, match="topicName"):
        org.recreate_managed_subscription(managed, topicName="/event/Nowhere__e")
    assert org.managed_subscriptions() == before


def test_stop_and_start_discard_the_position(org: LocalOrg, topic: str, managed: str) -> None:
    ids = publish(org, topic, 3)
    commit_first(org, managed)
    before = org.managed_subscriptions()[managed]
    stopped = org.change_managed_subscription(managed, state="STOP")
    assert (stopped["metadata"]["state"], stopped["committed"]) == ("STOP", None)
    started = org.change_managed_subscription(managed, state="RUN")
    assert (started["id"], started["metadata"]) == (before["id"], before["metadata"])
    assert delivered(org, managed, 3) == ids


@pytest.mark.parametrize("at_end", [False, True])
def test_commit_of_another_client_moves_the_start_position(
    org: LocalOrg, topic: str, managed: str, at_end: bool
) -> None:
    ids = publish(org, topic, 3)
    first = commit_first(org, managed)
    shown = org.commit_managed_subscription(managed, None if at_end else ids[1])
    assert first < ids[1] <= shown["committed"] == org.managed_subscriptions()[managed]["committed"]
    later = publish(org, topic, 1)
    assert delivered(org, managed, 1) == (later if at_end else ids[2:])


def test_invalid_commits_of_another_client_are_refused(org: LocalOrg, topic: str, managed: str) -> None:
    ids = publish(org, topic, 2)
    org.commit_managed_subscription(managed, ids[1])
    for refused in (ids[0], b"\xff" * 10):
        with pytest.raises(AdminError, match="the replay ID is"):
            org.commit_managed_subscription(managed, refused)
    with pytest.raises(AdminError, match="there is replay_id"):
        org.admin("POST", f"/managed_subscriptions/{managed}/commit", {"at": "end"})
    assert org.managed_subscriptions()[managed]["committed"] == ids[1]


def test_calls_for_a_deleted_managed_subscription_are_refused(org: LocalOrg, managed: str) -> None:
    org.delete_managed_subscription(managed)
    assert managed not in org.managed_subscriptions()
    for call in (org.delete_managed_subscription, org.recreate_managed_subscription, org.commit_managed_subscription):
        with pytest.raises(AdminError, match="there is no managed subscription"):
            call(managed)
