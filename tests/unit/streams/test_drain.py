"""Drains of a scripted source: the sink receives each event once and in order, also after faults."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_sfstream.exceptions import (
    AccessDeniedError,
    ConfigurationError,
    ContactError,
    LandingError,
    QuotaExceededError,
    ReplayIdLostError,
    SchemaError,
    ServiceUnavailableError,
    SessionExpiredError,
    ThrottledError,
)
from airflow_provider_sfstream.streams.drain.drain import Drain
from airflow_provider_sfstream.streams.drain.limits import DrainLimits, StopReason
from airflow_provider_sfstream.streams.drain.result import DrainResult
from airflow_provider_sfstream.streams.source import StartFrom
from tests.support.scripted_source import (
    BEGAN,
    Deliver,
    End,
    Event,
    Keepalive,
    ListSink,
    ScriptedSource,
    Silence,
    avro_payload,
    events,
    replay_id,
)

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def run(source: ScriptedSource, after=StartFrom.EARLIEST, *, sink=None, limits=None, **arguments) -> DrainResult:
    times = {event.payload: event.time for event in source.stream}
    return Drain(
        source,
        sink if sink is not None else ListSink(),
        "/event/Order__e",
        after,
        limits or DrainLimits(),
        **{
            "event_times": lambda ids, payloads: [times[payload] for payload in payloads],
            "clock": source.time.clock,
            "sleep": source.time.sleep,
            "now": lambda: NOW,
            "random": lambda: 0.5,
            **arguments,
        },
    ).run()


def ids(stream: list[Event]) -> list[bytes]:
    return [event.replay_id for event in stream]


# -- completeness and order ----------------------------------------------------------------------------------------

faults = st.sampled_from(
    [
        ServiceUnavailableError("reset"),
        ThrottledError("slower"),
        End(),
        Silence(),
        Keepalive(pending=0),
    ]
)
scripts = st.lists(st.builds(Deliver, st.integers(1, 100), st.booleans()) | faults, max_size=30)


@given(
    count=st.integers(0, 400),
    script=scripts,
    max_events=st.none() | st.integers(1, 450),
    max_bytes=st.none() | st.integers(1, 5000),
    start=st.integers(0, 20),
)
def test_sink_receives_each_event_once_and_in_order(count, script, max_events, max_bytes, start):
    before = events(start)
    stream = before + events(count, first=start + 1)
    source = ScriptedSource(stream, list(script))
    sink = ListSink()
    limits = DrainLimits(max_events=max_events, max_bytes=max_bytes)
    begin = before[-1].replay_id if before else StartFrom.EARLIEST

    result = run(source, begin, sink=sink, limits=limits, max_failures=100)

    appended = sink.replay_ids
    assert appended == ids(stream[start : start + len(appended)])
    assert result.event_count == len(appended)
    assert result.payload_bytes == sink.payload_bytes
    assert source.open_subscriptions == 0
    assert result.reconnects == len(source.starts) - 1
    if max_events is not None:
        assert len(appended) <= max_events
        assert all(limit is not None and limit >= 1 for limit in source.limits)
    if max_bytes is not None:
        assert sink.payload_bytes <= max_bytes or len(appended) == 1
    if result.stop_reason is StopReason.MAX_EVENTS:
        assert len(appended) == max_events
    if result.stop_reason is StopReason.MAX_BYTES and len(appended) < count:
        assert sink.payload_bytes + 10 > max_bytes
    if result.through is not None:
        newest = stream[-1].replay_id if stream else replay_id(0)
        assert result.through == (appended[-1] if appended else newest)
    assert result.stop_reason is not StopReason.CAUGHT_UP
    assert (result.confirmed_at, source.references) == (None, 0), "the drain opened no second subscription"


@given(sizes=st.lists(st.integers(1, 50), max_size=60), room=st.integers(1, 400))
def test_max_bytes_cuts_at_the_last_event_that_fits(sizes, room):
    stream = [Event(replay_id(number + 1), bytes(size), 0) for number, size in enumerate(sizes)]
    sink = ListSink()
    result = run(ScriptedSource(stream), sink=sink, limits=DrainLimits(max_bytes=room))
    fitting, total = 0, 0
    for size in sizes:
        if total + size > room and fitting:
            break
        fitting, total = fitting + 1, total + size
        if total >= room:
            break
    assert sink.replay_ids == ids(stream[:fitting])
    assert (result.stop_reason is StopReason.MAX_BYTES) == (fitting < len(sizes) or total >= room)


# -- stop reasons --------------------------------------------------------------------------------------------------


def test_an_empty_response_moves_the_position_and_does_not_confirm_the_end():
    source = ScriptedSource(events(3), [Deliver(3), Keepalive(pending=7, at=b"position\0"), Silence(), Silence(1)])
    result = run(source)
    assert (result.stop_reason, result.through, result.event_count) == (StopReason.IDLE, b"position\0", 3)
    assert (result.confirmed_at, source.references) == (None, 0)


def test_empty_response_without_pending_requests_does_not_move_the_position():
    source = ScriptedSource(events(3), [Deliver(3), Keepalive(pending=0, at=b"not this"), Silence(), Silence()])
    result = run(source)
    assert (result.stop_reason, result.through) == (StopReason.IDLE, events(3)[-1].replay_id)
    assert result.confirmed_at is None


def test_silence_followed_by_contact_is_idle_and_does_not_move_the_position():
    source = ScriptedSource(events(3), [Silence(), Silence(1)])
    result = run(source, events(3)[1].replay_id)
    assert (result.stop_reason, result.through, result.event_count) == (StopReason.IDLE, None, 0)
    answered = BEGAN + timedelta(seconds=10 + 1)  # the upper bound: the Date header is rounded down
    assert (result.confirmed_at, result.contact_at, source.proofs) == (None, answered, 1)


SOONER = DrainLimits(ends_sooner=True)


@pytest.mark.parametrize(
    ("first", "age", "seconds"),
    [
        pytest.param(0, 50, 0.5, id="recent"),
        pytest.param(1, 50, 3, id="recent, slow"),
        pytest.param(4, 50, 10, id="recent, very slow"),
        pytest.param(0, 70, 10, id="old"),
        pytest.param(0, -70, 10, id="clock of the publisher ahead"),
        pytest.param(0, None, 10, id="no time"),
    ],
)
def test_silence_after_a_recent_event_ends_a_drain_sooner(first: float, age: float | None, seconds: float) -> None:
    time = None if age is None else round((BEGAN.timestamp() + first - age) * 1_000)
    source = ScriptedSource([Event(replay_id(1), b"one", time)], [Silence(first), Deliver(1), Silence(20)])
    result = run(source, limits=SOONER)
    assert (result.stop_reason, result.event_count, result.confirmed_at) == (StopReason.IDLE, 1, None)
    assert seconds <= source.time.seconds - first <= seconds + 0.5
    assert source.proofs == 1


def test_silence_before_the_first_event_does_not_end_a_drain_sooner() -> None:
    source = ScriptedSource(events(1), [Silence(9.5), Deliver(1)])
    assert run(source, limits=SOONER).event_count == 1
    source = ScriptedSource(events(0), [Silence(20)])
    run(source, limits=SOONER)
    assert source.time.seconds >= 10


def test_a_drain_that_looks_for_the_end_does_not_end_sooner() -> None:
    stream = [Event(replay_id(1), b"one", round(BEGAN.timestamp() * 1_000))]
    source = ScriptedSource(stream, [Deliver(1), Silence(20)])
    run(source, replay_id(1), limits=DrainLimits(ends_sooner=True, to_the_end=True))
    assert source.time.seconds >= 10


@given(delays=st.lists(st.floats(0, 9), min_size=1, max_size=20), spacing=st.integers(1, 40))
def test_drains_that_end_sooner_leave_only_recent_events(delays: list[float], spacing: int) -> None:
    times = [round(BEGAN.timestamp() - spacing * number) * 1_000 for number in range(len(delays), 0, -1)]
    stream = [Event(replay_id(number), bytes([number]), time) for number, time in enumerate(times, 1)]
    script = [step for delay in delays for step in (Silence(delay), Deliver(1))]
    source, sink = ScriptedSource(stream, [*script, Silence(20)]), ListSink()
    run(source, sink=sink, limits=SOONER)
    left = [time for time in times[len(sink.replay_ids) :] if time < (BEGAN.timestamp() - 61) * 1_000]
    assert left == []


def test_drain_confirms_the_end_for_the_opening_time_of_the_second_subscription():
    source = ScriptedSource(events(3), [Deliver(1), ServiceUnavailableError("cut"), Silence(5), Deliver(2)])
    result = run(source, limits=CONFIRMING)
    assert (result.stop_reason, result.event_count, result.reconnects) == (StopReason.CAUGHT_UP, 3, 1)
    assert result.confirmed_at == BEGAN
    assert result.contact_at == BEGAN + timedelta(seconds=1 + 5 + sum(source.time.sleeps))


def test_received_at_is_the_time_of_salesforces_clock():
    source, sink = ScriptedSource(events(3), [Silence(4), Deliver(3)]), ListSink()
    run(source, sink=sink)
    assert [batch.received_at for batch in sink.batches] == [int((BEGAN.timestamp() + 5) * 1e9)]


def test_drain_reports_no_server_times_if_salesforces_time_was_not_measured():
    source, sink = ScriptedSource(events(3), measures_time=False), ListSink()
    result = run(source, StartFrom.EARLIEST, sink=sink, limits=CONFIRMING)
    assert (result.stop_reason, result.event_count) == (StopReason.CAUGHT_UP, 3)
    assert (result.confirmed_at, result.contact_at, result.began_at, result.pinned_at) == (None, None, None, None)
    assert {batch.received_at for batch in sink.batches} == {1_700_000_000_000_000_000}, (
        "the time of the worker's clock"
    )


def test_events_after_the_proof_of_contact_are_stored():
    source = ScriptedSource(events(3), [Silence(), Deliver(3), Silence(), Silence(1)])
    assert run(source).event_count == 3


def test_drain_raises_contact_error_after_silence_without_contact():
    source = ScriptedSource(events(3), [Silence()] * 30, contact_faults=[ContactError("TCP port 443")] * 30)
    with pytest.raises(ContactError, match="TCP port 443"):
        run(source, max_failures=100)
    assert 120 <= source.time.seconds < 150, "connecting has its own timeout"


def test_connect_timeout_excludes_the_measurement_of_salesforces_time():
    class Slow(ScriptedSource):
        def server_time(self, clock):
            self.time.seconds += 121
            return super().server_time(clock)

    source = Slow(events(3), [ContactError("none")])
    result = run(source)
    assert (result.event_count, result.reconnects) == (3, 1)
    assert result.began_at == BEGAN, "the drain requested no event before this time"


def test_no_event_is_lost_if_contact_is_proven_late():
    source = ScriptedSource(events(3), [Silence(), Silence(), Deliver(3)], contact_faults=[ContactError("none")] * 2)
    result = run(source)
    assert (result.event_count, result.stop_reason, result.reconnects) == (3, StopReason.IDLE, 2)


def test_unavailable_service_is_retried_beyond_the_connect_timeout():
    source = ScriptedSource(events(3), [ServiceUnavailableError("down")] * 14)
    assert run(source, max_failures=100).event_count == 3
    assert source.time.seconds > 150, "the connect timeout does not apply to a server that responds with an error"


def test_max_seconds_without_contact_raises_contact_error():
    source = ScriptedSource(events(3), [Silence()] * 30, contact_faults=[ContactError("none")] * 30)
    with pytest.raises(ContactError):
        run(source, limits=DrainLimits(max_seconds=5))


def test_silence_is_measured_across_broken_subscriptions():
    cut = [Silence(60), ServiceUnavailableError("cut by a middlebox")]
    source = ScriptedSource(events(3), [*cut * 20, Silence(1)], reference=())
    result = run(source, source.stream[-1].replay_id, limits=CONFIRMING)
    assert (result.stop_reason, result.reconnects) == (StopReason.IDLE, 5)
    assert 300 < source.time.seconds < 330


def test_contact_is_checked_every_half_minute_of_a_silence():
    source = ScriptedSource(events(3), [Silence(301)], reference=())
    run(source, source.stream[-1].replay_id, limits=CONFIRMING)
    assert source.proofs == 10


def test_max_seconds_ends_the_drain_of_a_busy_stream_after_a_batch():
    source = ScriptedSource(events(1000))
    ticks = iter(range(1000))
    sink = ListSink()
    result = run(source, sink=sink, limits=DrainLimits(max_seconds=5), clock=lambda: float(next(ticks)))
    assert result.stop_reason is StopReason.MAX_SECONDS
    assert 0 < result.event_count < 1000
    assert result.through == sink.replay_ids[-1]


def test_max_seconds_ends_the_drain_of_a_silent_stream():
    source = ScriptedSource(events(1), [Deliver(1), *[Silence()] * 10])
    result = run(source, limits=DrainLimits(max_seconds=7, idle_timeout=50))
    assert result.stop_reason is StopReason.MAX_SECONDS
    assert source.time.seconds <= 8


def test_idle_timeout_starts_again_with_each_event():
    source = ScriptedSource(events(3), [step for _ in range(3) for step in (Deliver(1), Silence(4))])
    assert run(source, limits=DrainLimits(max_seconds=60, idle_timeout=5)).event_count == 3


CONFIRMING = DrainLimits(idle_timeout=10, confirm_timeout=300)


def test_end_of_a_quiet_stream_is_confirmed_after_the_idle_timeout():
    newer = replay_id(12)
    source = ScriptedSource(
        events(3), [Silence()] * 20 + [Keepalive(at=newer), Silence()], reference=[*[None] * 100, replay_id(11)]
    )
    result = run(source, source.stream[-1].replay_id, limits=CONFIRMING)
    assert (result.stop_reason, result.event_count, result.through) == (StopReason.CAUGHT_UP, 0, newer)
    assert (result.confirmed_at, source.open_subscriptions) == (BEGAN, 0)


def test_drain_of_a_quiet_stream_is_idle_if_the_second_subscription_is_silent():
    source = ScriptedSource(events(3), [Silence(50), Keepalive()] * 20, reference=())
    result = run(source, source.stream[-1].replay_id, limits=CONFIRMING)
    assert (result.stop_reason, result.confirmed_at) == (StopReason.IDLE, None)
    assert 300 <= source.time.seconds <= 302


def test_drain_of_a_quiet_stream_without_confirmation_ends_at_confirm_timeout():
    source = ScriptedSource(events(3), [Silence()] * 100, reference=[replay_id(11)])
    result = run(source, source.stream[-1].replay_id, limits=CONFIRMING)
    assert (result.stop_reason, result.through) == (StopReason.IDLE, None)
    assert 300 <= source.time.seconds <= 302


def test_events_after_an_empty_response_are_read_before_the_end_is_confirmed():
    """Salesforce may send empty responses with newer replay IDs while it seeks through a backlog."""
    seek = [Keepalive(at=replay_id(number)) for number in (4, 5)]
    source, sink = ScriptedSource(events(3), [*seek, Silence(20), Deliver(3)], reference=[replay_id(9)]), ListSink()
    result = run(source, sink=sink, limits=CONFIRMING)
    assert sink.replay_ids == ids(source.stream)
    assert (result.stop_reason, result.confirmed_at) == (StopReason.CAUGHT_UP, BEGAN)


@pytest.mark.parametrize(
    ("minutes", "grace", "kept"), [(5, 0, 5), (0, 0, 0), (5, 2, 7), (20, 0, 10)], ids=["cut", "at once", "grace", "all"]
)
def test_until_stores_the_events_before_it(minutes, grace, kept):
    base = int(NOW.timestamp() * 1000)
    stream = [Event(replay_id(n + 1), bytes([n]), base + n * 60_000) for n in range(10)]
    sink = ListSink()
    limits = DrainLimits(until=NOW + timedelta(minutes=minutes), grace=timedelta(minutes=grace))
    result = run(ScriptedSource(stream), sink=sink, limits=limits)
    assert sink.replay_ids == ids(stream[:kept])
    assert result.stop_reason is (StopReason.UNTIL if kept < 10 else StopReason.IDLE)
    if kept < 10:
        assert result.through == (stream[kept - 1].replay_id if kept else None)


def test_stop_reason_if_until_and_another_limit_meet_at_one_event():
    base = int(NOW.timestamp() * 1000)
    stream = [Event(replay_id(n + 1), bytes([n]), base + n * 60_000) for n in range(10)]
    limits = DrainLimits(until=NOW + timedelta(minutes=5), max_events=5)
    source = ScriptedSource(stream)
    assert run(source, limits=limits).stop_reason is StopReason.MAX_EVENTS  # the drain never requested the sixth event
    assert source.limits == [5]
    limits = DrainLimits(until=NOW + timedelta(minutes=5), max_bytes=5)
    assert run(ScriptedSource(stream), limits=limits).stop_reason is StopReason.UNTIL


def test_until_reads_event_times_from_the_payloads():
    base = int(NOW.timestamp() * 1000)
    stream = [Event(replay_id(n + 1), avro_payload(base + n * 1000)) for n in range(10)]
    sink = ListSink()
    run(ScriptedSource(stream), sink=sink, limits=DrainLimits(until=NOW + timedelta(seconds=4)), event_times=None)
    assert sink.replay_ids == ids(stream[:4])


# -- faults --------------------------------------------------------------------------------------------------------


def test_retries_without_progress_are_bounded_and_have_growing_pauses():
    source = ScriptedSource(events(3), [ServiceUnavailableError("down")] * 9)
    with pytest.raises(ServiceUnavailableError, match=r"^/event/Order__e: down, the last of 9 consecutive faults"):
        run(source)
    assert len(source.starts) == 9
    assert source.time.sleeps == [pytest.approx(0.75 * min(30, 0.25 * 2**n)) for n in range(8)]


@given(st.floats(0, 1, exclude_max=True))
@settings(max_examples=50)
def test_pauses_are_jittered_between_half_and_full_length(random):
    source = ScriptedSource(events(3), [ServiceUnavailableError("down")] * 8)
    run(source, random=lambda: random)
    for number, pause in enumerate(source.time.sleeps):
        whole = min(30, 0.25 * 2**number)
        assert whole / 2 <= pause <= whole


def test_progress_resets_the_number_of_faults():
    fault = ServiceUnavailableError("down")
    source = ScriptedSource(events(30), ([fault] * 8 + [Deliver(1)]) * 4)
    assert run(source).event_count == 30


def test_pause_after_throttling_is_longer():
    source = ScriptedSource(events(3), [ThrottledError("slower")])
    run(source)
    assert source.time.sleeps == [pytest.approx(3.75)]


def test_a_refused_token_is_renewed_once_and_again_after_progress():
    refused = SessionExpiredError("401")
    source = ScriptedSource(events(30), [refused, Deliver(10), refused, Deliver(10)])
    assert run(source).event_count == 30
    assert source.renewals == 2
    assert source.time.sleeps == []

    source = ScriptedSource(events(30), [Deliver(10), refused, refused])
    with pytest.raises(SessionExpiredError):
        run(source)
    assert source.renewals == 1


@pytest.mark.parametrize("error", [AccessDeniedError("no"), QuotaExceededError("used up")])
def test_error_that_is_not_retriable_fails_the_drain_at_once(error):
    source = ScriptedSource(events(30), [Deliver(10), error])
    with pytest.raises(type(error)):
        run(source)
    assert len(source.starts) == 1
    assert source.open_subscriptions == 0


def test_fault_near_the_deadline_ends_the_window_with_the_stored_events():
    fault = ServiceUnavailableError("down")
    limits = DrainLimits(max_seconds=0.1)
    assert run(ScriptedSource(events(9), [Deliver(4), fault]), limits=limits).stop_reason is StopReason.MAX_SECONDS
    with pytest.raises(ServiceUnavailableError):
        run(ScriptedSource(events(9), [fault]), limits=limits)


def test_error_of_the_sink_is_raised_without_a_retry():
    class Full:
        def append(self, batch):
            raise LandingError("disk full")

    source = ScriptedSource(events(9))
    with pytest.raises(LandingError, match="disk full"):
        run(source, sink=Full())
    assert len(source.starts) == 1
    assert source.open_subscriptions == 0


@pytest.mark.parametrize("fault", [ServiceUnavailableError("down"), AccessDeniedError("hidden"), SchemaError("none")])
@pytest.mark.parametrize("bound", ["none", "until"])
def test_schema_errors_do_not_stop_the_drain(fault, bound):
    class Source(ScriptedSource):
        def schema(self, schema_id):
            raise fault

    source, sink = Source(events(9)), ListSink()
    moment = datetime(1970, 1, 1, tzinfo=UTC)
    limits = {"none": {}, "until": {"until": moment}}[bound]
    result = run(source, sink=sink, limits=DrainLimits(**limits), event_times=None)
    assert sink.replay_ids == ids(source.stream)
    assert result.stop_reason is StopReason.IDLE
    assert len(source.starts) == 1


# -- a lost replay ID ----------------------------------------------------------------------------------------------


def test_error_of_a_lost_replay_id_names_the_position_its_time_and_the_remedy():
    source = ScriptedSource(events(30), retained_from=20)
    since = datetime(2026, 1, 28, tzinfo=UTC)
    with pytest.raises(ReplayIdLostError) as caught:
        run(source, events(30)[4].replay_id, position_time=since)
    text = str(caught.value)
    for part in (
        "/event/Order__e",
        f"replay ID {events(30)[4].replay_id.hex()} (of 2026-01-28T00:00:00+00:00 or later) cannot be read",
        'on_invalid_replay="earliest"',
        "not moved",
    ):
        assert part in text


def test_on_invalid_replay_earliest_resumes_with_the_oldest_event_and_reports_a_gap():
    source, sink = ScriptedSource(events(30), retained_from=20), ListSink()
    since = datetime(2026, 1, 28, tzinfo=UTC)
    result = run(source, events(30)[4].replay_id, sink=sink, on_invalid_replay="earliest", position_time=since)
    assert sink.replay_ids == ids(source.stream[20:])
    assert result.gap is not None
    assert (result.gap.after, result.gap.resumed_at) == (source.stream[4].replay_id, source.stream[20].replay_id)
    assert (result.gap.since, result.gap.detected_at) == (since, BEGAN + timedelta(seconds=1))
    assert result.pinned is None


def test_on_invalid_replay_latest_resumes_with_new_events_and_pins_the_position():
    source, sink = ScriptedSource(events(30), retained_from=20, latest_from=28), ListSink()
    result = run(source, events(30)[4].replay_id, sink=sink, on_invalid_replay="latest")
    assert sink.replay_ids == ids(source.stream[28:])
    assert result.gap is not None
    assert result.gap.resumed_at == result.pinned == source.stream[28].replay_id


def test_a_replay_id_lost_within_a_drain_follows_the_same_policy():
    lost = ReplayIdLostError("The Replay ID validation failed.")
    fault = ServiceUnavailableError("reset")
    source, sink = ScriptedSource(events(30), [Deliver(5), fault, lost], retained_from=0), ListSink()
    with pytest.raises(ReplayIdLostError):
        run(source, sink=sink)
    source, sink = ScriptedSource(events(30), [Deliver(5), fault, lost], latest_from=20), ListSink()
    result = run(source, sink=sink, on_invalid_replay="latest")
    assert sink.replay_ids == ids(source.stream[:5] + source.stream[20:])
    assert result.gap is not None
    assert (result.gap.after, result.gap.resumed_at) == (source.stream[4].replay_id, source.stream[20].replay_id)
    assert result.gap.since == datetime(1970, 1, 1, 0, 0, 0, 5000, tzinfo=UTC)


def test_two_losses_make_one_gap_that_covers_both():
    lost, fault = ReplayIdLostError("lost"), ServiceUnavailableError("reset")
    source = ScriptedSource(events(30), [Deliver(5), fault, lost, Deliver(5)], retained_from=10)
    result = run(source, events(30)[4].replay_id, on_invalid_replay="earliest")
    assert result.gap is not None
    assert (result.gap.after, result.gap.resumed_at) == (source.stream[4].replay_id, source.stream[10].replay_id)


def test_drain_fails_at_the_fourth_lost_replay_id():
    lost, fault = ReplayIdLostError("lost"), ServiceUnavailableError("reset")
    source = ScriptedSource(events(30), [Deliver(5), fault, lost] * 4)
    with pytest.raises(ReplayIdLostError, match="4th time"):
        run(source, on_invalid_replay="earliest")


def test_an_unknown_policy_is_refused_before_anything_is_read():
    source = ScriptedSource(events(3))
    with pytest.raises(ConfigurationError, match="on_invalid_replay='skip'"):
        run(source, on_invalid_replay="skip")
    assert source.starts == []


# -- LATEST --------------------------------------------------------------------------------------------------------


def test_latest_is_pinned_to_the_first_event_so_a_reconnect_skips_no_event():
    source = ScriptedSource(events(30), [Deliver(2), ServiceUnavailableError("reset")], latest_from=10)
    sink = ListSink()
    result = run(source, StartFrom.LATEST, sink=sink)
    assert sink.replay_ids == ids(source.stream[10:])
    assert source.starts == [StartFrom.LATEST, source.stream[11].replay_id]
    assert result.pinned == source.stream[10].replay_id


def test_latest_is_pinned_by_an_empty_response():
    source = ScriptedSource(events(30), [Silence(3), Keepalive()])
    result = run(source, StartFrom.LATEST)
    assert result.pinned == result.through == source.stream[-1].replay_id
    assert result.stop_reason is StopReason.IDLE
    assert result.pinned_at == BEGAN + timedelta(seconds=3 + 1)


def test_latest_without_a_pin_waits_longer_than_the_idle_timeout():
    source = ScriptedSource(events(30), [Silence()] * 5 + [Keepalive()])
    result = run(source, StartFrom.LATEST, limits=DrainLimits(idle_timeout=20))
    assert result.through == source.stream[-1].replay_id


@pytest.mark.parametrize(("limits", "seconds"), [(DrainLimits(), 300), (DrainLimits(max_seconds=60), 60)])
def test_latest_without_a_pin_fails_at_the_time_limit(limits, seconds):
    source = ScriptedSource(events(30), [Silence()] * 1000)
    with pytest.raises(ServiceUnavailableError, match="before it received a replay ID that pins its start"):
        run(source, StartFrom.LATEST, limits=limits)
    assert seconds <= source.time.seconds <= seconds + 30


# -- progress ------------------------------------------------------------------------------------------------------


def test_progress_is_reported_every_ten_seconds_with_rate_and_age(caplog):
    base = int(NOW.timestamp() * 1000) - 90_000
    stream = [Event(replay_id(n + 1), avro_payload(base)) for n in range(2000)]
    source = ScriptedSource(stream)

    class Slow(ListSink):
        def append(self, batch):
            source.time.seconds += 2.5
            super().append(batch)

    with caplog.at_level("INFO"):
        run(source, sink=Slow(), event_times=None)
    assert [message for message in caplog.messages if "events/s" in message] == [
        f"/event/Order__e: {count} events, 40 events/s; the last event is 90 s old"
        for count in ("400", "800", "1,200", "1,600", "2,000")
    ]


def test_lag_is_decoded_from_the_last_event_with_its_own_schema():
    changed = [Event(replay_id(1), b"1", 1, "before"), Event(replay_id(2), b"2", 2, "after")]
    read = []

    def event_times(schema_ids, payloads):
        read.append((list(schema_ids), list(payloads)))
        return [0 for _ in payloads]

    source = ScriptedSource(changed)

    class Slow(ListSink):
        def append(self, batch):
            source.time.seconds += 11
            super().append(batch)

    run(source, sink=Slow(), event_times=event_times)
    assert (["after"], [b"2"]) in read
    assert (["before"], [b"2"]) not in read


# -- the end of a busy stream --------------------------------------------------------------------------------------


class BusySource(ScriptedSource):
    """Source that publishes an event with each response, so that no response is empty."""

    def latest(self, topic, *, idle_timeout):
        return self._from_the_latest()

    def _from_the_latest(self):
        place = len(self.stream)
        yield None
        yield None
        self.first_at_latest = self.stream[place].replay_id
        yield self._batch(self.stream[place : place + 1], self.first_at_latest, 0)

    def _play(self, after, limit, idle_timeout):
        for response in super()._play(after, 1_000_000, idle_timeout):
            self.stream += events(1, first=len(self.stream) + 1)
            yield response


def test_drain_to_the_end_of_a_busy_stream_stops_and_confirms_the_end():
    source = BusySource(events(250))
    sink = ListSink()
    result = run(source, sink=sink, limits=DrainLimits(to_the_end=True), event_times=lambda ids, _: [None] * len(ids))
    assert (result.stop_reason, result.confirmed_at) == (StopReason.CAUGHT_UP, BEGAN)
    assert source.first_at_latest in sink.replay_ids
    assert sink.replay_ids[:251] == ids(source.stream[:251]), "all events that were published before the drain began"


def test_fault_of_the_second_subscription_is_not_counted_as_a_fault_of_the_drain():
    class CutOnce(BusySource):
        looks = 0

        def _from_the_latest(self):
            self.looks += 1
            if self.looks == 1:
                raise ServiceUnavailableError("the second subscription was cut")
            yield from super()._from_the_latest()

    source = CutOnce(events(250), [Deliver(5), ServiceUnavailableError("and then the first")])
    result = run(source, limits=DrainLimits(to_the_end=True), event_times=lambda ids, _: [None] * len(ids))
    assert (result.stop_reason, result.reconnects, source.looks) == (StopReason.CAUGHT_UP, 1, 2)
