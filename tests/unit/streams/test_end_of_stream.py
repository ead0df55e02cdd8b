"""Evidence for the end of a stream: every rule, and every way in which a claim is withheld."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_sfstream.salesforce.events import EventBatch
from airflow_provider_sfstream.streams import end_of_stream as module
from airflow_provider_sfstream.streams.end_of_stream import EndOfStream
from tests.support.scripted_source import replay_id


def empty(at: bytes, pending: int = 1) -> EventBatch:
    """Return an empty response that names the replay ID ``at``."""
    return EventBatch([], [], [], [], at, pending, 0)


def delivery(*replay_ids: bytes) -> EventBatch:
    """Return a response with events."""
    count = len(replay_ids)
    return EventBatch(list(replay_ids), [None] * count, [""] * count, [b""] * count, replay_ids[-1], 0, 0)


def test_nothing_is_the_end_at_first() -> None:
    evidence = EndOfStream()
    assert (evidence.is_reached, evidence.has_event) == (False, False)


# -- an event of the second subscription -----------------------------------------------------------------------------


def test_the_reader_that_takes_the_first_event_of_the_second_subscription_has_reached_the_end() -> None:
    evidence = EndOfStream()
    evidence.reference_answered(delivery(replay_id(7)))
    evidence.reader_took([replay_id(3), replay_id(5)])
    assert (evidence.is_reached, evidence.has_event) == (False, True)
    evidence.reader_took([replay_id(7), replay_id(9)])
    assert evidence.is_reached


def test_that_event_may_arrive_after_the_reader_took_it() -> None:
    evidence = EndOfStream()
    evidence.reader_took([replay_id(5), replay_id(7), replay_id(9)])
    evidence.reader_took([replay_id(11)])
    assert not evidence.is_reached
    evidence.reference_answered(delivery(replay_id(7)))
    assert evidence.is_reached


def test_only_the_first_event_of_the_second_subscription_is_a_reference() -> None:
    """The first has the fewest events before it: it is the soonest evidence for the moment of the request."""
    evidence = EndOfStream()
    evidence.reference_answered(delivery(replay_id(7)))
    evidence.reference_answered(delivery(replay_id(9)))
    evidence.reader_took([replay_id(8), replay_id(9)])
    assert not evidence.is_reached


def test_events_that_are_ordered_behind_the_reference_are_no_evidence() -> None:
    """Replay IDs are opaque: events before the reference may have greater ones."""
    evidence = EndOfStream()
    evidence.reference_answered(delivery(replay_id(7)))
    evidence.reader_took([replay_id(8), replay_id(900)])
    evidence.reader_answered(empty(replay_id(1_000)))
    assert not evidence.is_reached


def test_batches_are_searched_for_a_late_reference_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BATCHES_KEPT", 3)
    for later, reached in ((2, True), (3, False)):
        evidence = EndOfStream()
        for number in range(1 + later):
            evidence.reader_took([replay_id(number)])
        evidence.reference_answered(delivery(replay_id(0)))
        assert evidence.is_reached is reached


# -- an empty response of the second subscription --------------------------------------------------------------------


def test_the_reader_that_takes_the_event_named_by_the_second_subscription_has_reached_the_end() -> None:
    evidence = EndOfStream()
    evidence.reference_answered(empty(replay_id(7)))
    evidence.reader_took([replay_id(5)])
    assert (evidence.is_reached, evidence.has_event) == (False, False)
    evidence.reader_took([replay_id(7)])
    assert evidence.is_reached


def test_the_reader_that_receives_the_replay_id_of_the_second_subscription_has_reached_the_end() -> None:
    """A position that it only began with gets no new age, so a response of its own is needed."""
    evidence = EndOfStream()
    evidence.reference_answered(empty(replay_id(7)))
    assert not evidence.is_reached
    evidence.reader_answered(empty(replay_id(7)))
    assert evidence.is_reached


def test_the_reader_that_an_empty_response_moved_to_that_replay_id_has_reached_the_end() -> None:
    for unknown in (replay_id(7), b"unknown form"):
        evidence = EndOfStream()
        evidence.reader_answered(empty(unknown))
        evidence.reference_answered(empty(unknown))
        assert evidence.is_reached, "equality needs no known form"


def test_the_first_replay_id_of_the_second_subscription_stays_the_reference() -> None:
    evidence = EndOfStream()
    evidence.reference_answered(empty(replay_id(7)))
    evidence.reference_answered(empty(replay_id(9)))
    evidence.reader_took([replay_id(7)])
    assert evidence.is_reached


# -- both sent empty responses ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("reader_first", [True, False])
@pytest.mark.parametrize("ahead", [0, 1, 500])
def test_empty_responses_of_both_are_evidence_if_the_reader_is_not_behind(ahead: int, *, reader_first: bool) -> None:
    reader, second = empty(replay_id(700 + ahead)), empty(replay_id(700))
    evidence = EndOfStream()
    if reader_first:
        evidence.reader_answered(reader)
        assert not evidence.is_reached, "an empty response of the reader alone is no evidence"
        evidence.reference_answered(second)
    else:
        evidence.reference_answered(second)
        assert not evidence.is_reached, "nor is one of the second subscription"
        evidence.reader_answered(reader)
    assert evidence.is_reached


def test_a_reader_that_seeks_is_not_at_the_end_until_it_gets_there() -> None:
    evidence = EndOfStream()
    evidence.reference_answered(empty(replay_id(700)))
    for number in (10, 250, 699):
        evidence.reader_answered(empty(replay_id(number)))
        assert not evidence.is_reached
    evidence.reader_answered(empty(replay_id(701)))
    assert evidence.is_reached


def test_order_alone_is_never_the_reason() -> None:
    """Neither a position nor events behind that of the second subscription count without the server's answer."""
    evidence = EndOfStream()
    evidence.reference_answered(empty(replay_id(700)))
    evidence.reader_took([replay_id(901), replay_id(902)])
    assert not evidence.is_reached
    evidence.reader_answered(empty(replay_id(902), pending=0))
    assert not evidence.is_reached, "an answer without pending requests shows nothing"
    evidence.reader_answered(empty(b""))
    assert not evidence.is_reached, "nor does one that names no replay ID"
    evidence.reader_answered(empty(replay_id(902)))
    assert evidence.is_reached


