"""Retention by kind of topic and by the type of a platform event."""

from __future__ import annotations

from datetime import timedelta

import pytest

from airflow_provider_sfstream.salesforce.topics import retention_by_event_type, retention_by_kind


@pytest.mark.parametrize(
    ("topic", "hours"),
    [
        ("/data/AccountChangeEvent", 72),
        ("/data/ChangeEvents", 72),
        ("/data/Sales__chn", 72),
        ("/data/Invoice__ChangeEvent", 72),
        ("/event/Orders__chn", 72),
        ("/event/LoginEventStream", 72),
        ("/topic/Accounts", 24),
        ("/topic/Accounts?Name='A__e'", 24),
        ("/u/Notes", 24),
        ("/u/Notes__e", 24),
    ],
)
def test_retention_of_topics_by_kind(topic: str, hours: int) -> None:
    assert retention_by_kind(topic) == timedelta(hours=hours)


@pytest.mark.parametrize("topic", ["/event/Order__e", "/event/Shop__Order__e"])
def test_retention_of_a_custom_platform_event_depends_on_its_definition(topic: str) -> None:
    assert retention_by_kind(topic) is None


@pytest.mark.parametrize(
    ("event_type", "hours"),
    [("HighVolume", 72), ("StandardVolume", 24), ("Other", None), ("", None), (None, None), (["HighVolume"], None)],
)
def test_retention_of_each_event_type(event_type: object, hours: int | None) -> None:
    assert retention_by_event_type(event_type) == (None if hours is None else timedelta(hours=hours))
