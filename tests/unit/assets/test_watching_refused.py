"""Airflow without shared streams: watching a topic is refused when the DAG is parsed."""

from __future__ import annotations

import pytest

from airflow_provider_sfstream.assets.salesforce_stream import landed_stream_asset, salesforce_topic_asset
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.triggers.salesforce_event import SalesforceEventTrigger
from tests.support.airflow_names import SHARED_STREAMS

pytestmark = pytest.mark.skipif(SHARED_STREAMS, reason="this Airflow has shared streams")
TOPIC = "/event/Order__e"


def test_topic_asset_is_refused_without_shared_streams() -> None:
    with pytest.raises(ConfigurationError, match="needs Airflow"):
        salesforce_topic_asset(TOPIC)


def test_message_queue_is_refused_without_shared_streams() -> None:
    queues = pytest.importorskip("airflow_provider_sfstream.queues.sfstream")
    with pytest.raises(ConfigurationError, match="needs Airflow"):
        queues.SfstreamMessageQueueProvider().trigger_class()


async def test_manual_watcher_is_refused_without_shared_streams() -> None:
    watcher = SalesforceEventTrigger(topic=TOPIC)
    watcher.trigger_id = 1  # as the triggerer sets it
    with pytest.raises(ConfigurationError, match="needs Airflow"):
        await anext(watcher.run())


def test_asset_of_a_landed_stream_needs_no_shared_streams() -> None:
    assert landed_stream_asset("salesforce_default", TOPIC).watchers == []