@pytest.mark.parametrize(
    ("reader", "second"),
    [
        (b"\xff" * 9, b"\x00" * 9),
        (b"\xff" * 16, b"\x00" * 16),
        (b"\xff", b"\x00"),
        (b"\xff" * 8, b"\x00" * 10),
        (b"\xff" * 10, b"\x00" * 8),
    ],
)
def test_replay_ids_in_unknown_or_different_forms_withhold(reader: bytes, second: bytes) -> None:
    evidence = EndOfStream()
    evidence.reference_answered(empty(second))
    evidence.reader_answered(empty(reader))
    assert not evidence.is_reached


@pytest.mark.parametrize("length", [8, 10])
def test_replay_ids_of_both_observed_forms_are_compared(length: int) -> None:
    evidence = EndOfStream()
    evidence.reference_answered(empty((5).to_bytes(length, "big")))
    evidence.reader_answered(empty((4).to_bytes(length, "big")))
    assert not evidence.is_reached
    evidence.reader_answered(empty((6).to_bytes(length, "big")))
    assert evidence.is_reached


def test_the_end_stays_reached() -> None:
    evidence = EndOfStream()
    evidence.reference_answered(empty(replay_id(3)))
    evidence.reader_took([replay_id(3)])
    evidence.reader_took([replay_id(8)])
    evidence.reader_answered(empty(replay_id(1)))
    evidence.reference_answered(delivery(replay_id(90)))
    assert evidence.is_reached


# -- whatever the server sends ---------------------------------------------------------------------------------------

_numbers = st.integers(0, 30)
_steps = st.lists(
    st.tuples(st.just("took"), st.lists(_numbers, min_size=1, max_size=4))
    | st.tuples(st.just("answered"), st.lists(_numbers, min_size=1, max_size=1)),
    max_size=20,
)


@given(start=_numbers, steps=_steps)
def test_without_an_answer_of_the_second_subscription_nothing_is_the_end(
    start: int, steps: list[tuple[str, list[int]]]
) -> None:
    evidence = EndOfStream()
    for kind, numbers in steps:
        if kind == "took":
            evidence.reader_took([replay_id(number) for number in numbers])
        else:
            evidence.reader_answered(empty(replay_id(numbers[0])))
    assert not evidence.is_reached


@given(stream=st.lists(_numbers, unique=True, min_size=1), opened=st.data())
def test_a_reader_in_stream_order_is_never_at_the_end_before_it_has_all_events_of_before(
    stream: list[int], opened: st.DataObject
) -> None:
    """The replay IDs are in any order. The second subscription was opened when ``count`` events were published."""
    count = opened.draw(st.integers(0, len(stream)))
    empty_first = opened.draw(st.booleans()) and count > 0
    reference = empty(replay_id(stream[count - 1])) if empty_first else None
    if reference is None and count < len(stream):
        reference = delivery(replay_id(stream[count]))
    evidence = EndOfStream()
    arrives = opened.draw(st.integers(0, len(stream)))
    for number, event in enumerate(stream):
        if number == arrives and reference is not None:
            evidence.reference_answered(reference)
        evidence.reader_took([replay_id(event)])
        assert not evidence.is_reached or number + 1 >= count
