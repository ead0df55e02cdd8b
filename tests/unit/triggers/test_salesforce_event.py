"""Arguments, serialization and shared streams of the trigger."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk import AssetWatcher
from airflow.sdk.module_loading import import_string
from airflow.triggers.base import BaseEventTrigger

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.triggers.salesforce_event import SalesforceEventTrigger
from tests.support.airflow_names import SHARED_STREAMS

TOPIC = "/event/Order__e"


def trigger(**arguments: Any) -> SalesforceEventTrigger:
    return SalesforceEventTrigger(**{"topic": TOPIC, **arguments})


def test_trigger_is_recreated_from_its_serialized_form() -> None:
    first = trigger(
        salesforce_conn_id="sandbox",
        subscription="orders",
        after="00000000005a94f00000",
        replay_store="table",
        start_from="earliest",
        min_events=500,
        max_wait=timedelta(minutes=2),
        min_interval=timedelta(seconds=1.5),
    )
    path, arguments = first.serialize()
    second = import_string(path)(**json.loads(json.dumps(arguments)))
    assert second.serialize() == (path, arguments)
    assert arguments["max_wait"] == 120.0
    assert arguments["min_interval"] == 1.5


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"topic": "Order__e"}, "not a topic name"),
        ({"topic": "/topic/Orders", "api": "pubsub"}, "Streaming API only"),
        ({"api": "rest"}, "api='rest' must be"),
        ({"after": "xyz"}, "not a replay ID"),
        ({"replay_store": "file"}, "replay_store='file' must be one of None, 'variable', 'table'"),
        ({"start_from": "0000"}, "start_from='0000' must be one of"),
        ({"min_events": 0}, "min_events=0"),
        ({"max_wait": -1}, "max_wait=-1"),
        ({"min_interval": "5"}, "min_interval='5'"),
        ({"subscription": " "}, "subscription=' ' must be a name"),
        ({"salesforce_conn_id": None}, "salesforce_conn_id=None must be a name"),
    ],
)
def test_invalid_argument_is_refused_by_serialize_and_not_by_the_constructor(
    arguments: dict[str, Any], reason: str
) -> None:
    # An exception in the constructor, other than TypeError, would stop Airflow's triggerer.
    invalid = trigger(**arguments)
    with pytest.raises(ConfigurationError, match=reason.replace("(", r"\(")):
        invalid.serialize()


async def test_invalid_argument_in_the_triggerer_is_reported_to_the_waiting_task() -> None:
    events = [event.payload async for event in trigger(start_from="yesterday").run()]
    assert events == [
        {
            "reason": "error",
            "error": "ConfigurationError",
            "message": f"{TOPIC}: start_from='yesterday' must be one of 'latest', 'earliest'.",
        }
    ]


@pytest.mark.skipif(not SHARED_STREAMS, reason="this Airflow has no shared streams")
def test_watchers_share_a_stream_and_deferred_tasks_do_not() -> None:
    assert trigger().shared_stream_key() == trigger().shared_stream_key() is not None
    deferred = trigger()
    deferred._task_instance = object()
    assert deferred.shared_stream_key() is None


@pytest.mark.parametrize(
    ("difference", "shared"),
    [
        ({"subscription": "other"}, True),
        ({"topic": "/event/Invoice__e"}, False),
        ({"salesforce_conn_id": "other"}, False),
        ({"min_events": 2}, False),
        ({"max_wait": 5}, False),
        ({"min_interval": 1}, False),
        ({"after": "00"}, False),
        ({"start_from": "earliest"}, False),
    ],
)
def test_triggers_share_a_stream_only_with_equal_watch_arguments(difference: dict[str, Any], shared: bool) -> None:
    assert (trigger().shared_stream_key() == trigger(**difference).shared_stream_key()) is shared


def test_triggers_with_a_replay_store_share_only_within_one_subscription() -> None:
    mine = trigger(replay_store="variable", subscription="mine")
    assert mine.shared_stream_key() != trigger(replay_store="variable", subscription="yours").shared_stream_key()


def test_asset_watcher_accepts_the_trigger() -> None:
    watcher = AssetWatcher(name="orders", trigger=trigger())
    assert isinstance(watcher.trigger, BaseEventTrigger)
    assert BaseEventTrigger.hash(*trigger().serialize()) == BaseEventTrigger.hash(*trigger().serialize())
