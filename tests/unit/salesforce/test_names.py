"""Topic names, replay IDs as text, streams, runs and window IDs."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_sfstream.exceptions import ConfigurationError, InvalidReplayIdError, InvalidTopicError
from airflow_provider_sfstream.salesforce.replay_ids import (
    replay_id_from_integer,
    replay_id_from_text,
    replay_id_to_integer,
    replay_id_to_text,
)
from airflow_provider_sfstream.salesforce.streams import RunIdentity, Stream, window_id_for
from airflow_provider_sfstream.salesforce.topics import Topic, can_carry_changes, change_event_of, channel_of, slug

RUN = RunIdentity("orders", "drain", "scheduled__1", datetime(2026, 11, 20, 1, 30, tzinfo=UTC))


@pytest.mark.parametrize(
    ("name", "api"),
    [
        ("/event/Order__e", "pubsub"),
        ("/event/Orders__chn", "pubsub"),
        ("/event/LoginEventStream", "pubsub"),
        ("/data/AccountChangeEvent", "pubsub"),
        ("/data/Shipment__ChangeEvent", "pubsub"),
        ("/data/ChangeEvents", "pubsub"),
        ("/data/Sales__chn", "pubsub"),
        ("/topic/NewAccounts", "streaming"),
        ("/topic/NewAccounts?Industry='Energy'", "streaming"),
        ("/u/notifications/sales", "streaming"),
    ],
)
def test_topics_and_the_api_that_carries_them(name: str, api: str) -> None:
    assert Topic.parse(name) == Topic(name, api)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name",
    [
        *("", "Order__e", "event/Order__e", "/event/", "/event/Order e", "/event/../x", "/Event/Order__e", None),
        *("/data/A/B", "/event/Order__e\n", "/u/../x", "/topic/a#b", "/event/" + "x" * 300, "/foo/Bar"),
    ],
)
def test_invalid_topic_name_is_refused_with_the_valid_forms(name: str) -> None:
    with pytest.raises(InvalidTopicError, match="/event/Name__e"):
        Topic.parse(name)


@given(st.binary(min_size=1, max_size=64))
def test_replay_ids_keep_every_byte_as_text(replay_id: bytes) -> None:
    text = str(replay_id_to_text(replay_id))
    assert replay_id_from_text(text) == replay_id
    assert replay_id_from_text(f" 0x{text.upper()} ") == replay_id


@pytest.mark.parametrize("text", ["", "0x", "abc", "zz", "12 34", "00" * 65, "-1", "1.5"])
def test_invalid_text_of_a_replay_id_is_refused(text: str) -> None:
    with pytest.raises(InvalidReplayIdError, match="hex"):
        replay_id_from_text(text)


@given(st.text(max_size=200), st.text(max_size=200))
def test_slugs_are_safe_segments_and_distinct(one: str, other: str) -> None:
    for text in (one, other):
        segment = slug(text)
        assert segment not in ("", ".", "..")
        assert not set(segment) & set("/\\?#%=: '\"")
        assert len(segment) <= 130
    assert (slug(one) == slug(other)) == (one == other)


def test_slug_of_a_topic_is_readable() -> None:
    assert slug("/event/Order__e") == "event.Order__e"
    assert slug("../../etc/passwd").startswith("etc-passwd~")
    assert slug(slug("a b")) != slug("a b")
    assert slug("a.b") != slug("a/b") != slug("/a/b")


def test_key_of_a_stream_contains_all_its_fields() -> None:
    stream = Stream("00Dxx0000001gPLEAY", "pubsub", "/event/Order__e")
    others = [
        replace(stream, org_id="00Dxx0000001gPLEAX"),
        replace(stream, api="streaming"),
        replace(stream, topic="/event/Other__e"),
        replace(stream, subscription="other"),
    ]
    assert len({s.path for s in (stream, *others)}) == len({s.key for s in (stream, *others)}) == 5
    for bad in ("", " ", "x" * 256):
        with pytest.raises(ConfigurationError, match="subscription"):
            replace(stream, subscription=bad)


def test_window_id_depends_on_run_and_position_and_not_on_the_try() -> None:
    window_id = window_id_for(RUN, "live", b"\x01", 3)
    assert window_id.startswith("20261120T013000Z-")
    assert window_id_for(replace(RUN, try_number=4), "live", b"\x01", 3) == window_id
    elsewhere = RUN.run_after.astimezone(timezone(timedelta(hours=9)))
    assert window_id_for(replace(RUN, run_after=elsewhere), "live", b"\x01", 3) == window_id
    others = {
        window_id_for(replace(RUN, run_id="scheduled__2"), "live", b"\x01", 3),
        window_id_for(replace(RUN, map_index=0), "live", b"\x01", 3),
        window_id_for(RUN, "backfill", b"\x01", 3),
        window_id_for(RUN, "live", b"\x02", 3),
        window_id_for(RUN, "live", None, 3),
        window_id_for(RUN, "live", b"\x01", 4),
    }
    assert len(others | {window_id}) == 7


@pytest.mark.parametrize("number", [0, 1, 5_936_368, 2**63, 2**64 - 1])
def test_replay_ids_of_the_streaming_api_are_stored_as_eight_bytes(number: int) -> None:
    replay_id = replay_id_from_integer(number)
    assert len(replay_id) == 8
    assert replay_id_to_integer(replay_id) == number


@pytest.mark.parametrize("number", [-1, -2, 2**64, True, "7", None])
def test_replay_options_and_other_values_are_refused_as_replay_ids(number: Any) -> None:
    with pytest.raises(InvalidReplayIdError, match="is not a replay ID of the Streaming API"):
        replay_id_from_integer(number)


@pytest.mark.parametrize("replay_id", [b"", b"\0" * 7, b"\0" * 10])
def test_a_replay_id_of_the_pubsub_api_is_refused_by_the_streaming_api(replay_id: bytes) -> None:
    with pytest.raises(InvalidReplayIdError, match="eight bytes"):
        replay_id_to_integer(replay_id)


@pytest.mark.parametrize("name", ["/event/Order__e", "/data/AccountChangeEvent", "/data/Sales__chn"])
def test_the_api_of_platform_and_change_events_can_be_chosen(name: str) -> None:
    assert [Topic.parse(name, api).api for api in (None, "pubsub", "streaming")] == ["pubsub", "pubsub", "streaming"]


@pytest.mark.parametrize("name", ["/topic/Invoices", "/topic/Invoices?Status='Open'", "/u/notifications/Orders"])
def test_push_topics_and_generic_events_are_on_the_streaming_api_only(name: str) -> None:
    assert [Topic.parse(name, api).api for api in (None, "streaming")] == ["streaming", "streaming"]
    with pytest.raises(InvalidTopicError, match="on the Streaming API only: omit api='pubsub'"):
        Topic.parse(name, "pubsub")


def test_unknown_api_is_refused() -> None:
    with pytest.raises(InvalidTopicError, match="api='rest' must be"):
        Topic.parse("/event/Order__e", "rest")


def test_the_channel_of_a_filtered_push_topic_is_the_push_topic() -> None:
    assert channel_of("/topic/Invoices?Status='Open'&Region='EU'") == "/topic/Invoices"
    assert channel_of("/event/Order__e") == "/event/Order__e"


@pytest.mark.parametrize(("entity", "event"), [("Contact", "ContactChangeEvent"), ("Visit__c", "Visit__ChangeEvent")])
def test_the_change_event_of_an_object(entity: str, event: str) -> None:
    assert change_event_of(entity) == event
    assert can_carry_changes(f"/data/{event}", entity)
    assert can_carry_changes(f"/data/{event.lower()}", entity.upper())


@pytest.mark.parametrize(
    ("topic", "carries"),
    [
        ("/data/ChangeEvents", True),
        ("/data/Sales__chn", True),
        ("/data/CaseChangeEvent", False),
        ("/event/Order__e", False),
        ("/event/ContactChangeEvent", False),
        ("/topic/Contacts", False),
    ],
)
def test_channels_of_change_events_can_carry_changes_of_every_object(topic: str, carries: bool) -> None:
    assert can_carry_changes(topic, "Contact") is carries
