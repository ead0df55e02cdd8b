"""URIs of streams: each stream has one canonical text; invalid texts are refused."""

from __future__ import annotations

import string
import traceback
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_sfstream.exceptions import ConfigurationError, InvalidTopicError
from airflow_provider_sfstream.salesforce.stream_uris import StreamUri

ORDERS = "sfstream://salesforce_default/event/Order__e"

NAMES = st.text(string.ascii_letters, min_size=1, max_size=8)
TOPICS = st.one_of(
    NAMES.map("/event/{}__e".format),
    NAMES.map("/data/{}ChangeEvent".format),
    NAMES.map("/topic/{}?Amount=1&Name=a%20b".format),
    st.text(st.characters(exclude_categories=["Z", "C"], exclude_characters="?#."), min_size=1, max_size=20).map(
        "/u/{}".format
    ),
)
TEXTS = st.text(min_size=1, max_size=40).filter(lambda text: bool(text.strip()) and _encodes(text))
SECONDS = st.one_of(
    st.integers(min_value=1, max_value=10**12), st.floats(min_value=1e-6, max_value=1e18, allow_nan=False)
)


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@given(TEXTS, TOPICS, TEXTS)
def test_uri_of_a_landed_stream_is_parsed_back(connection: str, topic: str, subscription: str) -> None:
    uri = StreamUri(connection, topic, subscription)
    assert StreamUri.parse(str(uri)) == uri
    assert str(uri).isascii()


@given(TEXTS, TOPICS, st.integers(1, 10**9), st.none() | SECONDS, st.just(0) | SECONDS)
def test_uri_of_a_watched_topic_is_parsed_back(
    connection: str, topic: str, min_events: int, max_wait: float | None, min_interval: float
) -> None:
    uri = StreamUri(connection, topic, min_events=min_events, max_wait=max_wait, min_interval=min_interval)
    assert StreamUri.parse(str(uri)) == uri
    again = StreamUri(**{"min_events": 1, **StreamUri.parse(str(uri)).watch_arguments()})
    assert again == uri


@pytest.mark.parametrize(
    ("uri", "text"),
    [
        (StreamUri("salesforce_default", "/event/Order__e"), ORDERS),
        (StreamUri("salesforce_default", "/event/Order__e", "on_event"), f"{ORDERS}?subscription=on_event"),
        (StreamUri("eu:prod/1", "/data/ChangeEvents", "a b&c"), "sfstream://eu%3Aprod%2F1/data/ChangeEvents?subscription=a%20b%26c"),
        (
            StreamUri("salesforce_default", "/event/Order__e", min_events=100, max_wait=60.0, min_interval=0.50),
            f"{ORDERS}?max_wait=60&min_events=100&min_interval=0.5",
        ),
        (
            StreamUri("salesforce_default", "/event/Order__e", max_wait=1e-7, min_interval=1e16),
            f"{ORDERS}?max_wait=0.0000001&min_interval=10000000000000000",
        ),
        (StreamUri("salesforce_default", "/event/Order__e", min_interval=-0.0), f"{ORDERS}?min_interval=0"),
        (StreamUri("c", "/topic/Big?Amount=1"), "sfstream://c/topic/Big%3FAmount%3D1"),
        (StreamUri("c", "/u/a/b/"), "sfstream://c/u/a/b%2F"),
    ],
)  # fmt: skip
def test_canonical_text_of_a_uri(uri: StreamUri, text: str) -> None:
    assert str(uri) == text


@pytest.mark.parametrize(
    "text",
    [
        "SFSTREAM://salesforce_default/event/Order__e?max_wait=60&min_events=100",
        f"{ORDERS}?min_events=100&max_wait=60.0",
        f"{ORDERS}?min_events=0100&max_wait=060&min_interval=5.00",
        "sfstream://salesforce%5Fdefault/event%2FOrder__e?min_events=100&max_wait=60",
    ],
)
def test_other_spellings_have_the_same_canonical_text(text: str) -> None:
    assert str(StreamUri.parse(text)) == f"{ORDERS}?max_wait=60&min_events=100"


