"""Managed subscription as an event source: skipped events, commits and retries, with a scripted Salesforce."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import (
    AccessDeniedError,
    CommitError,
    CommitFailedError,
    ConfigurationError,
    InvalidTopicError,
    ReplayIdLostError,
    SalesforceStreamError,
    ServiceUnavailableError,
    SessionExpiredError,
    SubscriptionBusyError,
    SubscriptionMovedError,
    SubscriptionStoppedError,
)
from airflow_provider_sfstream.salesforce.events import EventBatch, StartFrom
from airflow_provider_sfstream.salesforce.identifiers import ManagedSubscription
from airflow_provider_sfstream.streams.managed.continuation import Redelivery
from airflow_provider_sfstream.streams.managed.exclusive_stream import SlotWait, TopicCheck, may_deliver
from airflow_provider_sfstream.streams.managed.source import ManagedSource

TOPIC = "/event/Order__e"
ORDERS = ManagedSubscription("Orders")
COMMITTED = StartFrom.COMMITTED

CAUGHT_UP, SEEKS, OWES_NOTHING, SILENCE = "caught up", "seeks", "owes nothing", "silence"
Step = int | str | SalesforceStreamError
"""One step of a script.

A number delivers that many events. ``CAUGHT_UP`` is an empty response that confirms the position, ``SEEKS`` one of a
stream that still seeks its next event, ``OWES_NOTHING`` an empty response that confirms nothing, and ``SILENCE`` is no
response. An error ends the stream.
"""


def rid(number: int) -> bytes:
    """Return the replay ID of event ``number``. A fraction is a position between two events: 1.5 follows event 1."""
    return int(number * 10).to_bytes(8, "big") + b"\0\0"


def ids(*numbers: int) -> list[bytes]:
    return [rid(number) for number in numbers]


def batch(replay_ids: list[bytes], latest: bytes, pending: int) -> EventBatch:
    count = len(replay_ids)
    return EventBatch(replay_ids, [None] * count, ["schema"] * count, [b"payload"] * count, latest, pending, 1)


@dataclass
class Salesforce:
    """Salesforce with ``events`` numbered events, a managed subscription, and a script for each of its streams."""

    events: int
    scripts: deque[list[Step]]
    committed: float | None = None
    default_replay: str = "EARLIEST"
    commit_faults: deque[SalesforceStreamError | None] = field(default_factory=deque)
    """Error of each commit in turn, or ``None``. A ``CommitError`` refuses the commit; other errors end the stream
    after Salesforce carried out the commit."""
    streams: list[Stream] = field(default_factory=list)
    log: list[tuple[str, bytes]] = field(default_factory=list)
    sessions_renewed: int = 0
    ordinary: list[SalesforceStreamError | None] = field(default_factory=list)
    """First steps of each ordinary subscription, before its events: an error, or ``None`` for silence."""
    schema_id: str = "schema"
    """Schema ID of the events of the managed stream."""
    opened: list[bytes | StartFrom] = field(default_factory=list)
    """Start positions of the ordinary subscriptions."""

    def in_contact(self, name: str) -> nullcontext[None]:
        return nullcontext()

    def managed_subscribe(self, subscription: ManagedSubscription, **arguments: Any) -> Stream:
        assert subscription == ORDERS
        assert all(stream.closed for stream in self.streams), "one stream at a time"
        position = self.committed
        if position is None:
            position = 0 if self.default_replay == "EARLIEST" else self.events
        self.streams.append(Stream(self, position, self.scripts.popleft() if self.scripts else [], **arguments))
        return self.streams[-1]

    def subscribe(
        self, topic: str, after: bytes | StartFrom, *, limit: int | None, **_: Any
    ) -> Iterator[EventBatch | None]:
        self.opened.append(after)
        for error in self.ordinary:
            if error is not None:
                raise error
            yield None
        position = int.from_bytes(after[:8], "big") / 10 if isinstance(after, bytes) else 0
        following = list(range(int(position) + 1, self.events + 1))[:limit]
        if following:
            yield batch(ids(*following), rid(following[-1]), 1)
        if limit is None or len(following) < limit:
            yield batch([], rid(self.events + 0.5), 1)

    latest = server_time = prove_contact = None  # no test of this module uses them

    def schema(self, schema_id: str) -> str:
        return schema_id

    def renew_session(self) -> None:
        self.sessions_renewed += 1


@dataclass
class Stream:
    salesforce: Salesforce
    position: float
    script: list[Step]
    limit: int | None
    idle_timeout: float
    recommit: bytes | None
    closed: bool = False
    is_open: bool = True
    fetching: bool = True
    confirmed: set[float] = field(default_factory=set)
    _sent: dict[bytes, SalesforceStreamError | None] = field(default_factory=dict)

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> EventBatch | None:
        if self.limit == 0 or not self.script:
            raise StopIteration
        step = self.script.pop(0)
        if isinstance(step, SalesforceStreamError):
            self.is_open = False
            raise step
        if step == SILENCE:
            return None
        if step == OWES_NOTHING:
            return batch([], rid(self.position), 0)
        if step == SEEKS:
            assert int(self.position) < self.salesforce.events, "the script contradicts the number of events"
            self.position = int(self.position) + 0.5
            return batch([], rid(self.position), 100)
        if step == CAUGHT_UP:
            assert int(self.position) == self.salesforce.events, "the script contradicts the number of events"
            self.position = self.salesforce.events + 0.5
            self.confirmed.add(self.position)
            return batch([], rid(self.position), 100)
        assert isinstance(step, int)
        count = step if self.limit is None else min(step, self.limit)
        numbers = [int(self.position) + 1 + index for index in range(count)]
        assert numbers[-1] <= self.salesforce.events, "the script contradicts the number of events"
        self.position = numbers[-1]
        if self.limit is not None:
            self.limit -= count
        delivered = batch(ids(*numbers), rid(self.position), 50)
        return replace(delivered, schema_ids=[self.salesforce.schema_id] * count)

    def allow(self, count: int) -> None:
        self.limit = None if self.limit is None else self.limit + count

    def stop_fetching(self) -> None:
        self.fetching = False

    def close(self) -> None:
        self.closed, self.is_open = True, False

    def commit(self, replay_id: bytes) -> None:
        if not self.is_open:
            raise ServiceUnavailableError("it has ended")
        position = int.from_bytes(replay_id[:8], "big") / 10
        fault = self.salesforce.commit_faults.popleft() if self.salesforce.commit_faults else None
        refused = isinstance(fault, CommitError)
        assert position <= self.position, "Salesforce has not delivered this position yet"
        if not refused:
            assert position >= (self.salesforce.committed or 0), "the committed position is newer"
            self.salesforce.committed = position
            self.salesforce.log.append(("committed", replay_id))
        self.is_open = fault is None or refused
        self._sent[replay_id] = fault

    def wait_for_commit(self, replay_id: bytes, timeout: float) -> None:
        fault = self._sent[replay_id]
        if fault is not None:
            raise fault


@dataclass
class Clock:
    now: float = 0.0
    pauses: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


@dataclass
class Ticking(Clock):
    step: float = 0.1

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def scripted(events: int, *scripts: list[Step], **arguments: Any) -> Salesforce:
    return Salesforce(events, deque(scripts), **arguments)


def source_on(salesforce: Salesforce, clock: Clock | None = None, **arguments: Any) -> ManagedSource:
    clock = clock or Clock()
    return ManagedSource(
        salesforce,  # type: ignore[arg-type]
        ORDERS,
        clock=clock,
        sleep=clock.sleep,
        random=lambda: 1.0,
        **arguments,
    )


def responses(source: ManagedSource, after: bytes | StartFrom, limit: int | None = None) -> Iterator[EventBatch | None]:
    return source.subscribe(TOPIC, after, limit=limit, idle_timeout=10)


def events_of(stream: Iterable[EventBatch | None], end: type[Exception] | None = None) -> list[bytes]:
    """Read the stream to its end, or to an error of the type ``end``; return the replay IDs."""
    got: list[bytes] = []
    with nullcontext() if end is None else pytest.raises(end):
        for response in stream:
            if response is not None:
                got += response.replay_ids
    return got


def fault() -> ServiceUnavailableError:
    return ServiceUnavailableError("the connection failed")


def landed(*numbers: int) -> Callable[[bytes], bool]:
    return set(ids(*numbers)).__contains__


class TestSkippedEvents:
    def test_first_delivery_is_yielded_completely(self) -> None:
        salesforce = scripted(4, [2, 2])
        assert events_of(responses(source_on(salesforce), COMMITTED)) == ids(1, 2, 3, 4)
        assert salesforce.committed is None, "only the reader knows which events are stored"

    def test_yielded_events_are_skipped_after_a_fault(self) -> None:
        salesforce = scripted(6, [2, 1, fault()], [4, fault()], [3, 3])
        source = source_on(salesforce)
        assert events_of(responses(source, COMMITTED), ServiceUnavailableError) == ids(1, 2, 3)
        assert events_of(responses(source, rid(3)), ServiceUnavailableError) == ids(4)
        assert events_of(responses(source, rid(4))) == ids(5, 6)
        assert salesforce.log == []

    def test_yielded_events_that_were_not_stored_are_yielded_again(self) -> None:
        source = source_on(scripted(3, [3, fault()], [3], [3]))
        assert events_of(responses(source, COMMITTED), ServiceUnavailableError) == ids(1, 2, 3)
        assert events_of(responses(source, COMMITTED)) == ids(1, 2, 3)
        assert events_of(responses(source, rid(1))) == ids(2, 3), "the events after the stored one"

    def test_events_before_a_confirmed_position_are_skipped(self) -> None:
        salesforce = scripted(2, [2, CAUGHT_UP, fault()])
        source = source_on(salesforce)
        assert events_of(responses(source, COMMITTED), ServiceUnavailableError) == ids(1, 2)
        salesforce.events = 4
        salesforce.scripts.append([1, 2, 1])
        assert events_of(responses(source, rid(2.5))) == ids(3, 4)

    def test_events_landed_by_an_earlier_run_are_skipped_and_committed(self) -> None:
        salesforce = scripted(5, [2, 2, 1])
        source = source_on(salesforce, is_landed=landed(1, 2, 3))
        stream = responses(source, rid(3))
        assert events_of(itertools.islice(stream, 1)) == ids(4)
        assert salesforce.committed == 3, "the commit precedes the first yielded event"
        assert events_of(stream) == ids(5)
        assert salesforce.log == [("committed", rid(3))]

    def test_landed_events_before_a_confirmed_position_are_skipped(self) -> None:
        salesforce = scripted(5, [3, 2], committed=0)
        source = source_on(salesforce, is_landed=landed(1, 2, 3))
        assert events_of(responses(source, rid(3.5))) == ids(4, 5)
        assert salesforce.committed == 3

    def test_landed_events_are_skipped_if_no_new_event_arrives(self) -> None:
        salesforce = scripted(3, [3, CAUGHT_UP])
        source = source_on(salesforce, is_landed=landed(1, 2, 3))
        *_, confirmed = responses(source, rid(3))
        assert confirmed is not None
        assert (len(confirmed), confirmed.latest_replay_id) == (0, rid(3.5))
        assert salesforce.committed == 3, "the last landed event"

    @pytest.mark.parametrize("script", [[SEEKS, 5], [2, SEEKS, 3]])
    def test_landed_events_are_skipped_while_salesforce_seeks_them(self, script: list[Step]) -> None:
        salesforce = scripted(5, script, committed=0)
        source = source_on(salesforce, is_landed=landed(1, 2, 3))
        assert events_of(responses(source, COMMITTED)) == ids(4, 5)

    def test_fault_during_redelivery_of_landed_events(self) -> None:
        salesforce = scripted(5, [2, fault()], [4, fault()], [2])
        source = source_on(salesforce, is_landed=landed(1, 2, 3))
        assert events_of(responses(source, rid(3)), ServiceUnavailableError) == []
        assert events_of(responses(source, rid(3)), ServiceUnavailableError) == ids(4)
        assert events_of(responses(source, rid(4))) == ids(5), (
            "the second stream committed 3, so the third begins with 4"
        )

    def test_no_event_is_skipped_if_salesforce_resumes_at_the_start(self) -> None:
        salesforce = scripted(7, [2], committed=5)
        source = source_on(salesforce, is_landed=landed(1, 2, 3, 4, 5))
        assert events_of(responses(source, rid(5))) == ids(6, 7)
        assert salesforce.log == []

    def test_events_up_to_the_start_are_skipped_without_landing_lookup(self) -> None:
        assert events_of(responses(source_on(scripted(3, [3])), rid(2))) == ids(3)

    @pytest.mark.parametrize("committed", [3, 4])
    def test_no_event_is_lost_if_another_client_committed(self, committed: int) -> None:
        """Another client committed the yielded events, so Salesforce does not deliver them again."""
        salesforce = scripted(3, [3, fault()], [1, CAUGHT_UP] if committed == 3 else [CAUGHT_UP])
        source = source_on(salesforce)
        events_of(responses(source, COMMITTED), ServiceUnavailableError)
        salesforce.events, salesforce.committed = 4, committed
        assert events_of(responses(source, rid(3))) == ids(4)
        assert source.differs == (committed == 4)

    def test_limit_counts_yielded_events_only(self) -> None:
        salesforce = scripted(9, [3, fault()], [2, 2, 2, 9])
        source = source_on(salesforce)
        assert events_of(responses(source, COMMITTED, 5), ServiceUnavailableError) == ids(1, 2, 3)
        assert events_of(responses(source, rid(3), 2)) == ids(4, 5)
        assert salesforce.streams[-1].position == 5, "the source requested no more events"

    @pytest.mark.parametrize("size", [1, 2, 7, 100])
    @pytest.mark.parametrize("count", [1, 5, 99, 150])
    def test_few_events_of_a_response_are_looked_up(self, count: int, size: int) -> None:
        asked: list[bytes] = []

        def is_landed(replay_id: bytes) -> bool:
            asked.append(replay_id)
            return replay_id <= rid(count)

        redelivery, got = Redelivery(rid(10_000), is_landed), 0
        for first in range(1, 301, size):
            known = redelivery.known(ids(*range(first, first + size)))
            got += known
            assert len(asked) <= 10 * (first // size + 1)
            if redelivery.is_over:
                break
        assert got == count
        assert redelivery.last == rid(count)


class TestLostPosition:
    def test_lost_position_raises_before_any_event_is_yielded(self) -> None:
        salesforce = scripted(5, [3, 2], [CAUGHT_UP], ordinary=[None, None, ReplayIdLostError("too old")])
        source = source_on(salesforce, is_landed=landed(1, 2, 3))
        assert events_of(responses(source, rid(3)), ReplayIdLostError) == []
        assert source.stream is None

    def test_start_from_latest_continues_at_the_committed_position(self) -> None:
        salesforce = scripted(5, [2], [2, 3], committed=0, ordinary=[ReplayIdLostError("too old")])
        source = source_on(salesforce)
        assert events_of(responses(source, rid(3)), ReplayIdLostError) == []
        assert events_of(responses(source, StartFrom.LATEST)) == ids(1, 2, 3, 4, 5)

    def test_start_from_earliest_yields_all_retained_events(self) -> None:
        salesforce = scripted(5, [2], [2], committed=3, ordinary=[ReplayIdLostError("too old")])
        source = source_on(salesforce)
        events_of(responses(source, rid(2)), ReplayIdLostError)
        salesforce.ordinary = []
        assert events_of(responses(source, StartFrom.EARLIEST)) == ids(1, 2, 3, 4, 5)
        assert salesforce.opened == [rid(2), StartFrom.EARLIEST, rid(1)]

    def test_silence_yields_no_event(self) -> None:
        salesforce = scripted(5, [3, 2], ordinary=[None] * 50)
        stream = responses(source_on(salesforce, Ticking(step=10), is_landed=landed(1, 2, 3)), rid(3))
        assert list(itertools.islice(stream, 50)) == [None] * 50


class TestMovedPosition:
    """The recorded position is event 5 of 9 events, in one test of 400."""

    @pytest.mark.parametrize("committed", [7, 9], ids=["forward", "to the end"])
    def test_no_event_is_missed_if_the_position_moved_forward(self, committed: int) -> None:
        salesforce = scripted(9, [9 - committed] if committed < 9 else [CAUGHT_UP], committed=committed)
        source = source_on(salesforce, is_landed=landed(4, 5))
        assert events_of(responses(source, rid(5))) == ids(6, 7, 8, 9)
        assert source.differs == (committed == 9)
        assert salesforce.log == []

    def test_managed_stream_is_read_again_after_the_missing_events(self) -> None:
        salesforce = scripted(400, [100, 100, 100, 93], committed=7)
        source = source_on(salesforce)
        assert events_of(responses(source, rid(5))) == ids(*range(6, 401))
        assert salesforce.opened == [rid(5), rid(6)]
        assert source.commit(rid(400))
        assert (salesforce.committed, len(salesforce.streams)) == (400, 1)

    def test_a_stream_that_is_15_seconds_slower_than_the_topic_delivers_each_event_once(self) -> None:
        salesforce = scripted(9, [SILENCE] * 75 + [4], committed=5)
        clock = Ticking()
        stream = source_on(salesforce, clock).subscribe(TOPIC, rid(5), limit=None, idle_timeout=1.0)  # as in a drain
        assert events_of(stream) == ids(6, 7, 8, 9)
        assert salesforce.opened == [rid(5)], "the topic delivers one event"
        assert clock.now > 15

    def test_a_stream_that_is_past_the_next_event_is_not_waited_for(self) -> None:
        salesforce = scripted(9, [SILENCE, CAUGHT_UP, *[SILENCE] * 100], committed=9)
        clock = Ticking()
        stream = source_on(salesforce, clock).subscribe(TOPIC, rid(5), limit=1, idle_timeout=1.0)
        assert events_of(stream) == ids(6)
        assert clock.now < 3

    @pytest.mark.parametrize("sizes", [[9], [5, 4], [2, 2, 2, 3], [1] * 9])
    def test_no_event_is_repeated_if_the_position_moved_backward(self, sizes: list[Step]) -> None:
        salesforce = scripted(9, [*sizes, CAUGHT_UP])
        source = source_on(salesforce, is_landed=landed(4, 5))
        assert events_of(responses(source, rid(5))) == ids(6, 7, 8, 9)

    @pytest.mark.parametrize("limit", [1, 2, 3, 4])
    @pytest.mark.parametrize("committed", [None, 5, 6, 8, 9])
    def test_limit_holds_if_the_position_moved(self, committed: int | None, limit: int) -> None:
        salesforce = scripted(9, [1] * (9 - (committed or 0)) + [CAUGHT_UP], committed=committed)
        stream = responses(source_on(salesforce), rid(5), limit)
        got: list[bytes] = []
        for response in stream:
            got += [] if response is None else response.replay_ids
            if len(got) >= limit:
                break
        assert got == ids(*range(6, 6 + limit))

    def test_equal_replay_id_of_another_topic_does_not_match(self) -> None:
        salesforce = scripted(9, [4], committed=5, schema_id="of another topic")
        source = source_on(salesforce)
        assert events_of(responses(source, rid(5))) == ids(6, 7, 8, 9)
        assert source.differs

    def test_events_of_another_topic_are_refused(self) -> None:
        salesforce = scripted(9, [4], committed=5, schema_id='{"type": "record", "name": "Invoice__e", "fields": []}')
        for after in (COMMITTED, rid(5)):
            salesforce.scripts.append([4])
            source = source_on(salesforce)
            with pytest.raises(ConfigurationError, match=r"Orders delivers events of Invoice__e, .*/event/Order__e"):
                events_of(responses(source, after))
            assert salesforce.streams[-1].closed

    @pytest.mark.parametrize("ahead", [False, True])
    def test_confirmed_end_is_committed_only_if_no_event_precedes_it(self, ahead: bool) -> None:
        """The subscription was recreated with LATEST and has delivered no event."""
        salesforce = scripted(9, [CAUGHT_UP], [CAUGHT_UP], committed=9)
        source = source_on(salesforce)
        assert events_of(responses(source, rid(5))) == ids(6, 7, 8, 9)
        salesforce.events = 10 if ahead else 9
        salesforce.committed = 10 if ahead else 9
        assert source.commit(rid(9)) == (not ahead)
        assert salesforce.log == ([] if ahead else [("committed", rid(9.5))])

    @pytest.mark.parametrize("delivers", [False, True])
    def test_confirmed_end_before_the_stored_events_is_not_committed(self, delivers: bool) -> None:
        """The subscription was recreated with EARLIEST; its stream still seeks events that are stored."""
        salesforce = scripted(9, [1], [SEEKS, 9] if delivers else [SEEKS])
        source = source_on(salesforce)
        assert events_of(responses(source, rid(5))) == ids(6, 7, 8, 9)
        assert source.differs
        assert source.commit(rid(9)) == delivers
        assert salesforce.committed == (9 if delivers else None)

    def test_position_before_the_start_of_a_quiet_drain_is_not_committed(self) -> None:
        """The managed stream still seeks the landed events before the start."""
        salesforce = scripted(5, [SEEKS], committed=2)
        source = source_on(salesforce, is_landed=landed(3, 4, 5))
        assert events_of(responses(source, rid(5))) == []
        assert not source.differs
        assert not source.commit(rid(5.5))
        assert salesforce.committed == 2

    def test_position_is_committed_after_its_event_is_redelivered(self) -> None:
        salesforce = scripted(9, [1], [2, 2, 2, 2, 1])
        source = source_on(salesforce)
        assert events_of(responses(source, rid(5))) == ids(6, 7, 8, 9)
        assert source.differs
        assert source.commit(rid(9))
        assert salesforce.log == [("committed", rid(9))]

    def test_commit_of_an_end_between_two_events_commits_the_event_before_it(self) -> None:
        salesforce = scripted(9, [1], [2, 2, 2, 2, 2])
        source = source_on(salesforce)
        *_, confirmed = responses(source, rid(9))
        assert confirmed is not None
        salesforce.events = 10
        assert source.differs
        assert source.commit(confirmed.latest_replay_id)
        assert salesforce.log == [("committed", rid(9))]


@pytest.mark.parametrize(
    ("topic", "event", "expected"),
    [
        ("/event/Order__e", "Order__e", True),
        ("/event/Order__e", "order__e", True),
        ("/event/acme__Order__e", "Order__e", True),
        ("/event/Order__e", "Invoice__e", False),
        ("/event/Order__e", "AccountChangeEvent", False),
        ("/data/AccountChangeEvent", "AccountChangeEvent", True),
        ("/data/AccountChangeEvent", "ContactChangeEvent", False),
        ("/data/Asset__ChangeEvent", "Asset__ChangeEvent", True),
        ("/data/ChangeEvents", "ContactChangeEvent", True),
        ("/data/ChangeEvents", "Order__e", False),
        ("/data/Sales__chn", "ContactChangeEvent", True),
        ("/data/Sales__chn", "Order__e", False),
        ("/event/Orders__chn", "Order__e", True),
        ("/event/Orders__chn", "LoginEventStream", True),
        ("/event/Orders__chn", "AccountChangeEvent", False),
    ],
)
def test_event_types_that_a_topic_can_deliver(topic: str, event: str, expected: bool) -> None:
    assert may_deliver(topic, event) == expected


class TestTopicOfSchemas:
    def test_unavailable_schema_is_ignored_only_if_the_topic_is_proven(self) -> None:
        def schema(_: str) -> str:
            raise ServiceUnavailableError("not now")

        TopicCheck("Orders", schema, is_proven=True).check(TOPIC, ["1"])
        with pytest.raises(ServiceUnavailableError, match="Orders: not now"):
            TopicCheck("Orders", schema, is_proven=False).check(TOPIC, ["1"])

    def test_hidden_schema_is_not_an_error(self) -> None:
        def schema(_: str) -> str:
            raise AccessDeniedError("hidden")

        TopicCheck("Orders", schema, is_proven=False).check(TOPIC, ["1", ""])


class TestCommittedPositions:
    def test_confirmed_position_is_committed_before_it_is_yielded(self) -> None:
        salesforce = scripted(2, [CAUGHT_UP, SILENCE], default_replay="LATEST")
        source = source_on(salesforce)
        first, silence = responses(source, COMMITTED)
        assert first is not None
        assert (first.latest_replay_id, salesforce.committed, silence) == (rid(2.5), 2.5, None)

    def test_quiet_subscription_from_latest_misses_no_event_after_a_fault(self) -> None:
        salesforce = scripted(2, [CAUGHT_UP, fault()], [2], default_replay="LATEST")
        source = source_on(salesforce)
        events_of(responses(source, COMMITTED), ServiceUnavailableError)
        salesforce.events = 4
        assert events_of(responses(source, rid(2.5))) == ids(3, 4)

    def test_confirmed_position_after_yielded_events_is_not_committed(self) -> None:
        salesforce = scripted(2, [2, CAUGHT_UP])
        events_of(responses(source_on(salesforce), COMMITTED))
        assert salesforce.log == []

    def test_sensor_commits_nothing(self) -> None:
        salesforce = scripted(3, [2, CAUGHT_UP], committed=1)
        source = source_on(salesforce, commits=False, is_landed=landed(2))
        assert events_of(responses(source, rid(2))) == ids(3)
        assert salesforce.log == []
        assert salesforce.streams[0].recommit is None

    def test_unconfirmed_position_is_not_committed(self) -> None:
        salesforce = scripted(2, [OWES_NOTHING])
        assert events_of(responses(source_on(salesforce), COMMITTED)) == []
        assert salesforce.log == []

    def test_a_refused_commit_ends_the_subscription(self) -> None:
        salesforce = scripted(0, [CAUGHT_UP], commit_faults=deque([CommitError("refused")]))
        assert events_of(responses(source_on(salesforce), COMMITTED), CommitError) == []
        assert salesforce.streams[0].closed

    @pytest.mark.parametrize(("after", "recommit"), [(COMMITTED, None), (rid(3), rid(3))])
    def test_keepalive_repeats_only_stored_positions(self, after: bytes | StartFrom, recommit: bytes | None) -> None:
        salesforce = scripted(5, [1, fault()], [2])
        source = source_on(salesforce, is_landed=landed())
        salesforce.committed = 3
        events_of(responses(source, after), ServiceUnavailableError)
        events_of(responses(source, rid(4)))
        assert [stream.recommit for stream in salesforce.streams] == [recommit, recommit], "stored positions only"


class TestCommit:
    def test_commit_on_the_stream_that_delivered_the_event(self) -> None:
        salesforce = scripted(5, [2, 2])
        source = source_on(salesforce)
        stream = responses(source, COMMITTED)
        events_of(itertools.islice(stream, 2))
        stream.close()  # type: ignore[attr-defined]
        assert source.stream is salesforce.streams[0]
        assert not salesforce.streams[0].fetching
        source.commit(rid(3))
        assert (salesforce.committed, len(salesforce.streams)) == (3, 1)
        source.commit(rid(3))
        assert salesforce.log == [("committed", rid(3))], "a repeated commit sends nothing"
        salesforce.scripts.append([2])
        assert events_of(responses(source, rid(3))) == ids(4, 5), "the source does not expect committed events again"
        source.close()
        assert source.stream is None
        assert salesforce.streams[-1].closed

    def test_commit_on_a_new_stream_after_redelivery(self) -> None:
        salesforce = scripted(9, [3, fault()], [1, 1, 1, 6])
        source = source_on(salesforce)
        events_of(responses(source, COMMITTED), ServiceUnavailableError)
        source.commit(rid(3))
        assert salesforce.committed == 3
        assert salesforce.streams[-1].position == 3, "the source read no event after the committed one"

    def test_commit_of_a_confirmed_position_on_a_new_stream(self) -> None:
        salesforce = scripted(2, [2, CAUGHT_UP, fault()], [2])
        source = source_on(salesforce)
        events_of(responses(source, COMMITTED), ServiceUnavailableError)
        source.commit(rid(2.5))
        assert salesforce.committed == 2, "the last event before the confirmed position"

    def test_commit_is_not_repeated_if_salesforce_has_it_already(self) -> None:
        """Salesforce carried out the commit, but its acknowledgement was lost."""
        salesforce = scripted(5, [3], [2], commit_faults=deque([fault()]))
        source = source_on(salesforce)
        assert events_of(responses(source, COMMITTED)) == ids(1, 2, 3)
        assert source.commit(rid(3))
        assert salesforce.log == [("committed", rid(3))]
        assert len(salesforce.streams) == 2

    @pytest.mark.parametrize("is_landed", [None, landed(1, 2, 3)])
    @pytest.mark.parametrize(("already", "expected"), [(0, 3), (3, 3), (4, 4)])
    def test_commit_by_a_source_that_has_read_nothing(
        self, is_landed: Callable[[bytes], bool] | None, already: int, expected: int
    ) -> None:
        """An earlier run was killed after it wrote the manifest and before it committed."""
        salesforce = scripted(5, [1] * (5 - already) + [CAUGHT_UP], committed=already)
        source = source_on(salesforce, is_landed=is_landed)
        source.commit(rid(3))
        assert salesforce.committed == expected

    def test_commit_succeeds_if_no_more_events_arrive(self) -> None:
        salesforce = scripted(3, [3], [CAUGHT_UP], commit_faults=deque([fault()]))
        source = source_on(salesforce)
        events_of(responses(source, COMMITTED))
        source.commit(rid(3))
        assert salesforce.committed == 3

    def test_commit_is_not_reported_while_salesforce_seeks_the_landed_events(self) -> None:
        """An empty response of a stream that still seeks does not show that Salesforce is past the landed events."""
        salesforce = scripted(5, [SEEKS, 5], [2, SEEKS, 3], committed=0)
        assert not source_on(salesforce, is_landed=landed(1, 2, 3)).commit(rid(3))
        assert salesforce.committed == 0
        salesforce.streams[-1].close()
        assert not source_on(salesforce, is_landed=landed(1, 2, 3)).commit(rid(3))
        assert salesforce.committed == 2

    def test_commit_is_not_reported_if_replay_ids_have_an_unknown_form(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Their order is unknown, so a named position does not show that Salesforce is past the landed events."""
        monkeypatch.setattr("airflow_provider_sfstream.salesforce.replay_ids.KNOWN_LENGTHS", ())
        salesforce = scripted(5, [2, SEEKS, 3], committed=0)
        assert not source_on(salesforce, is_landed=landed(1, 2, 3)).commit(rid(3))
        assert salesforce.committed == 2

    @pytest.mark.parametrize("reads", [False, True])
    def test_commit_is_not_reported_if_the_position_moved_backward(self, reads: bool) -> None:
        """The next stream begins with another event, but with one before the replay ID to commit."""
        salesforce = scripted(6, *([[2, fault()]] if reads else []), [2], committed=4)
        source = source_on(salesforce, is_landed=landed() if reads else landed(5, 6))
        if reads:
            assert events_of(responses(source, COMMITTED), ServiceUnavailableError) == ids(5, 6)
        salesforce.committed = 0
        assert not source.commit(rid(6))
        assert salesforce.log == []

    def test_lost_acknowledgement_of_redelivered_events_is_inferred_from_the_next_stream(self) -> None:
        salesforce = scripted(5, [3, fault()], [3], [2], commit_faults=deque([fault()]))
        source = source_on(salesforce)
        events_of(responses(source, COMMITTED), ServiceUnavailableError)
        assert source.commit(rid(3))
        assert salesforce.log == [("committed", rid(3))]

    def test_commit_of_an_earlier_run_is_not_reported_if_salesforce_has_no_position(self) -> None:
        """The run was killed before its commit, and the subscription recreated with LATEST."""
        salesforce = scripted(3, [CAUGHT_UP], default_replay="LATEST")
        assert not source_on(salesforce, is_landed=landed(1, 2, 3)).commit(rid(3))
        assert salesforce.committed is None

    def test_repeated_commit_is_not_reported_if_the_position_moved_since(self) -> None:
        salesforce = scripted(3, [3], [2, SILENCE], [2, 1])
        source = source_on(salesforce)
        events_of(responses(source, COMMITTED))
        assert source.commit(rid(3))
        salesforce.committed = 0
        assert events_of(responses(source, rid(3))) == []
        assert source.differs
        assert source.commit(rid(3))
        assert salesforce.committed == 3

    @pytest.mark.parametrize("script", [[SEEKS, 3], [1, SEEKS, 2]])
    def test_commit_reads_on_while_salesforce_seeks_the_yielded_events(self, script: list[Step]) -> None:
        salesforce = scripted(3, [3, fault()], script)
        source = source_on(salesforce)
        events_of(responses(source, COMMITTED), ServiceUnavailableError)
        assert source.commit(rid(3))
        assert salesforce.committed == 3

    def test_commit_is_not_reported_if_its_event_is_delivered_first(self) -> None:
        """Another client committed the yielded events before it."""
        salesforce = scripted(3, [3, fault()], [1])
        source = source_on(salesforce)
        events_of(responses(source, COMMITTED), ServiceUnavailableError)
        salesforce.committed = 2
        assert not source.commit(rid(3))
        assert salesforce.log == []

    def test_lost_commit_is_not_inferred_from_a_later_event_of_the_response(self) -> None:
        """The commit was lost, and another client committed an event before it."""

        class MovingClock(Clock):
            def sleep(self, seconds: float) -> None:
                salesforce.committed, salesforce.events = 1, 4
                super().sleep(seconds)

        salesforce = scripted(3, [3, CAUGHT_UP], [3], commit_faults=deque([fault()]))
        source = source_on(salesforce, MovingClock())
        assert events_of(responses(source, COMMITTED)) == ids(1, 2, 3)
        assert not source.commit(rid(3.5))

    def test_position_of_a_quiet_topic_is_committed(self) -> None:
        salesforce = scripted(5, [CAUGHT_UP], committed=5)
        source = source_on(salesforce)
        assert events_of(responses(source, rid(5))) == []
        assert source.commit(rid(5.6)), "no event lies between it and the named position"
        assert salesforce.committed == 5.5

    def test_events_of_the_topic_are_committed_after_the_managed_stream_broke(self) -> None:
        """The ordinary subscription delivered all events, and agreed with the managed stream at event 8."""
        salesforce = scripted(9, [2, fault()], [2], committed=7)
        source = source_on(salesforce)
        assert events_of(responses(source, rid(5)), ServiceUnavailableError) == ids(6, 7, 8, 9)
        assert source.commit(rid(9))
        assert salesforce.committed == 9

    def test_commit_is_refused_if_the_position_moved(self) -> None:
        salesforce = scripted(3, [3, fault()], [1, CAUGHT_UP])
        source = source_on(salesforce)
        events_of(responses(source, COMMITTED), ServiceUnavailableError)
        salesforce.events = 1
        with pytest.raises(SubscriptionMovedError):
            source.commit(rid(3))
        assert salesforce.committed is None

    def test_commit_is_retried_after_faults(self) -> None:
        clock = Clock()
        salesforce = scripted(
            3,
            [3, fault()],
            [SessionExpiredError("expired")],
            [1, fault()],
            [3],
            [3],
            commit_faults=deque([CommitFailedError("it failed")]),
        )
        source = source_on(salesforce, clock)
        events_of(responses(source, COMMITTED), ServiceUnavailableError)
        source.commit(rid(3))
        assert (salesforce.committed, salesforce.sessions_renewed) == (3, 1)
        assert len(clock.pauses) == 3

    @pytest.mark.parametrize(
        "error", [CommitError("refused"), SubscriptionStoppedError("stopped")], ids=["refused", "stopped"]
    )
    def test_commit_error_that_is_not_retriable_is_raised(self, error: SalesforceStreamError) -> None:
        salesforce = scripted(3, [3], commit_faults=deque([error]))
        source = source_on(salesforce)
        events_of(responses(source, COMMITTED))
        with pytest.raises(type(error)):
            source.commit(rid(3))
        assert salesforce.streams[0].closed

    def test_a_refused_session_is_renewed_once(self) -> None:
        salesforce = scripted(3, [3, fault()], *([SessionExpiredError("expired")] for _ in range(9)))
        source = source_on(salesforce)
        events_of(responses(source, COMMITTED), ServiceUnavailableError)
        with pytest.raises(SessionExpiredError):
            source.commit(rid(3))
        assert salesforce.sessions_renewed == 1

    def test_time_of_a_commit_is_bounded(self) -> None:
        clock = Clock()
        salesforce = scripted(3, [3, fault()], *([fault()] for _ in range(99)))
        source = source_on(salesforce, clock)
        events_of(responses(source, COMMITTED), ServiceUnavailableError)
        with pytest.raises(ServiceUnavailableError):
            source.commit(rid(3), timeout=20)
        assert 15 < clock.now <= 20


