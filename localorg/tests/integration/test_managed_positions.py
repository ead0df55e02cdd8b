"""Start positions of managed streams."""

from __future__ import annotations

import pytest

from tests.support.localorg import LocalOrg, wait_until
from tests.support.managed_subscriber import ManagedSubscriber


def publish(org: LocalOrg, topic: str, count: int) -> list[bytes]:
    return org.publish(topic, [{"Number__c": n} for n in range(count)])


def first_event_after(org: LocalOrg, topic: str, managed: str) -> bytes:
    """Subscribe, publish one more event, and return the replay ID of the first received event."""
    wait_until(lambda: org.managed_subscriptions()[managed]["slot"] == "free", what="the slot to be free")
    with ManagedSubscriber(org).fetch(1, managed) as subscriber:
        subscriber.commit(b"")
        started = subscriber.next()
        if started.events:
            return started.events[0].replay_id
        publish(org, topic, 1)
        return subscriber.events(1)[0].replay_id


def commit_and_close(org: LocalOrg, managed: str, replay_id: bytes, count: int) -> None:
    with ManagedSubscriber(org).fetch(count, managed) as subscriber:
        subscriber.events(count)
        subscriber.committed(replay_id)
        subscriber.half_close()
        assert list(subscriber.call) == []


@pytest.mark.parametrize("preset", ["EARLIEST", "LATEST"])
def test_stream_without_a_commit_starts_at_the_default_replay(
    org: LocalOrg, topic: str, managed: str, preset: str
) -> None:
    ids = publish(org, topic, 3)
    org.managed_subscription(managed, topic, default_replay=preset, error_recovery_replay="EARLIEST")
    for _ in range(2):  # without a commit in between
        first = first_event_after(org, topic, managed)
        assert (first == ids[0]) is (preset == "EARLIEST")
        assert (first > ids[-1]) is (preset == "LATEST")


def test_default_replay_presets_are_latest(org: LocalOrg, topic: str) -> None:
    body = {"FullName": "Defaults", "Metadata": {"topicName": topic, "state": "RUN"}}
    org.rest("POST", "/tooling/sobjects/ManagedEventSubscription", body)
    metadata = org.managed_subscriptions()["Defaults"]["metadata"]
    assert (metadata["defaultReplay"], metadata["errorRecoveryReplay"]) == ("LATEST", "LATEST")
    assert (metadata["label"], metadata["version"]) == ("Defaults", "66.0")


@pytest.mark.parametrize("preset", ["EARLIEST", "LATEST"])
@pytest.mark.parametrize("loss", ["expire", "expire_before", "reset_stream"])
def test_stream_with_a_lost_position_starts_at_the_error_recovery_replay(
    org: LocalOrg, topic: str, managed: str, loss: str, preset: str
) -> None:
    opposite = {"EARLIEST": "LATEST", "LATEST": "EARLIEST"}[preset]
    ids = publish(org, topic, 4)
    commit_and_close(org, managed, ids[1], 2)
    org.managed_subscription(managed, topic, default_replay=opposite, error_recovery_replay=preset)
    lost = {"expire": ids[1], "expire_before": ids[2], "reset_stream": b""}[loss]
    org.fault(loss, topic=topic, **({"replay_id": lost.hex()} if lost else {}))
    first = first_event_after(org, topic, managed)
    earliest = {"expire": ids[0], "expire_before": ids[2], "reset_stream": first}[loss]
    assert (first == earliest) if preset == "EARLIEST" else (first > ids[-1])


def test_expired_committed_event_is_a_lost_position(tmp_path_factory: pytest.TempPathFactory) -> None:
    with LocalOrg.running(tmp_path_factory.mktemp("org")) as own:
        own.define("Order__e", Number__c="int")
        own.managed_subscription("Orders", "/event/Order__e", error_recovery_replay="EARLIEST")
        old = publish(own, "/event/Order__e", 2)
        commit_and_close(own, "Orders", old[0], 1)
        own.knobs(clock_offset_seconds=73 * 3600)
        new = publish(own, "/event/Order__e", 2)
        with ManagedSubscriber(own).fetch(2, "Orders") as subscriber:
            assert [event.replay_id for event in subscriber.events(2)] == new


def test_a_restart_after_stop_begins_at_the_default_replay(org: LocalOrg, topic: str, managed: str) -> None:
    ids = publish(org, topic, 3)
    commit_and_close(org, managed, ids[1], 2)
    assert org.managed_subscriptions()[managed]["committed"] == ids[1]
    org.managed_subscription(managed, topic, state="STOP")
    assert org.managed_subscriptions()[managed]["committed"] is None
    org.managed_subscription(managed, topic, state="RUN")
    assert first_event_after(org, topic, managed) == ids[0]


def test_other_changes_keep_the_position(org: LocalOrg, topic: str, managed: str) -> None:
    ids = publish(org, topic, 3)
    commit_and_close(org, managed, ids[1], 2)
    org.managed_subscription(managed, topic, default_replay="LATEST", label="Another")
    assert first_event_after(org, topic, managed) == ids[2]


def test_subscription_recreated_over_rest_has_no_position(org: LocalOrg, topic: str, managed: str) -> None:
    ids = publish(org, topic, 3)
    commit_and_close(org, managed, ids[1], 2)
    former = org.managed_subscriptions()[managed]["id"]
    org.rest("DELETE", f"/tooling/sobjects/ManagedEventSubscription/{former}")
    assert org.managed_subscription(managed, topic)["id"] != former
    assert first_event_after(org, topic, managed) == ids[0]


def test_two_subscriptions_to_one_topic_have_a_position_each(org: LocalOrg, topic: str, managed: str) -> None:
    org.managed_subscription(f"{managed}_2", topic)
    ids = publish(org, topic, 3)
    commit_and_close(org, managed, ids[1], 2)
    assert first_event_after(org, topic, f"{managed}_2") == ids[0]
    assert first_event_after(org, topic, managed) == ids[2]


def test_managed_subscriptions_to_a_channel_and_to_change_events(org: LocalOrg, topic: str) -> None:
    org.channel("Managed__chn", [topic])
    org.managed_subscription("Channel", "/event/Managed__chn")
    org.managed_subscription("Changes", "/data/AccountChangeEvent")
    (on_channel,) = publish(org, topic, 1)
    org.rest("POST", "/sobjects/Account", {"Name": "Acme"})
    change = org.record("/data/AccountChangeEvent")[0]["replay_id"]
    for name, replay_id in (("Channel", on_channel), ("Changes", change)):
        with ManagedSubscriber(org).fetch(1, name) as subscriber:
            assert [event.replay_id for event in subscriber.events(1)] == [replay_id]
            subscriber.committed(replay_id)