def test_a_plus_in_the_query_is_a_space_as_airflow_writes_it() -> None:
    assert StreamUri.parse(f"{ORDERS}?subscription=a+b%2Bc").subscription == "a b+c"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("sfstream:///event/Order__e", "no connection"),
        ("sfstream:/event/Order__e", "no connection"),
        ("kafka://salesforce_default/event/Order__e", "does not begin with sfstream://"),
        ("/event/Order__e", "does not begin with sfstream://"),
        ("sfstream://me@salesforce_default/event/Order__e", "must not contain a user name or password"),
        ("sfstream://salesforce_default:443/event/Order__e", "must not contain a port"),
        ("sfstream://salesforce_default:/event/Order__e", "must not contain a port"),
        ("sfstream://[::1]/event/Order__e", "must not contain a port"),
        ("sfstream://[::1/event/Order__e", "malformed"),
        ("sfstream://%FF/event/Order__e", "malformed"),
        (f"{ORDERS}#part", "must not contain a fragment"),
        (f"{ORDERS}#", "must not contain a fragment"),
        (f"{ORDERS}\n", "percent-encoded"),
        ("sfstream://sales force/event/Order__e", "percent-encoded"),
        (f"{ORDERS}?replay_id=00", "key 'replay_id' is not supported"),
        (f"{ORDERS}?Subscription=a", "key 'Subscription' is not supported"),
        (f"{ORDERS}?subscription=a&subscription=a", "contains subscription twice"),
        (f"{ORDERS}?min_events", "query is malformed"),
        (f"{ORDERS}?subscription=%FF", "query is malformed"),
        (f"{ORDERS}?subscription=", "subscription=''"),
        (f"{ORDERS}?min_events=1.5", "min_events=1.5"),
        (f"{ORDERS}?min_events=0", "min_events=0"),
        (f"{ORDERS}?min_events=%D9%A1", "whole number"),
        (f"{ORDERS}?max_wait=0", "max_wait=0"),
        (f"{ORDERS}?max_wait=nan", "max_wait=nan"),
        (f"{ORDERS}?max_wait={'9' * 400}", "max_wait=inf"),
        (f"{ORDERS}?min_interval=-1", "min_interval=-1"),
        (f"{ORDERS}?min_interval=1e3", "min_interval=1e3"),
        (f"{ORDERS}?subscription=a&max_wait=60&min_events=2", "does not support min_events or max_wait"),
        (f"sfstream://{'c' * 251}/event/Order__e", "1 to 250"),
    ],
)
def test_malformed_uri_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason.replace("?", r"\?")):
        StreamUri.parse(text)


@pytest.mark.parametrize("path", ["", "/", "/event", "/event/", "/event/Order__e/", "/Event/Order__e", "/event/../x"])
def test_uri_whose_path_is_no_topic_is_refused(path: str) -> None:
    with pytest.raises(InvalidTopicError):
        StreamUri.parse(f"sfstream://salesforce_default{path}")


@pytest.mark.parametrize(
    "text",
    [
        "sfstream://me:hunter2@salesforce_default/event/Order__e",
        "sfstream://me:hun/ter2@salesforce_default/event/Order__e",
        "sfstream://me:hunter2@[salesforce_default/event/Order__e",
        "sfstream://me:hunter2@salesforce\u2100default/event/Order__e",
        "sfstream://me:hunter2\n@salesforce_default/event/Order__e",
        "sfstream://me:hunter2@salesforce_default:443/event/Order__e#fragment",
    ],
)
def test_error_of_a_refused_uri_shows_no_password(text: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        StreamUri.parse(text)
    shown = "".join(traceback.format_exception(refusal.value))
    assert "hun" not in shown
    assert "ter2" not in shown


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"min_events": True}, "min_events"),
        ({"min_events": 2.0}, "min_events"),
        ({"max_wait": "60"}, "max_wait"),
        ({"max_wait": float("nan")}, "max_wait"),
        ({"min_interval": None}, "min_interval"),
        ({"min_interval": float("inf")}, "min_interval"),
        ({"salesforce_conn_id": " "}, "salesforce_conn_id"),
        ({"salesforce_conn_id": None}, "salesforce_conn_id"),
        ({"subscription": 3}, "subscription"),
        ({"subscription": "s" * 256}, "subscription"),
    ],
)
def test_invalid_values_are_refused_by_name(arguments: dict[str, object], name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{name}="):
        replace(StreamUri("salesforce_default", "/event/Order__e"), **arguments)  # type: ignore[arg-type]


def test_subscription_name_of_255_characters_is_accepted() -> None:
    assert StreamUri("salesforce_default", "/event/Order__e", "s" * 255).subscription == "s" * 255


def test_uri_of_a_landed_stream_has_no_watch_arguments() -> None:
    with pytest.raises(ConfigurationError, match="is not watched"):
        StreamUri.parse(f"{ORDERS}?subscription=on_event").watch_arguments()


def test_equal_conditions_give_arguments_of_equal_type() -> None:
    whole = StreamUri("c", "/event/Order__e", max_wait=60, min_interval=10).watch_arguments()
    assert {name: type(value) for name, value in whole.items()} == {
        "topic": str,
        "salesforce_conn_id": str,
        "max_wait": float,
        "min_interval": float,
    }