class TestBusySubscription:
    def test_busy_subscription_is_retried_with_growing_pauses(self) -> None:
        clock = Clock()
        busy = SubscriptionBusyError("another stream holds it")
        salesforce = scripted(1, *([busy] for _ in range(6)), [1])
        assert events_of(responses(source_on(salesforce, clock), COMMITTED)) == ids(1)
        assert clock.pauses == [0.5, 1, 2, 4, 5, 5]

    def test_busy_subscription_is_an_error_after_busy_timeout(self) -> None:
        clock = Clock()
        salesforce = scripted(1, *([SubscriptionBusyError("held")] for _ in range(50)))
        source = source_on(salesforce, clock, busy_timeout=30)
        with pytest.raises(SubscriptionBusyError, match=r"Orders.*15 minutes.*busy_timeout.*No event is lost"):
            list(responses(source, COMMITTED))
        assert 20 < clock.now <= 30
        count = len(clock.pauses)
        with pytest.raises(SubscriptionBusyError):
            list(responses(source, COMMITTED))
        assert len(clock.pauses) == count, "the timeout has passed already"

    def test_busy_timeout_restarts_after_the_subscription_was_open(self) -> None:
        clock = Clock()
        wait = SlotWait("Orders", 10, clock, lambda: 0.0)
        error = SubscriptionBusyError("held")
        for _ in range(2):
            assert wait.pause_after(error) == 0.25
            clock.now += 9
            wait.taken()
        wait.pause_after(error)
        clock.now += 10
        with pytest.raises(SubscriptionBusyError):
            wait.pause_after(error)


