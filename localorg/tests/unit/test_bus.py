from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from airflow_provider_sfstream.salesforce import pubsub_api_pb2 as pb
from sfstream_localorg.bus.database import open_database
from sfstream_localorg.bus.event_bus import BusEvent, EventBus, ReplayIdCorruptedError

TOPIC = "/event/Order__e"
HOUR = 3600.0


class Clock:
    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def database(tmp_path: Path) -> sqlite3.Connection:
    return open_database(tmp_path / "bus.sqlite3")


@pytest.fixture
def bus(database: sqlite3.Connection, clock: Clock) -> EventBus:
    return make_bus(database, clock)


def make_bus(database: sqlite3.Connection, clock: Clock) -> EventBus:
    return EventBus(
        database,
        clock=clock,
        retention=lambda: 72 * HOUR,
        channels_of=lambda topic: ("/event/All__chn",) if topic == TOPIC else (),
    )


def publish(bus: EventBus, count: int = 1, topic: str = TOPIC) -> list[bytes]:
    return bus.publish([BusEvent(topic, "schema", str(n).encode(), f"id-{n}") for n in range(count)])


def read(bus: EventBus, topic: str, after: int, limit: int = 100, max_bytes: int = 10**6) -> list[bytes]:
    _, frames = bus.read(topic, after, limit, max_bytes)
    return [event.replay_id for event in pb.FetchResponse.FromString(b"".join(frames)).events]


def test_concatenated_frames_are_a_fetch_response(bus: EventBus) -> None:
    publish(bus, 2)
    _, frames = bus.read(TOPIC, bus.earliest(TOPIC), 10, 10**6)
    events = pb.FetchResponse.FromString(b"".join(frames)).events
    assert [(e.event.id, e.event.schema_id, e.event.payload) for e in events] == [
        ("id-0", "schema", b"0"),
        ("id-1", "schema", b"1"),
    ]


def test_channels_show_the_same_events_and_other_topics_do_not(bus: EventBus) -> None:
    first = publish(bus)
    publish(bus, topic="/event/Other__e")
    second = publish(bus)
    assert read(bus, TOPIC, 0) == read(bus, "/event/All__chn", 0) == first + second
    assert read(bus, "/event/Never__e", 0) == []


def test_explicit_channels_add_to_the_topics_own(bus: EventBus) -> None:
    (replay_id,) = bus.publish([BusEvent(TOPIC, "schema", b"", None, ("/event/Extra__chn",))])
    for topic in (TOPIC, "/event/All__chn", "/event/Extra__chn"):
        assert read(bus, topic, 0) == [replay_id]


def test_read_stops_at_the_limit_or_the_bytes_but_returns_at_least_one_event(bus: EventBus) -> None:
    ids = publish(bus, 5)
    assert read(bus, TOPIC, 0, limit=2) == ids[:2]
    assert read(bus, TOPIC, 0, max_bytes=1) == ids[:1]
    position, _ = bus.read(TOPIC, 0, 2, 10**6)
    assert bus.replay_id(position) == ids[1]
    assert read(bus, TOPIC, position) == ids[2:]


def test_read_without_events_returns_the_same_position(bus: EventBus) -> None:
    assert bus.read(TOPIC, 7, 10, 100) == (7, [])


def test_expired_events_stay_expired(bus: EventBus, clock: Clock) -> None:
    old = publish(bus, 2)
    clock.now += 50 * HOUR
    recent = publish(bus, 2)
    clock.now += 30 * HOUR
    assert read(bus, TOPIC, 0) == recent
    for replay_id in old:
        with pytest.raises(ReplayIdCorruptedError):
            bus.position_of(TOPIC, replay_id)
    clock.now -= 30 * HOUR
    assert read(bus, TOPIC, 0) == recent
    assert [event.expired for event in bus.record(TOPIC, 0, 10)] == [True, True, False, False]


def test_tip_of_a_quiet_bus_is_always_resumable(bus: EventBus, clock: Clock) -> None:
    for _ in range(3):
        tip = bus.tip()
        assert bus.position_of(TOPIC, bus.replay_id(tip)) == tip
        clock.now += 100 * HOUR
    publish(bus)
    assert len(read(bus, TOPIC, tip)) == 1


def test_tip_of_a_bus_with_recent_events_is_its_last_event(bus: EventBus) -> None:
    (last,) = publish(bus)
    assert bus.replay_id(bus.tip()) == last


@pytest.mark.parametrize("length", [8, 10])
def test_replay_ids_of_8_and_10_bytes_are_accepted(bus: EventBus, length: int) -> None:
    ids = publish(bus, 2)
    assert read(bus, TOPIC, bus.position_of(TOPIC, ids[0][:length])) == ids[1:]


@pytest.mark.parametrize("bad", [b"", b"\0" * 8, b"1234567", b"\xff" * 8, b"\0" * 11])
def test_invalid_replay_ids_are_corrupted(bus: EventBus, bad: bytes) -> None:
    publish(bus)
    with pytest.raises(ReplayIdCorruptedError):
        bus.position_of(TOPIC, bad)


def test_replay_id_whose_last_two_bytes_are_not_zero_is_corrupted(bus: EventBus) -> None:
    (replay_id,) = publish(bus)
    with pytest.raises(ReplayIdCorruptedError):
        bus.position_of(TOPIC, replay_id[:8] + b"\0\1")


