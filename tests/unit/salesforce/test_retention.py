"""Retention by topic and by the volume of a platform event."""

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
def test_topics_whose_kind_decides_it(topic: str, hours: int) -> None:
    assert retention_by_kind(topic) == timedelta(hours=hours)


@pytest.mark.parametrize("topic", ["/event/Order__e", "/event/Shop__Order__e"])
def test_the_definition_of_a_custom_platform_event_decides_it(topic: str) -> None:
    assert retention_by_kind(topic) is None


@pytest.mark.parametrize(
    ("event_type", "hours"),
    [("HighVolume", 72), ("StandardVolume", 24), ("Other", None), ("", None), (None, None), (["HighVolume"], None)],
)
def test_event_types(event_type: object, hours: int | None) -> None:
    assert retention_by_event_type(event_type) == (None if hours is None else timedelta(hours=hours))
