"""Contract of replay stores, tested with every store."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest

from airflow_provider_sfstream.exceptions import (
    ConfigurationError,
    InvalidReplayIdError,
    PositionConflictError,
)
from airflow_provider_sfstream.replay_stores.base import Position
from airflow_provider_sfstream.salesforce.streams import ReplayWindow
from tests.support.replay_stores import StoreUnderTest, gap_at, minute, new_stream, run_at


def test_new_stream_has_no_records(under_test: StoreUnderTest) -> None:
    stream = new_stream()

    assert under_test.store.read(stream) == Position(None, 0, None, None, None)
    assert under_test.store.windows_of_run(stream, run_at(0)) == []
    assert under_test.store.windows_overlapping(stream, minute(0), minute(9)) == []
    assert under_test.store.window_before(stream, minute(9)) is None
    assert under_test.store.gaps(stream) == []
    assert under_test.store.resets(stream) == []


def test_advance_moves_the_position_and_records_the_run(under_test: StoreUnderTest) -> None:
    stream = new_stream()
    before = datetime.now(UTC)

    window = under_test.land(stream, Position(), b"\x00\x07", run_at(5), events=(1, 2))
    returned = under_test.store.advance(stream, Position(), window)

    assert returned == under_test.open().read(stream)
    assert (returned.replay_id, returned.fence, returned.window_id) == (b"\x00\x07", 1, window.window_id)
    assert returned.updated_by == str(run_at(5))
    assert returned.updated_at is not None
    assert before <= returned.updated_at <= datetime.now(UTC)


def test_positions_of_different_streams_are_separate(under_test: StoreUnderTest) -> None:
    stream = new_stream()
    others = [
        replace(stream, org_id="00D000000000002EAA"),
        replace(stream, api="streaming"),
        replace(stream, topic="/event/order__e"),
        replace(stream, subscription=stream.subscription.upper()),
    ]

    under_test.advance(stream, b"\x01", run_at(1))

    assert [under_test.store.read(other) for other in others] == [Position()] * 4


def test_text_in_any_script_is_stored_unchanged(under_test: StoreUnderTest) -> None:
    stream = replace(new_stream(), subscription="注文-🚚")
    run = replace(run_at(1), dag_id="διαταγές", run_id="manuell__Grüße-🚚")
    gap = replace(gap_at(1), reason="вышел срок 🚚")

    window = under_test.advance(stream, b"\x01", run, gap=gap)
    under_test.store.reset(stream, b"\x02", reason="nochmal, 再び 🚚", updated_by="Ζωή")

    assert under_test.store.windows_of_run(stream, run) == [window]
    assert under_test.store.gaps(stream) == [gap]
    assert under_test.store.read(stream).updated_by == "Ζωή"
    assert [reset.reason for reset in under_test.store.resets(stream)] == ["nochmal, 再び 🚚"]


def test_position_follows_each_advance(under_test: StoreUnderTest) -> None:
    stream = new_stream()
    for number in range(1, 6):
        under_test.advance(stream, bytes([number]), run_at(number))

    position = under_test.store.read(stream)
    assert (position.replay_id, position.fence) == (b"\x05", 5)


def test_conflict_error_names_the_run_that_advanced_first(under_test: StoreUnderTest) -> None:
    stream = new_stream()
    start = under_test.store.read(stream)
    winner = under_test.land(stream, start, b"\x01", run_at(1), events=(0, 1))
    loser = under_test.land(stream, start, b"\x02", run_at(2), events=(0, 1))
    under_test.store.advance(stream, start, winner)
    position = under_test.store.read(stream)

    with pytest.raises(PositionConflictError) as raised:
        under_test.open().advance(stream, start, loser)

    assert str(winner.run) in str(raised.value)
    assert "01, fence 1" in str(raised.value)
    assert position.updated_at is not None
    assert position.updated_at.isoformat() in str(raised.value)
    assert raised.value.retriable
    assert under_test.store.read(stream) == position
    assert under_test.store.windows_of_run(stream, loser.run) == []
    assert under_test.store.windows_overlapping(stream, minute(0), minute(9)) == [winner]


@pytest.mark.parametrize("other", [b"\x63", None])
def test_advance_compares_replay_id_and_fence(under_test: StoreUnderTest, other: bytes | None) -> None:
    stream = new_stream()
    under_test.advance(stream, b"\x01", run_at(1))
    position = under_test.store.read(stream)
    window = under_test.land(stream, replace(position, replay_id=other), b"\x02", run_at(2))

    with pytest.raises(PositionConflictError):
        under_test.store.advance(stream, replace(position, replay_id=other), window)
    assert under_test.store.read(stream) == position


def test_window_of_a_refused_advance_is_never_recorded(under_test: StoreUnderTest) -> None:
    stream = new_stream()
    start = under_test.store.read(stream)
    loser = under_test.land(stream, start, b"\x02", run_at(2), events=(0, 1))
    winner = under_test.advance(stream, b"\x01", run_at(1), events=(0, 1))
    with pytest.raises(PositionConflictError):
        under_test.store.advance(stream, start, loser)

    retry = under_test.advance(stream, b"\x02", run_at(2, try_number=2), events=(1, 1))

    assert under_test.store.windows_overlapping(stream, minute(0), minute(9)) == [winner, retry]
    assert under_test.store.windows_of_run(stream, run_at(2)) == [retry]


def test_repeated_advance_changes_nothing(under_test: StoreUnderTest) -> None:
    stream = new_stream()
    start = under_test.store.read(stream)
    window = under_test.land(stream, start, b"\x01", run_at(1), gap=gap_at(1))
    first = under_test.store.advance(stream, start, window)

    assert under_test.store.advance(stream, start, window) == first
    assert under_test.store.advance(stream, first, window) == first
    assert under_test.store.windows_of_run(stream, window.run) == [window]
    assert under_test.store.gaps(stream) == [gap_at(1)]


def test_advance_with_an_older_recorded_window_changes_nothing(under_test: StoreUnderTest) -> None:
    stream = new_stream()
    start = under_test.store.read(stream)
    first = under_test.advance(stream, b"\x01", run_at(1), events=(0, 1))
    second = under_test.advance(stream, b"\x02", run_at(2), events=(1, 2))
    position = under_test.store.read(stream)

    assert under_test.store.advance(stream, start, first) == position
    assert under_test.store.advance(stream, position, first) == position
    assert under_test.store.read(stream) == position
    assert under_test.store.windows_overlapping(stream, minute(0), minute(9)) == [first, second]


def test_one_window_cannot_be_recorded_with_two_ends(under_test: StoreUnderTest) -> None:
    stream = new_stream()
    start = under_test.store.read(stream)
    window = under_test.land(stream, start, b"\x01", run_at(1))
    position = under_test.store.advance(stream, start, window)

    with pytest.raises(PositionConflictError):
        under_test.store.advance(stream, start, replace(window, through=b"\x02"))

    assert under_test.store.read(stream) == position


def test_empty_window_keeps_the_replay_id_and_increments_the_fence(under_test: StoreUnderTest) -> None:
    stream = new_stream()
    at_first = under_test.advance(stream, None, run_at(1))
    under_test.advance(stream, b"\x01", run_at(2))
    later = under_test.advance(stream, None, run_at(3))

    position = under_test.store.read(stream)
    assert (position.replay_id, position.fence, position.window_id) == (b"\x01", 3, later.window_id)
    assert under_test.store.windows_of_run(stream, run_at(1)) == [at_first]
    assert under_test.store.windows_overlapping(stream, minute(-99), minute(99)) == []


def test_advance_from_a_position_before_an_empty_window_is_refused(under_test: StoreUnderTest) -> None:
    stream = new_stream()
    start = under_test.store.read(stream)
    empty = under_test.land(stream, start, None, run_at(1))
    late = under_test.land(stream, start, b"\x01", run_at(2))
    under_test.store.advance(stream, start, empty)

    with pytest.raises(PositionConflictError):
        under_test.store.advance(stream, start, late)


def test_reset_to_the_same_replay_id_stops_a_running_drain(under_test: StoreUnderTest) -> None:
    stream = new_stream()
    under_test.advance(stream, b"\x01", run_at(1))
    seen = under_test.store.read(stream)
    running = under_test.land(stream, seen, b"\x02", run_at(2))

    after = under_test.store.reset(stream, seen.replay_id, reason="test", updated_by="ann")

    assert (after.replay_id, after.fence, after.window_id) == (b"\x01", 2, None)
    with pytest.raises(PositionConflictError, match="ann"):
        under_test.store.advance(stream, seen, running)
    assert under_test.store.read(stream) == after


def test_resets_are_recorded_with_user_and_reason(under_test: StoreUnderTest) -> None:
    stream = new_stream()
    store = under_test.store
    store.reset(stream, b"\x07", reason="begin here", updated_by="ann")
    under_test.advance(stream, b"\x08", run_at(1))
    forgotten = store.reset(stream, None, reason="begin anew", updated_by="bob")

    assert store.read(stream) == forgotten
    assert (forgotten.replay_id, forgotten.fence, forgotten.updated_by) == (None, 3, "bob")
    records = store.resets(stream)
    assert [(record.reset_by, record.reason, record.from_replay_id, record.to_replay_id) for record in records] == [
        ("ann", "begin here", None, b"\x07"),
        ("bob", "begin anew", b"\x08", None),
    ]
    assert records[0].reset_at < records[1].reset_at
    under_test.advance(stream, b"\x09", run_at(2))
    assert store.read(stream).replay_id == b"\x09"


@pytest.mark.parametrize(("replay_id", "reason", "by"), [(b"", "x", "x"), (b"1" * 65, "x", "x")])
def test_reset_to_an_invalid_replay_id_is_refused(
    under_test: StoreUnderTest, replay_id: bytes, reason: str, by: str
) -> None:
    stream = new_stream()
    with pytest.raises(InvalidReplayIdError, match="Nothing was changed"):
        under_test.store.reset(stream, replay_id, reason=reason, updated_by=by)
    assert under_test.store.read(stream) == Position()


@pytest.mark.parametrize(("reason", "by"), [("", "ann"), ("test", " ")])
def test_reset_without_user_or_reason_is_refused(under_test: StoreUnderTest, reason: str, by: str) -> None:
    stream = new_stream()
    with pytest.raises(ConfigurationError, match="requires a reason and the name of the user"):
        under_test.store.reset(stream, b"\x01", reason=reason, updated_by=by)
    assert under_test.store.read(stream) == Position()


def test_windows_stay_recorded_after_resets(under_test: StoreUnderTest) -> None:
    stream = new_stream()
    windows = [under_test.advance(stream, bytes([n]), run_at(n), events=(n, n)) for n in (1, 2)]
    under_test.store.reset(stream, b"\x01", reason="again", updated_by="ann")
    under_test.store.reset(stream, b"\x01", reason="again", updated_by="ann")
    windows += [under_test.advance(stream, bytes([n]), run_at(n), events=(n, n)) for n in (3, 4)]

    assert under_test.store.windows_overlapping(stream, minute(0), minute(9)) == windows
    assert under_test.store.windows_of_run(stream, run_at(2)) == [windows[1]]


def test_a_window_recorded_before_a_reset_is_not_recorded_again(under_test: StoreUnderTest) -> None:
    stream = new_stream()
    window = under_test.advance(stream, b"\x01", run_at(1), events=(0, 1))
    position = under_test.store.reset(stream, None, reason="again", updated_by="ann")

    assert under_test.store.advance(stream, position, window) == position
    assert under_test.store.read(stream) == position
    assert under_test.store.windows_overlapping(stream, minute(0), minute(9)) == [window]


def test_windows_of_a_run_include_those_of_all_its_tries(under_test: StoreUnderTest) -> None:
    stream = new_stream()
    first = under_test.advance(stream, b"\x01", run_at(5, try_number=1), events=(1, 2))
    under_test.advance(stream, b"\x02", run_at(6), events=(2, 3))
    under_test.advance(stream, b"\x03", run_at(5, map_index=3), events=(2, 3))
    again = under_test.advance(stream, b"\x04", run_at(5, try_number=2), events=(3, 4))

    assert under_test.store.windows_of_run(stream, run_at(5, try_number=9)) == [first, again]
    assert under_test.store.windows_of_run(new_stream(), run_at(5)) == []


def test_windows_overlap_a_half_open_interval(under_test: StoreUnderTest) -> None:
    stream = new_stream()
    early = under_test.advance(stream, b"\x01", run_at(10), events=(0, 10))
    under_test.advance(stream, None, run_at(15))
    late = under_test.advance(stream, b"\x02", run_at(20), events=(10.001, 20))

    def overlapping(start: float, end: float) -> list[object]:
        return list(under_test.store.windows_overlapping(stream, minute(start), minute(end)))

    assert overlapping(0, 99) == [early, late]
    assert overlapping(10, 10.001) == [early]
    assert overlapping(10.0005, 11) == [late]
    assert overlapping(20, 21) == [late]
    assert overlapping(20.0001, 21) == []
    assert overlapping(-5, 0) == []
    assert overlapping(3, 4) == [early]


def test_windows_overlap_their_covered_span(under_test: StoreUnderTest) -> None:
    stream = new_stream()
    empty = under_test.advance(stream, None, run_at(10), covered=(0, 10))
    early = under_test.advance(stream, b"\x01", run_at(20), covered=(10, 20), events=(8, 12))
    no_length = under_test.advance(stream, b"\x02", run_at(25), covered=(20, 20), events=(22, 24))
    backfill = under_test.land(stream, Position(), b"\x01", run_at(15), kind="backfill", covered=(2, 4))
    under_test.store.record_backfill(stream, backfill)

    def overlapping(start: float, end: float) -> list[object]:
        return list(under_test.store.windows_overlapping(stream, minute(start), minute(end)))

    assert overlapping(-9, 99) == [empty, early, no_length, backfill]
    assert overlapping(0, 2) == [empty]
    assert overlapping(3, 4) == [empty, backfill]
    assert overlapping(4, 9) == [empty], "an event of minute 8 counts from minute 10"
    assert overlapping(10, 12) == [early]
    assert overlapping(13, 20) == [early]
    assert overlapping(20, 22) == [early, no_length], "both windows have events of their last response"
    assert overlapping(20.001, 23) == []
    assert overlapping(-9, 0) == []


def test_window_is_returned_with_its_covered_span(under_test: StoreUnderTest) -> None:
    stream = new_stream()
    window = under_test.advance(stream, b"\x01", run_at(10), covered=(0.001, 9.999), gap=gap_at(1))

    found = under_test.store.window_before(stream, minute(99))
    assert found == window
    assert (window.covered_from, window.covered_until) == (minute(0.001), minute(9.999))
    assert under_test.store.windows_of_run(stream, run_at(10)) == [window]


def test_window_before_a_time_is_the_one_that_ends_last(under_test: StoreUnderTest) -> None:
    stream = new_stream()
    windows = [
        under_test.advance(stream, bytes([n]), run_at(10 * n), covered=(10 * n - 10, 10 * n), events=(10 * n, 10 * n))
        for n in (1, 2, 3)
    ]

    def before(number: float) -> ReplayWindow | None:
        return under_test.store.window_before(stream, minute(number))

    assert before(9.999) is None
    assert [before(10), before(19.999)] == [windows[0]] * 2
    assert [before(20), before(25)] == [windows[1]] * 2
    assert [before(30), before(99_999)] == [windows[2]] * 2
    elsewhere = timezone(timedelta(hours=-9))
    assert under_test.store.window_before(stream, minute(20).astimezone(elsewhere)) == windows[1]
    assert under_test.store.window_before(new_stream(), minute(99)) is None


def test_a_window_of_unknown_span_ends_after_its_last_event(under_test: StoreUnderTest) -> None:
    stream = new_stream()
    known = under_test.advance(stream, b"\x01", run_at(10), covered=(0, 10), events=(1, 2))
    unknown = under_test.advance(stream, b"\x02", run_at(20), events=(11, 20))
    under_test.advance(stream, b"\x03", run_at(30))

    assert under_test.store.window_before(stream, minute(20)) == known
    assert under_test.store.window_before(stream, minute(20) + MICROSECOND) == unknown
    assert under_test.store.window_before(stream, minute(99)) == unknown
    assert under_test.store.window_before(stream, minute(9)) is None
    assert under_test.store.windows_overlapping(stream, minute(20), minute(21)) == [unknown]


def test_window_without_a_replay_id_is_never_the_window_before_a_time(under_test: StoreUnderTest) -> None:
    stream = new_stream()
    under_test.advance(stream, None, run_at(5), covered=(0, 5))
    assert under_test.store.window_before(stream, minute(99)) is None

    first = under_test.advance(stream, b"\x01", run_at(10), covered=(5, 10))
    under_test.advance(stream, None, run_at(20), covered=(10, 20))

    assert under_test.store.window_before(stream, minute(99)) == first


def test_latest_live_window_precedes_other_windows_with_the_same_end(under_test: StoreUnderTest) -> None:
    stream = new_stream()

    def backfilled(due: float, covered: tuple[float, float]) -> ReplayWindow:
        window = under_test.land(stream, Position(), b"\x09", run_at(due), kind="backfill", covered=covered)
        under_test.store.record_backfill(stream, window)
        return window

    def before(number: float) -> ReplayWindow | None:
        return under_test.store.window_before(stream, minute(number))

    later_id = backfilled(3, (0, 10))
    backfilled(2, (0, 10))
    assert before(10) == later_id
    under_test.advance(stream, b"\x01", run_at(1), covered=(0, 10))
    last_live = under_test.advance(stream, b"\x02", run_at(0), covered=(10, 10))
    assert before(10) == last_live
    longer = backfilled(4, (0, 11))
    assert [before(10.999), before(11)] == [last_live, longer]
    unknown = under_test.advance(stream, b"\x03", run_at(5), events=(11, 11))
    assert [before(11), before(11.001)] == [longer, unknown]
    known = under_test.advance(stream, b"\x04", run_at(6), covered=(11, 11))
    assert [before(11), before(11.001)] == [known, known]
    unknown_again = under_test.advance(stream, b"\x05", run_at(7), events=(11, 11))
    assert [before(11), before(11.001)] == [known, unknown_again]


def test_window_before_a_time_may_precede_a_reset(under_test: StoreUnderTest) -> None:
    stream = new_stream()
    early = under_test.advance(stream, b"\x01", run_at(10), covered=(0, 10))
    late = under_test.advance(stream, b"\x02", run_at(20), covered=(10, 20))
    under_test.store.reset(stream, None, reason="again", updated_by="ann")
    assert under_test.store.window_before(stream, minute(99)) == late

    again = under_test.advance(stream, b"\x03", run_at(25), covered=(5, 15))

    assert under_test.store.window_before(stream, minute(10)) == early
    assert under_test.store.window_before(stream, minute(19)) == again
    assert under_test.store.window_before(stream, minute(20)) == late


def test_times_are_stored_to_the_microsecond_in_any_time_zone(under_test: StoreUnderTest) -> None:
    stream = new_stream()
    elsewhere = timezone(timedelta(hours=5, minutes=45))
    exact = (MICROSECOND + minute(1)).astimezone(elsewhere)
    gap = replace(gap_at(2), since=exact, detected_at=exact)
    under_test.store.record_gap(stream, gap)
    under_test.advance(stream, b"\x01", run_at(3), events=(1, 2))

    assert under_test.store.gaps(stream) == [gap]
    assert all(found.detected_at.tzinfo is not None for found in under_test.store.gaps(stream))
    inside = under_test.store.windows_overlapping(stream, minute(2).astimezone(elsewhere), minute(3))
    assert len(inside) == 1
    assert under_test.store.windows_overlapping(stream, minute(2) + MICROSECOND, minute(3)) == []


MICROSECOND = timedelta(microseconds=1)


def test_gaps_are_recorded_once_and_ordered_by_detection(under_test: StoreUnderTest) -> None:
    stream = new_stream()
    under_test.store.record_gap(stream, gap_at(3))
    window = under_test.advance(stream, b"\x01", run_at(2), gap=gap_at(2))
    under_test.store.record_gap(stream, gap_at(3))
    under_test.store.record_gap(stream, replace(gap_at(4), after=None, resumed_at=None, since=None))

    assert under_test.store.gaps(stream) == [
        gap_at(2),
        gap_at(3),
        replace(gap_at(4), after=None, resumed_at=None, since=None),
    ]
    assert under_test.store.windows_of_run(stream, run_at(2)) == [window]
    assert window.gap == gap_at(2)


def test_a_backfill_never_moves_the_position(under_test: StoreUnderTest) -> None:
    stream = new_stream()
    live = under_test.advance(stream, b"\x05", run_at(5), events=(4, 5))
    position = under_test.store.read(stream)
    backfill = under_test.land(
        stream, Position(b"\x01"), b"\x03", run_at(3), kind="backfill", events=(2, 3), gap=gap_at(3)
    )

    under_test.store.record_backfill(stream, backfill)
    under_test.store.record_backfill(stream, backfill)

    assert under_test.store.read(stream) == position
    assert under_test.store.windows_overlapping(stream, minute(0), minute(9)) == [live, backfill]
    assert under_test.store.windows_of_run(stream, run_at(3)) == [backfill]
    assert under_test.store.gaps(stream) == [gap_at(3)]


def test_backfill_as_first_window_records_no_position(under_test: StoreUnderTest) -> None:
    stream = new_stream()
    backfill = under_test.land(stream, Position(), b"\x03", run_at(3), kind="backfill", events=(2, 3))

    under_test.store.record_backfill(stream, backfill)

    assert under_test.store.read(stream) == Position()
    under_test.advance(stream, b"\x01", run_at(4))


def test_live_and_backfill_windows_need_their_own_method(under_test: StoreUnderTest) -> None:
    stream = new_stream()
    live = under_test.land(stream, Position(), b"\x01", run_at(1))
    backfill = under_test.land(stream, Position(), b"\x01", run_at(1), kind="backfill")

    with pytest.raises(ConfigurationError, match="record_backfill"):
        under_test.store.advance(stream, Position(), backfill)
    with pytest.raises(ConfigurationError, match="advance"):
        under_test.store.record_backfill(stream, live)
    assert under_test.store.read(stream) == Position()


def test_a_closed_store_can_be_used_again(under_test: StoreUnderTest) -> None:
    stream = new_stream()
    under_test.advance(stream, b"\x01", run_at(1))
    under_test.store.close()

    assert under_test.store.read(stream).replay_id == b"\x01"


def test_names_of_maximum_length_are_stored(under_test: StoreUnderTest) -> None:
    stream = replace(new_stream("/event/" + "O" * 240 + "__e"), org_id="o" * 255, subscription="ü" * 255)
    run = replace(run_at(1), dag_id="d" * 250, task_id="t" * 250, run_id="r" * 250)
    window = under_test.advance(stream, b"\xff" * 64, run)

    assert under_test.store.read(stream).replay_id == b"\xff" * 64
    assert under_test.store.windows_of_run(stream, run) == [window]
