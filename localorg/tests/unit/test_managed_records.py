"""Managed subscriptions: records, visibility, positions."""

from __future__ import annotations

import sqlite3
from dataclasses import replace

import pytest

from sfstream_localorg.errors import ApiError
from sfstream_localorg.managed.settings import ManagedSettings
from sfstream_localorg.managed.slots import Slots
from sfstream_localorg.managed.subscriptions import MOST_RECORDS, ManagedSubscriptions

RUN = ManagedSettings(label="Orders", topic_name="/event/Order__e", state="RUN")
STOP = replace(RUN, state="STOP")


class ManagedRegistry:
    """Managed subscriptions in a separate database, with a controllable clock."""

    def __init__(self, *, visibility: float = 0.0) -> None:
        self.now = 1_000.0
        self.visibility = visibility
        self.database = sqlite3.connect(":memory:")
        self.managed = self.reopened()

    def reopened(self) -> ManagedSubscriptions:
        slots = Slots(release_seconds=lambda: 0.0, half_open_seconds=lambda: 0.0, clock=lambda: self.now)
        return ManagedSubscriptions(
            self.database, visibility=lambda: self.visibility, clock=lambda: self.now, slots=slots
        )


def test_managed_records_survive_reopening() -> None:
    registry = ManagedRegistry()
    record = registry.managed.create("Orders", RUN)
    registry.managed.commit(record, 77)
    registry.managed.update(record, replace(RUN, label="Other"))
    (again,) = registry.reopened()
    assert again == record
    assert (again.id[:3], again.committed, again.settings.label) == ("18x", 77, "Other")


def test_ids_of_deleted_managed_records_are_not_reused() -> None:
    registry = ManagedRegistry()
    first = registry.managed.create("A", RUN)
    registry.managed.delete(first)
    assert registry.managed.create("A", RUN).id != first.id
    assert registry.reopened().get(first.id) is None


def test_names_of_managed_records_are_unique_and_found_regardless_of_case() -> None:
    registry = ManagedRegistry()
    record = registry.managed.create("Orders", RUN)
    with pytest.raises(ApiError, match="DUPLICATE_DEVELOPER_NAME"):
        registry.managed.create("ORDERS", RUN)
    assert registry.managed.named("oRDERS") is record
    assert registry.managed.get(record.id) is record
    assert registry.managed.find(developer_name="oRDERS") is None
    assert registry.managed.find(developer_name="Orders") is record
    assert registry.managed.find(record_id=record.id) is record


def test_number_of_managed_records_in_an_org_is_limited() -> None:
    registry = ManagedRegistry()
    for number in range(MOST_RECORDS):
        registry.managed.create(f"M{number}", RUN)
    with pytest.raises(ApiError, match="LIMIT_EXCEEDED"):
        registry.managed.create("More", RUN)
    first = next(iter(registry.managed))
    registry.managed.delete(first)
    registry.managed.create("More", RUN)


def test_topic_of_a_managed_record_cannot_change() -> None:
    registry = ManagedRegistry()
    record = registry.managed.create("Orders", RUN)
    with pytest.raises(ApiError, match="topicName"):
        registry.managed.update(record, replace(RUN, topic_name="/event/Other__e"))
    assert record.settings == RUN


def test_new_managed_record_becomes_visible_after_the_delay() -> None:
    registry = ManagedRegistry(visibility=120)
    record = registry.managed.create("Orders", RUN)
    assert registry.managed.visible(record) is None
    assert registry.managed.find(record_id=record.id) is None
    registry.now += 119
    assert registry.managed.visible(record) is None
    registry.now += 1
    assert registry.managed.visible(record) == RUN


def test_stop_discards_the_position_when_it_becomes_visible() -> None:
    registry = ManagedRegistry()
    record = registry.managed.create("Orders", RUN)
    registry.managed.commit(record, 5)
    registry.visibility = 120
    registry.managed.update(record, STOP)
    assert (registry.managed.visible(record), record.committed) == (RUN, 5)
    assert [one.committed for one in registry.reopened()] == [5]
    registry.now += 120
    assert [one.committed for one in registry.managed] == [None]
    assert [one.committed for one in registry.reopened()] == [None]


def test_stop_that_never_became_visible_keeps_the_position() -> None:
    registry = ManagedRegistry()
    record = registry.managed.create("Orders", RUN)
    registry.managed.commit(record, 5)
    registry.visibility = 120
    registry.managed.update(record, STOP)
    registry.now += 60
    registry.managed.update(record, replace(RUN, label="Again"))
    registry.now += 120
    assert [one.committed for one in registry.managed] == [5]


def test_stop_and_immediate_start_discard_the_position() -> None:
    registry = ManagedRegistry()
    record = registry.managed.create("Orders", RUN)
    registry.managed.commit(record, 5)
    registry.managed.update(record, STOP)
    registry.managed.update(record, RUN)
    assert record.committed is None


def test_deleted_managed_record_stays_visible_until_the_delay_has_passed() -> None:
    registry = ManagedRegistry()
    record = registry.managed.create("Orders", RUN)
    registry.visibility = 120
    registry.managed.delete(record)
    assert registry.managed.get(record.id) is None
    assert registry.managed.find(record_id=record.id) is record
    other = registry.managed.create("Orders", RUN)
    assert registry.managed.find(developer_name="Orders") is record
    registry.now += 120
    assert registry.managed.find(developer_name="Orders") is other
    assert registry.managed.visible(record) is None


def test_changed_visibility_delay_hides_no_visible_change() -> None:
    registry = ManagedRegistry()
    record = registry.managed.create("Orders", RUN)
    registry.visibility = 120
    assert registry.managed.visible(record) == RUN
    registry.managed.update(record, STOP)
    registry.visibility = 10
    registry.now += 10
    assert registry.managed.visible(record) == STOP
