"""Topic names, replay IDs as text, streams, runs and window ids."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_sfstream.exceptions import ConfigurationError, InvalidReplayIdError, InvalidTopicError
from airflow_provider_sfstream.protocol.replay_ids import replay_id_from_text, replay_id_to_text
from airflow_provider_sfstream.protocol.streams import RunIdentity, Stream, window_id_for
from airflow_provider_sfstream.protocol.topics import Topic, slug

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
def test_what_is_no_topic_is_refused_with_the_forms_that_are(name: str) -> None:
    with pytest.raises(InvalidTopicError, match="/event/Name__e"):
        Topic.parse(name)


@given(st.binary(min_size=1, max_size=64))
def test_replay_ids_keep_every_byte_as_text(replay_id: bytes) -> None:
    text = replay_id_to_text(replay_id)
    assert replay_id_from_text(text) == replay_id
    assert replay_id_from_text(f" 0x{text.upper()} ") == replay_id


@pytest.mark.parametrize("text", ["", "0x", "abc", "zz", "12 34", "00" * 65, "-1", "1.5"])
def test_what_is_no_replay_id_is_refused(text: str) -> None:
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


def test_a_topic_reads_well_as_a_segment() -> None:
    assert slug("/event/Order__e") == "event.Order__e"
    assert slug("../../etc/passwd").startswith("etc-passwd~")
    assert slug(slug("a b")) != slug("a b")
    assert slug("a.b") != slug("a/b") != slug("/a/b")


def test_streams_are_keyed_by_everything_that_they_are() -> None:
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


def test_a_window_id_is_that_of_its_run_and_position_on_every_try() -> None:
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
