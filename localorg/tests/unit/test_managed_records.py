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


class World:
    """A registry in a database of its own, with a clock to turn."""

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


def test_records_survive() -> None:
    world = World()
    record = world.managed.create("Orders", RUN)
    world.managed.commit(record, 77)
    world.managed.update(record, replace(RUN, label="Other"))
    (again,) = world.reopened()
    assert again == record
    assert (again.id[:3], again.committed, again.settings.label) == ("18x", 77, "Other")


def test_ids_are_never_used_again() -> None:
    world = World()
    first = world.managed.create("A", RUN)
    world.managed.delete(first)
    assert world.managed.create("A", RUN).id != first.id
    assert world.reopened().get(first.id) is None


def test_names_are_unique_and_found_in_any_letter_case() -> None:
    world = World()
    record = world.managed.create("Orders", RUN)
    with pytest.raises(ApiError, match="DUPLICATE_DEVELOPER_NAME"):
        world.managed.create("ORDERS", RUN)
    assert world.managed.named("oRDERS") is record
    assert world.managed.get(record.id) is record
    assert world.managed.find(developer_name="oRDERS") is None
    assert world.managed.find(developer_name="Orders") is record
    assert world.managed.find(record_id=record.id) is record


def test_an_org_has_so_many_and_no_more() -> None:
    world = World()
    for number in range(MOST_RECORDS):
        world.managed.create(f"M{number}", RUN)
    with pytest.raises(ApiError, match="LIMIT_EXCEEDED"):
        world.managed.create("More", RUN)
    first = next(iter(world.managed))
    world.managed.delete(first)
    world.managed.create("More", RUN)


def test_the_topic_is_for_life() -> None:
    world = World()
    record = world.managed.create("Orders", RUN)
    with pytest.raises(ApiError, match="topicName"):
        world.managed.update(record, replace(RUN, topic_name="/event/Other__e"))
    assert record.settings == RUN


def test_a_new_record_becomes_visible() -> None:
    world = World(visibility=120)
    record = world.managed.create("Orders", RUN)
    assert world.managed.visible(record) is None
    assert world.managed.find(record_id=record.id) is None
    world.now += 119
    assert world.managed.visible(record) is None
    world.now += 1
    assert world.managed.visible(record) == RUN


def test_a_stop_discards_the_position_when_it_is_seen() -> None:
    world = World()
    record = world.managed.create("Orders", RUN)
    world.managed.commit(record, 5)
    world.visibility = 120
    world.managed.update(record, STOP)
    assert (world.managed.visible(record), record.committed) == (RUN, 5)
    assert [one.committed for one in world.reopened()] == [5]
    world.now += 120
    assert [one.committed for one in world.managed] == [None]
    assert [one.committed for one in world.reopened()] == [None]


def test_a_stop_that_nobody_saw_keeps_the_position() -> None:
    world = World()
    record = world.managed.create("Orders", RUN)
    world.managed.commit(record, 5)
    world.visibility = 120
    world.managed.update(record, STOP)
    world.now += 60
    world.managed.update(record, replace(RUN, label="Again"))
    world.now += 120
    assert [one.committed for one in world.managed] == [5]


def test_a_stop_and_a_start_at_once_discard_the_position() -> None:
    world = World()
    record = world.managed.create("Orders", RUN)
    world.managed.commit(record, 5)
    world.managed.update(record, STOP)
    world.managed.update(record, RUN)
    assert record.committed is None


def test_a_deleted_record_is_seen_for_a_while() -> None:
    world = World()
    record = world.managed.create("Orders", RUN)
    world.visibility = 120
    world.managed.delete(record)
    assert world.managed.get(record.id) is None
    assert world.managed.find(record_id=record.id) is record
    other = world.managed.create("Orders", RUN)
    assert world.managed.find(developer_name="Orders") is record
    world.now += 120
    assert world.managed.find(developer_name="Orders") is other
    assert world.managed.visible(record) is None


def test_the_delay_can_be_shortened_but_does_not_undo() -> None:
    world = World()
    record = world.managed.create("Orders", RUN)
    world.visibility = 120
    assert world.managed.visible(record) == RUN
    world.managed.update(record, STOP)
    world.visibility = 10
    world.now += 10
    assert world.managed.visible(record) == STOP