class TestArguments:
    @pytest.mark.parametrize("after", [StartFrom.EARLIEST, StartFrom.LATEST])
    def test_start_from_earliest_or_latest_is_refused(self, after: StartFrom) -> None:
        salesforce = scripted(1)
        with pytest.raises(ConfigurationError, match="defaultReplay"):
            responses(source_on(salesforce), after)
        assert salesforce.streams == []

    def test_invalid_topic_limit_and_timeout_are_refused(self) -> None:
        source = source_on(scripted(1))
        with pytest.raises(InvalidTopicError):
            source.subscribe("/topic/Push", COMMITTED, limit=None, idle_timeout=1)
        with pytest.raises(ConfigurationError, match="limit=0"):
            source.subscribe(TOPIC, COMMITTED, limit=0, idle_timeout=1)
        with pytest.raises(ConfigurationError, match="idle_timeout=0"):
            source.subscribe(TOPIC, COMMITTED, limit=None, idle_timeout=0)

    def test_managed_source_has_the_attributes_of_a_source(self) -> None:
        salesforce = scripted(1)
        source = source_on(salesforce)
        assert (source.payload_encoding, source.confirms_positions) == ("avro", True)
        assert source.schema("schema") == "schema"
        source.renew_session()
        assert salesforce.sessions_renewed == 1
