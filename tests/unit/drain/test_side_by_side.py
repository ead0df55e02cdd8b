"""Several subscriptions side by side: the drain is given what one would have given it, whatever is known and fails."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_sfstream.drain.drain import DrainResult, drain
from airflow_provider_sfstream.drain.limits import DrainLimits, StopReason
from airflow_provider_sfstream.drain.side_by_side import SideBySide
from airflow_provider_sfstream.drain.spool import Spool
from airflow_provider_sfstream.exceptions import (
    QuotaExceededError,
    ReplayIdLostError,
    SalesforceStreamError,
    ServiceUnavailableError,
    SessionExpiredError,
    ThrottledError,
)
from airflow_provider_sfstream.protocol.server_time import ServerTime
from airflow_provider_sfstream.reading.source import EventBatch, StartFrom
from tests.support.scripted_source import (
    BEGAN,
    Deliver,
    End,
    Event,
    FakeTime,
    Keepalive,
    ListSink,
    ScriptedSource,
    Silence,
    Step,
    events,
    replay_id,
)

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
TOPIC = "/event/Order__e"


class Strictly(ScriptedSource):
    """Begins after all events of a replay ID, of which there can be several."""

    def _place_after(self, start: bytes | StartFrom) -> int:
        place = super()._place_after(start)
        while isinstance(start, bytes) and place < len(self.stream) and self.stream[place].replay_id == start:
            place += 1
        return place


@dataclass
class ManyStreams:
    """The topic, for several threads. ``own`` are the scripts of the drain's subscriptions, ``others`` those of the
    ones that read ahead, each in the order in which they are opened."""

    payload_encoding = "avro"
    confirms_positions = True
    stream: list[Event]
    own: list[list[Step]] = field(default_factory=list)
    others: list[list[Step]] = field(default_factory=list)
    retained_from: int = 0
    time: FakeTime = field(default_factory=FakeTime)
    delivered: int = 0
    opened: list[tuple[str, bytes | StartFrom]] = field(default_factory=list)
    open_subscriptions: int = 0
    lock: Any = field(default_factory=threading.Lock)

    def subscribe(
        self, topic: str, start: bytes | StartFrom, *, limit: int | None, idle_timeout: float, **_: Any
    ) -> Iterator[EventBatch | None]:
        is_own = threading.current_thread() is threading.main_thread()
        with self.lock:
            scripts = self.own if is_own else self.others
            script = scripts.pop(0) if scripts else []
            self.opened.append(("own" if is_own else "other", start))
            self.open_subscriptions += 1
        if not isinstance(start, bytes):  # there is no event to be repeated
            script = [replace(step, repeat=False) if isinstance(step, Deliver) else step for step in script]
        time = self.time if is_own else FakeTime()
        one = Strictly(self.stream, list(script), time, retained_from=self.retained_from)
        try:
            for response in one.subscribe(topic, start, limit=limit, idle_timeout=idle_timeout):
                with self.lock:
                    self.delivered += len(response or ())
                yield response
        finally:
            with self.lock:
                self.open_subscriptions -= 1

    def latest(self, topic: str, *, idle_timeout: float) -> Iterator[EventBatch | None]:
        yield from Strictly(self.stream).latest(topic, idle_timeout=idle_timeout)

    def server_time(self, clock: Callable[[], float]) -> ServerTime | None:
        return ServerTime(BEGAN, clock(), clock())

    def prove_contact(self, topic: str) -> None:
        pass

    def schema(self, schema_id: str) -> str | None:
        return None

    def renew_session(self) -> None:
        pass


def run(source: ManyStreams, start, places=None, *, streams=4, limits=None, sink=None, **more: Any) -> DrainResult:
    """Drain, with others beside it if there are ``places``."""
    times = {event.payload: event.time for event in source.stream}
    ahead_arguments = {name: more.pop(name) for name in ("most_bytes", "patience") if name in more}
    arguments = {
        "event_times": lambda ids, payloads: [times[payload] for payload in payloads],
        "clock": source.time.clock,
        "sleep": source.time.sleep,
        "now": lambda: NOW,
        "random": lambda: 0.5,
        "max_failures": 100,
        **more,
    }
    limits, sink = limits or DrainLimits(), sink if sink is not None else ListSink()
    if places is None:
        return drain(source, sink, TOPIC, start, limits, **arguments)
    no_pause = {"random": lambda: -1.0}
    ahead = SideBySide(source, TOPIC, start, places, streams=streams, **no_pause, **ahead_arguments)
    with ahead:
        return drain(source, sink, TOPIC, start, limits, ahead=ahead, **arguments)


def numbered(count: int) -> list[Event]:
    return [Event(replay_id(3 * n), n.to_bytes(4, "big") * 3, n) for n in range(1, count + 1)]


# -- the same as one, whatever is known and whatever fails -----------------------------------------------------------

faults = st.sampled_from(
    [ServiceUnavailableError("reset"), ThrottledError("slower"), SessionExpiredError("expired"), End(), Silence()]
)
deliveries = st.builds(Deliver, st.integers(1, 100), st.booleans())
own_scripts = st.lists(st.lists(deliveries | st.sampled_from([End(), ServiceUnavailableError("reset")])), max_size=3)
other_scripts = st.lists(
    st.lists(deliveries | faults | st.sampled_from([Keepalive(), QuotaExceededError("none left")]), max_size=6),
    max_size=12,
)


@given(
    count=st.integers(1, 700) | st.just(700),
    start=st.integers(0, 200),
    places=st.lists(st.integers(1, 700).map(lambda number: 3 * number) | st.integers(-5, 2_200), max_size=12),
    streams=st.integers(2, 12),
    own=own_scripts,
    others=other_scripts,
    limits=st.builds(
        DrainLimits,
        max_events=st.none() | st.integers(1, 700),
        max_bytes=st.none() | st.integers(1, 8_400),
    ),
    retained_from=st.sampled_from([0, 0, 0, 50, 150]),
    most_bytes=st.sampled_from([1, 5_000, 2**30]),
    patience=st.sampled_from([0.0, 5.0]),
)
def test_it_is_what_one_subscription_gives(
    count, start, places, streams, own, others, limits, retained_from, most_bytes, patience
):
    """Places are numbers of events times three: others are replay IDs that no event has. Some lie before the start."""
    stream = numbered(count)
    begin = stream[min(start, count) - 1].replay_id if start else StartFrom.EARLIEST
    known = [replay_id(place) if place > 0 else b"never one" for place in places]
    alone, beside = ListSink(), ListSink()
    options = {"limits": limits, "on_invalid_replay": "earliest"}

    expected = run(ManyStreams(stream, retained_from=min(retained_from, count)), begin, sink=alone, **options)
    source = ManyStreams(stream, own, others, retained_from=min(retained_from, count))
    result = run(
        source,
        begin,
        known,
        streams=streams,
        sink=beside,
        most_bytes=most_bytes,
        patience=patience,
        **options,
    )

    assert beside.replay_ids == alone.replay_ids
    facts = ("stop_reason", "through", "event_count", "payload_bytes")
    assert [getattr(result, name) for name in facts] == [getattr(expected, name) for name in facts]
    assert (result.gap is None) == (expected.gap is None)
    assert source.open_subscriptions == 0
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("sfstream-ahead")]


@pytest.mark.parametrize("size", [3, 12, 99])
def test_events_of_one_replay_id_are_not_parted_where_another_subscription_begins(size):
    """Whoever begins after their replay ID is given none of them."""
    stream = [replace(event, payload=bytes([n, m])) for n, event in enumerate(events(100)) for m in range(3)]
    sink = ListSink()
    source = ManyStreams(stream, others=[[Deliver(size)] * 100 for _ in range(9)])
    run(source, StartFrom.EARLIEST, [replay_id(15), replay_id(30), replay_id(45)], sink=sink)
    assert [payload for batch in sink.batches for payload in batch.payloads] == [event.payload for event in stream]


# -- that they are side by side, and cost no more than they have to --------------------------------------------------


class AllAtOnce(ManyStreams):
    """Sends nothing until four subscriptions are open."""

    all_open: threading.Event

    def subscribe(self, topic: str, start: bytes | StartFrom, **more: Any) -> Iterator[EventBatch | None]:
        for response in super().subscribe(topic, start, **more):
            if self.open_subscriptions == 4:
                self.all_open.set()
            self.all_open.wait(timeout=20)
            yield response


def test_so_many_read_at_a_time():
    source = AllAtOnce(numbered(2_000))
    source.all_open = threading.Event()
    sink = ListSink()
    run(source, replay_id(3), [replay_id(3 * n) for n in (500, 1_000, 1_500)], sink=sink, patience=60.0)
    assert source.all_open.is_set()
    assert sink.replay_ids == [event.replay_id for event in source.stream[1:]]


@pytest.mark.parametrize("order", [1, -1], ids=["in order", "backwards"])
def test_what_one_has_read_no_other_reads(order):
    """Of each that reads up to where another began, one response more than is needed."""
    source = ManyStreams(numbered(5_000))
    places = [replay_id(3 * n) for n in range(500, 5_000, 500)][::order]
    sink = ListSink()
    run(source, replay_id(3), places, sink=sink)
    assert sink.replay_ids == [event.replay_id for event in source.stream[1:]]
    assert source.delivered <= 4_999 + 100 * (len(places) + 1)


def test_what_was_read_from_before_the_position_is_thrown_away():
    source, sink = ManyStreams(numbered(1_000)), ListSink()
    run(source, replay_id(1_500), [replay_id(300), replay_id(600), replay_id(2_400)], sink=sink)
    assert sink.replay_ids == [event.replay_id for event in source.stream[500:]]


def test_what_waits_on_disk_is_bounded():
    """Nobody reads on while more waits than may, but the one that the drain waits for."""
    most, seen = 20_000, []
    source = ManyStreams(numbered(3_000))
    ahead = SideBySide(
        source, TOPIC, replay_id(3), [replay_id(3 * n) for n in (1_000, 2_000)], streams=3, most_bytes=most
    )

    class Looking(ListSink):
        def append(self, batch: EventBatch) -> None:
            seen.append(sum(stretch.spool.waiting_bytes for stretch in [*ahead._ahead.values()]))
            super().append(batch)

    sink = Looking()
    with ahead:
        drain(source, sink, TOPIC, replay_id(3), DrainLimits(), now=lambda: NOW, ahead=ahead)
    assert sink.replay_ids == [event.replay_id for event in source.stream[1:]]
    assert max(seen) < most + 3 * 10_000, "one response each"


# -- faults ----------------------------------------------------------------------------------------------------------


class Refusing(ManyStreams):
    """Refuses each subscription to somebody, from some replay ID on."""

    error: SalesforceStreamError
    refused: str
    from_event: int = 0

    def subscribe(self, topic: str, start: bytes | StartFrom, **more: Any) -> Iterator[EventBatch | None]:
        who = "own" if threading.current_thread() is threading.main_thread() else "other"
        for response in super().subscribe(topic, start, **more):
            reached = max([int.from_bytes(each[:8], "big") for each in response.replay_ids]) if response else 0
            if self.refused in (who, "both") and reached >= self.from_event:
                raise self.error
            yield response


@pytest.mark.parametrize("error", [QuotaExceededError("too many streams"), ReplayIdLostError("too old")])
def test_others_that_are_refused_leave_the_drain_to_read_itself(error):
    source = Refusing(numbered(1_000))
    source.error, source.refused = error, "other"
    sink = ListSink()
    result = run(source, replay_id(3), [replay_id(300), replay_id(1_500)], sink=sink)
    assert sink.replay_ids == [event.replay_id for event in source.stream[1:]]
    assert (result.stop_reason, result.through) == (StopReason.IDLE, replay_id(3_000))


def test_what_stops_one_subscription_stops_the_drain_when_it_gets_there_and_all_others():
    source = Refusing(numbered(1_000))
    source.error, source.refused, source.from_event = QuotaExceededError("nothing is left"), "both", 2_000
    sink = ListSink()
    with pytest.raises(QuotaExceededError, match="nothing is left"):
        run(source, replay_id(3), [replay_id(300), replay_id(1_500), replay_id(2_400)], sink=sink)
    got = sink.replay_ids
    assert got == [event.replay_id for event in source.stream[1 : len(got) + 1]]
    assert source.open_subscriptions == 0


def test_an_empty_response_to_others_does_not_end_the_drain():
    """Only an answer to a subscription of its own, opened after what it has taken, ends a drain."""
    source = ManyStreams(numbered(600))
    result = run(source, replay_id(3), [replay_id(900)])
    assert (result.stop_reason, result.confirmed_at) == (StopReason.IDLE, None)
    assert source.opened[-1] == ("own", replay_id(1_800))


def test_an_event_that_others_read_is_evidence_for_the_end_once_the_drain_has_taken_it():
    source, sink = ManyStreams(numbered(600)), ListSink()
    limits = DrainLimits(to_the_end=True)
    result = run(source, replay_id(3), [replay_id(900)], limits=limits, sink=sink, patience=60.0)
    assert (result.stop_reason, result.confirmed_at) == (StopReason.CAUGHT_UP, BEGAN)
    assert sink.replay_ids == [event.replay_id for event in source.stream[1:]]


def test_contact_was_when_the_drain_took_what_was_read_ahead():
    source, sink = ManyStreams(numbered(600)), ListSink()
    limits = DrainLimits(max_events=400)
    result = run(source, replay_id(3), [replay_id(900)], limits=limits, sink=sink, patience=60.0)
    taken = BEGAN + timedelta(seconds=1 + source.time.seconds)
    assert (result.stop_reason, result.contact_at) == (StopReason.MAX_EVENTS, taken)
    assert sink.batches[-1].received_at == int(taken.timestamp() * 1e9)


# -- the file between ------------------------------------------------------------------------------------------------


def test_a_spool_gives_what_it_was_given_and_uses_its_file_again():
    spool, size = Spool(), 0
    first = ListSink()
    for response in ScriptedSource(events(250)).subscribe("t", StartFrom.EARLIEST, limit=250, idle_timeout=1):
        assert response is not None
        spool.put(response)
        first.append(response)
        size = max(size, spool.waiting_bytes)
    taken = [spool.take() for _ in range(3)]
    assert taken == first.batches
    assert (spool.take(), spool.waiting_bytes) == (None, 0)
    spool.put(first.batches[0])
    assert spool._file.seek(0, 2) < size
    assert spool.take() == first.batches[0]
    spool.close()