def test_events_and_expirations_survive_reopening_the_database(
    bus: EventBus, clock: Clock, database: sqlite3.Connection
) -> None:
    ids = publish(bus, 4)
    bus.expire(TOPIC, ids[2])
    bus.expire_before(TOPIC, ids[1])
    again = make_bus(database, clock)
    assert read(again, TOPIC, 0) == ids[1:]
    assert again.position_of(TOPIC, ids[1])
    for expired in (ids[0], ids[2]):
        with pytest.raises(ReplayIdCorruptedError):
            again.position_of(TOPIC, expired)
    assert publish(again)[0] > ids[-1]


def test_failure_within_the_transaction_publishes_nothing(bus: EventBus) -> None:
    def fail() -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        bus.publish([BusEvent(TOPIC, "schema", b"")], within_transaction=fail)
    assert read(bus, TOPIC, 0) == []
    ids = publish(bus, 2)
    assert read(bus, TOPIC, 0) == ids


def test_reset_expires_the_events_of_one_topic_only(bus: EventBus) -> None:
    before, other = publish(bus), publish(bus, topic="/event/Other__e")
    bus.reset(TOPIC)
    after = publish(bus)
    assert read(bus, TOPIC, 0) == after
    assert read(bus, "/event/Other__e", 0) == other
    with pytest.raises(ReplayIdCorruptedError):
        bus.position_of(TOPIC, before[0])


async def test_listeners_of_a_topic_and_of_its_channels_are_woken(bus: EventBus) -> None:
    own, channel, other = asyncio.Event(), asyncio.Event(), asyncio.Event()
    with bus.listen(TOPIC, own), bus.listen("/event/All__chn", channel), bus.listen("/event/Other__e", other):
        publish(bus)
        assert (own.is_set(), channel.is_set(), other.is_set()) == (True, True, False)
    own.clear()
    publish(bus)
    assert not own.is_set()


def test_streaming_api_topics_have_a_separate_retention(database: sqlite3.Connection, clock: Clock) -> None:
    bus = EventBus(
        database,
        clock=clock,
        retention=lambda: 72 * HOUR,
        streaming_retention=lambda: 24 * HOUR,
        channels_of=lambda topic: (),
    )
    names = (TOPIC, "/topic/T", "/u/a")
    ids = {name: publish(bus, 2, topic=name) for name in names}
    clock.now += 25 * HOUR
    assert [len(bus.retained(name, 0, 10)) for name in names] == [2, 0, 0]
    assert bus.position_of(TOPIC, ids[TOPIC][0])
    for name in names[1:]:
        with pytest.raises(ReplayIdCorruptedError):
            bus.position_of(name, ids[name][1])
    assert [[event.expired for event in bus.record(name, 0, 10)] for name in names] == [[False] * 2, *[[True] * 2] * 2]
    clock.now += 48 * HOUR
    assert bus.retained(TOPIC, 0, 10) == []


def test_publish_without_events_commits_the_other_writes(
    bus: EventBus, database: sqlite3.Connection, clock: Clock
) -> None:
    publish(bus)
    before, done = bus.last(), []
    clock.now += HOUR
    assert bus.publish([], within_transaction=lambda: done.append(1)) == []
    assert (done, bus.last()) == ([1], before)
    assert bus.tip() > before  # the newest event is an hour old, and its position would expire before a new one


def position(replay_id: bytes) -> int:
    return int.from_bytes(replay_id[:8], "big")


@pytest.mark.parametrize("part", [0.0, 0.25, 0.5, 1.0])
def test_reserved_position_is_resumable_and_loses_no_event(bus: EventBus, part: float) -> None:
    first, second = publish(bus, 2)
    reserved = bus.reserve_between(position(first), position(second), part)
    assert reserved is not None
    assert first < bus.replay_id(reserved) < second
    assert bus.is_resumable(TOPIC, reserved)
    assert read(bus, TOPIC, reserved) == [second]
    assert read(bus, TOPIC, 0) == [first, second]


def test_reserve_between_returns_none_without_a_free_position(bus: EventBus) -> None:
    first, second = publish(bus, 2)
    at = position(first)
    while (reserved := bus.reserve_between(at, position(second), 0.0)) is not None:
        assert at < reserved < position(second)
        at = reserved
    assert at == position(second) - 1


def test_positions_before_the_earliest_event_can_be_reserved(bus: EventBus, clock: Clock) -> None:
    publish(bus)
    clock.now += 80 * HOUR
    first, second = publish(bus, 2)
    for earliest in (first, second):
        assert read(bus, TOPIC, bus.earliest(TOPIC))[0] == earliest
        reserved = bus.reserve_between(bus.earliest(TOPIC), position(earliest), 0.5)
        assert reserved is not None
        assert bus.is_resumable(TOPIC, reserved)
        assert read(bus, TOPIC, reserved)[0] == earliest
        bus.expire_before(TOPIC, second)
        assert not bus.is_resumable(TOPIC, reserved)


def test_reserved_position_expires_with_the_event_after_it(
    bus: EventBus, clock: Clock, database: sqlite3.Connection
) -> None:
    first, second = publish(bus, 2)
    reserved = bus.reserve_between(position(first), position(second), 0.5) or 0
    clock.now += 71 * HOUR
    (later,) = publish(bus)
    assert bus.is_resumable(TOPIC, reserved)
    clock.now += 2 * HOUR
    assert not bus.is_resumable(TOPIC, reserved)
    again = make_bus(database, clock)
    assert read(again, TOPIC, again.earliest(TOPIC)) == [later]
    assert again.advance() > position(later)
