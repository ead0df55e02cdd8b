"""Airflow's ``MessageQueueTrigger`` with the scheme ``sfstream``."""

from __future__ import annotations

import pytest

pytest.importorskip("airflow.triggers.shared_stream", reason="this Airflow has no shared streams")

from airflow.exceptions import AirflowProviderDeprecationWarning
from airflow.providers.common.messaging.triggers.msg_queue import MessageQueueTrigger
from airflow.sdk import Asset, AssetWatcher
from airflow.serialization.encoders import encode_trigger

from airflow_provider_sfstream.assets.salesforce_stream import salesforce_topic_asset
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.queues.sfstream import SfstreamMessageQueueProvider
from airflow_provider_sfstream.triggers.salesforce_event import SalesforceEventTrigger

TOPIC = "/event/Order__e"
URI = "sfstream://eu/event/Order__e"


def test_scheme_selects_the_salesforce_event_trigger() -> None:
    trigger = MessageQueueTrigger(scheme="sfstream", topic=TOPIC, salesforce_conn_id="eu", max_wait=60.0)
    assert (
        trigger.serialize() == SalesforceEventTrigger(topic=TOPIC, salesforce_conn_id="eu", max_wait=60.0).serialize()
    )


def test_trigger_of_the_queue_equals_the_trigger_of_the_topic_asset() -> None:
    asset = Asset(
        URI,
        watchers=[
            AssetWatcher(
                name="orders", trigger=MessageQueueTrigger(scheme="sfstream", topic=TOPIC, salesforce_conn_id="eu")
            )
        ],
    )
    ours = salesforce_topic_asset(TOPIC, salesforce_conn_id="eu")
    assert (asset.name, asset.uri) == (ours.name, ours.uri)
    assert encode_trigger(asset.watchers[0].trigger) == encode_trigger(ours.watchers[0].trigger)


@pytest.mark.parametrize("query", ["", "?max_wait=60&min_events=100"])
def test_deprecated_queue_argument_creates_the_same_trigger(query: str) -> None:
    with pytest.warns(AirflowProviderDeprecationWarning):
        trigger = MessageQueueTrigger(queue=URI + query)
    conditions = {"max_wait": 60.0, "min_events": 100} if query else {}
    ours = salesforce_topic_asset(TOPIC, salesforce_conn_id="eu", **conditions)  # type: ignore[arg-type]
    assert trigger.serialize() == ours.watchers[0].trigger.serialize()
    assert ours.uri == URI + query


@pytest.mark.parametrize(
    ("queue", "reason"),
    [
        (f"{URI}?subscription=on_event", "is not watched"),
        ("sfstream://eu/Order__e", "is not a topic name"),
        ("SFSTREAM://me:pw@eu/event/Order__e", "must not contain a user name or password"),
    ],
)
def test_queue_that_cannot_be_watched_is_refused_with_the_reason(queue: str, reason: str) -> None:
    with pytest.warns(AirflowProviderDeprecationWarning):
        trigger = MessageQueueTrigger(queue=queue)
    with pytest.raises(ConfigurationError, match=reason):
        trigger.serialize()


@pytest.mark.parametrize("foreign", ["kafka://broker/topic", "https://sqs.eu.amazonaws.com/1/q", "sfstreams://c/x", ""])
def test_queues_with_other_schemes_do_not_match(foreign: str) -> None:
    provider = SfstreamMessageQueueProvider()
    assert not provider.queue_matches(foreign)
    assert not provider.scheme_matches(foreign)
