"""Assets of watched topics and of landed streams."""

from __future__ import annotations

import dataclasses
import inspect
from datetime import timedelta
from typing import Any

import pytest

pytest.importorskip("airflow.triggers.shared_stream", reason="this Airflow has no shared streams")

from airflow.sdk import Asset
from airflow.serialization.encoders import encode_trigger
from airflow.triggers.base import BaseEventTrigger

from airflow_provider_sfstream.assets.salesforce_stream import landed_stream_asset, salesforce_topic_asset
from airflow_provider_sfstream.exceptions import ConfigurationError, InvalidTopicError
from airflow_provider_sfstream.salesforce.stream_uris import StreamUri
from airflow_provider_sfstream.triggers.salesforce_event import SalesforceEventTrigger

TOPIC = "/event/Order__e"


def trigger_of(asset: Asset) -> SalesforceEventTrigger:
    [watcher] = asset.watchers
    assert isinstance(watcher.trigger, SalesforceEventTrigger)
    return watcher.trigger


def trigger_hash(asset: Asset) -> int:
    """Return the hash by which Airflow distinguishes triggers."""
    encoded = encode_trigger(trigger_of(asset))
    return BaseEventTrigger.hash(encoded["classpath"], encoded["kwargs"])


def test_asset_of_a_topic_has_its_watcher() -> None:
    asset = salesforce_topic_asset(TOPIC)
    assert (asset.name, asset.uri) == ("sfstream://salesforce_default/event/Order__e",) * 2
    assert trigger_of(asset).serialize()[1]["topic"] == TOPIC
    assert asset.watchers[0].name == asset.uri


def test_defaults_of_uri_asset_and_trigger_are_equal() -> None:
    theirs = inspect.signature(SalesforceEventTrigger.__init__).parameters
    for name in ("min_events", "max_wait", "min_interval"):
        assert theirs[name].default == getattr(StreamUri, name), name
        ours = inspect.signature(salesforce_topic_asset).parameters
        assert ours[name].default == getattr(StreamUri, name), name
    conn_id = inspect.signature(salesforce_topic_asset).parameters["salesforce_conn_id"].default
    assert theirs["salesforce_conn_id"].default == conn_id


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {"salesforce_conn_id": "salesforce_default", "min_events": 1, "max_wait": None, "min_interval": 5}),
        ({"max_wait": 60}, {"max_wait": timedelta(minutes=1)}),
        ({"min_interval": timedelta(seconds=5)}, {}),
        ({"min_interval": 30, "min_events": 10}, {"min_events": 10, "min_interval": 30.0}),
    ],
)
def test_equal_calls_share_one_asset_and_one_trigger(one: dict[str, Any], other: dict[str, Any]) -> None:
    first, second = salesforce_topic_asset(TOPIC, **one), salesforce_topic_asset(TOPIC, **other)
    assert (first.name, first.uri) == (second.name, second.uri)
    assert trigger_of(first).serialize() == trigger_of(second).serialize()
    assert trigger_hash(first) == trigger_hash(second)


def test_different_conditions_have_different_assets_and_triggers() -> None:
    calls: list[dict[str, Any]] = [
        {}, {"salesforce_conn_id": "eu"}, {"min_events": 2}, {"max_wait": 60}, {"min_interval": 0}, {"max_wait": 6}
    ]  # fmt: skip
    assets = [salesforce_topic_asset(TOPIC, **call) for call in calls]
    assert len({asset.uri for asset in assets}) == len(calls)
    assert len({trigger_hash(asset) for asset in assets}) == len(calls)


@pytest.mark.parametrize(
    "call", [{}, {"salesforce_conn_id": "eu:1"}, {"min_events": 9, "max_wait": 0.25, "min_interval": 60}]
)
def test_the_uri_follows_from_the_triggers_arguments(call: dict[str, Any]) -> None:
    asset = salesforce_topic_asset(TOPIC, **call)
    arguments = trigger_of(asset).serialize()[1]
    names = {field.name for field in dataclasses.fields(StreamUri)} - {"subscription"}
    assert str(StreamUri(**{name: arguments[name] for name in names})) == asset.uri


@pytest.mark.parametrize(
    ("topic", "api", "uri"),
    [
        ("/topic/Big", None, "sfstream://salesforce_default/topic/Big"),
        ("/u/Notes", "streaming", "sfstream://salesforce_default/u/Notes"),
        ("/event/Order__e", "pubsub", "sfstream://salesforce_default/event/Order__e"),
        ("/event/Order__e", "streaming", "sfstream://salesforce_default/event/Order__e?api=streaming"),
    ],
)
def test_uri_contains_the_api_only_if_it_is_not_the_default_of_the_topic(topic: str, api: str | None, uri: str) -> None:
    asset = salesforce_topic_asset(topic, api=api)
    assert asset.uri == uri
    landed = landed_stream_asset("salesforce_default", topic, api=api)
    assert landed.uri == uri + ("&" if "?" in uri else "?") + "subscription=airflow"


def test_an_api_that_does_not_carry_the_topic_is_refused() -> None:
    with pytest.raises(InvalidTopicError, match="on the Streaming API only"):
        salesforce_topic_asset("/topic/Big", api="pubsub")


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ({"min_events": 0}, "min_events"),
        ({"min_events": "2"}, "min_events"),
        ({"max_wait": timedelta(0)}, "max_wait"),
        ({"min_interval": timedelta(seconds=-1)}, "min_interval"),
        ({"salesforce_conn_id": ""}, "salesforce_conn_id"),
    ],
)
def test_invalid_asset_arguments_are_refused_when_the_dag_is_parsed(call: dict[str, Any], name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{name}="):
        salesforce_topic_asset(TOPIC, **call)
    with pytest.raises(InvalidTopicError):
        salesforce_topic_asset("Order__e")


def test_landed_stream_is_another_asset_without_watchers() -> None:
    landed = landed_stream_asset("salesforce_default", TOPIC, "on_event")
    assert landed.uri == "sfstream://salesforce_default/event/Order__e?subscription=on_event"
    assert landed.name == landed.uri
    assert landed.watchers == []
    assert landed != salesforce_topic_asset(TOPIC)
    assert landed_stream_asset("salesforce_default", TOPIC).uri.endswith("?subscription=airflow")
