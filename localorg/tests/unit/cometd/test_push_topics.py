from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfstream_localorg.cometd.filters import parse_filter
from sfstream_localorg.cometd.payloads import EventData
from sfstream_localorg.cometd.replies import BayeuxError
from sfstream_localorg.errors import ApiError

QUERY = "SELECT Id, Name, Phone, AnnualRevenue, CreatedDate FROM Account WHERE Industry = 'Energy'"


def events_of(bench: Any, channel: str) -> list[tuple[str, dict[str, Any]]]:
    make = EventData(bench.schemas)
    data = [json.loads(make(event)) for event in bench.bus.retained(channel, 0, 1000)]
    return [(one["event"]["type"], one["sobject"]) for one in data]


def test_push_topic_event_has_the_time_of_its_transaction(bench: Any) -> None:
    channel = bench.push_topic("T", "SELECT Id FROM Account")
    bench.write("CREATE", "Account", Name="A")
    (event,) = bench.bus.retained(channel, 0, 10)
    assert json.loads(EventData(bench.schemas)(event))["event"]["createdDate"] == "2023-11-14T22:13:20.250Z"


def test_record_that_starts_to_match_causes_an_event_and_one_that_stops_does_not(bench: Any) -> None:
    channel = bench.push_topic("T", "SELECT Id, Name FROM Account WHERE Industry = 'Energy'")
    account = bench.write("CREATE", "Account", Name="A", Industry="Shoes")
    bench.write("UPDATE", "Account", account, Industry="Energy")
    bench.write("UPDATE", "Account", account, Industry="Shoes")
    bench.write("DELETE", "Account", account)
    assert events_of(bench, channel) == [("updated", {"Id": account, "Name": "A"})]


def test_refused_transaction_has_no_event_and_failed_publishing_no_record(bench: Any) -> None:
    channel = bench.push_topic("T", "SELECT Id FROM Account")
    with pytest.raises(ApiError):
        bench.write("CREATE", "Account")
    bench.channels.events = lambda changes, timestamp: [object()]  # cannot be published
    with pytest.raises(AttributeError):
        bench.write("CREATE", "Account", Name="A")
    assert events_of(bench, channel) == []
    assert bench.sobjects.all(bench.entities.get("Account")) == []


@settings(max_examples=25)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["UPDATE", "DELETE", "UNDELETE"]), st.sampled_from(["Energy", "Shoes"]), st.integers(0, 3)
        ),
        max_size=15,
    )
)
def test_copy_built_from_push_topic_events_equals_the_org(
    make_bench: Callable[[], Any], steps: list[tuple[str, str, int]]
) -> None:
    """Build a copy from the events of an unfiltered PushTopic and compare it with the org."""
    bench = make_bench()
    channel = bench.push_topic("T", "SELECT Id, Name, Industry FROM Account", NotifyForFields="All")
    accounts = [bench.write("CREATE", "Account", Name=f"A{n}") for n in range(4)]
    for kind, industry, number in steps:
        values = {"Industry": industry} if kind == "UPDATE" else {}
        with contextlib.suppress(ApiError):  # updating a deleted record or undeleting an existing one is refused
            bench.write(kind, "Account", accounts[number], **values)
    copy: dict[str, Any] = {}
    for kind, sobject in events_of(bench, channel):
        if kind == "deleted":
            del copy[sobject["Id"]]
        else:
            copy[sobject["Id"]] = sobject.get("Industry")
    kept = bench.sobjects.all(bench.entities.get("Account"))
    assert copy == {record.id: record.content.get("Industry") for record in kept}


@pytest.mark.parametrize(
    ("text", "sobject", "expected"),
    [
        ("Name='A'", {"Name": "a"}, True),
        ("Name='A & B'&Phone=null", {"Name": "A & B", "Phone": None}, True),
        ("Name='A'&Phone='1'", {"Name": "A", "Phone": "2"}, False),
        ("AnnualRevenue>=10", {"AnnualRevenue": 10.0}, True),
        ("AnnualRevenue>=10", {"AnnualRevenue": None}, False),
        ("AnnualRevenue IN (1, 2)", {"AnnualRevenue": 2}, True),
        ("CreatedDate<2026-01-01T00:00:00Z", {"CreatedDate": "2025-12-31T23:59:59.000Z"}, True),
        ("Name='A'", {}, False),
        (r"Name='it\'s & more'", {"Name": "it's & more"}, True),
    ],
)
def test_channel_filters_compare_the_fields_of_an_event(
    bench: Any, text: str, sobject: dict[str, Any], expected: bool
) -> None:
    topic = bench.channels.push_topic(bench.push_topic("T", QUERY))
    assert parse_filter(text, topic)({"sobject": {"Id": "001000000000001AAA", **sobject}}) is expected


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("Industry='Energy'", "400::Query fields {Industry} do not exist on the topic entity"),
        ("Industry='Energy'&Fax='1'", "400::Query fields {Fax, Industry} do not exist on the topic entity"),
        ("Nothing=1", "400::Query fields {Nothing} do not exist on the topic entity"),
        ("", "400::"),
        ("Name", "400::"),
        ("Name='A", "400::"),
        ("Name='A'&", "400::"),
        ("Name='A' OR Name='B'", "400::"),
        ("AnnualRevenue='many'", "400::"),
    ],
)
def test_invalid_channel_filters_are_refused(bench: Any, text: str, error: str) -> None:
    topic = bench.channels.push_topic(bench.push_topic("T", QUERY))
    with pytest.raises(BayeuxError) as caught:
        parse_filter(text, topic)
    assert caught.value.error.startswith(error)
