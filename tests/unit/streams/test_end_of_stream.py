"""Evidence for the end of a stream: every rule, and every way in which a claim is withheld."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import timedelta
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_sfstream.exceptions import QuotaExceededError, ServiceUnavailableError
from airflow_provider_sfstream.salesforce.events import EventBatch, StartFrom
from airflow_provider_sfstream.salesforce.server_time import ServerTime
from airflow_provider_sfstream.streams import end_of_stream as module
from airflow_provider_sfstream.streams.end_of_stream import EndOfStream, Reference, reference
from tests.support.scripted_async_source import Pass, ScriptedAsyncSource, behind
from tests.support.scripted_source import Deliver, Keepalive, events, replay_id
from tests.support.virtual_time import BEGINNING, run_in_virtual_time, virtual_clock


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


TOPIC = "/event/Order__e"
POSITION = replay_id(3)
MEASURED = ServerTime(BEGINNING, 0.0, 2.0)


class StreamingSource(ScriptedAsyncSource):
    """A source whose empty responses name no position."""

    confirms_positions: ClassVar[bool] = False


def during(
    source: ScriptedAsyncSource,
    use: Callable[[Reference | None], Coroutine[Any, Any, Any]],
    measured: ServerTime | None = MEASURED,
) -> Any:
    """Return the result of ``use`` with the second subscription; no task and no subscription is open after it."""

    async def main() -> Any:
        context = reference(source, TOPIC, measured, silence_timeout=300.0, clock=virtual_clock)
        async with context as found:
            return await use(found)

    try:
        return run_in_virtual_time(main())
    finally:
        assert source.open_subscriptions == 0


async def _after_a_while(found: Reference | None) -> Reference | None:
    await asyncio.sleep(60)
    return found


@pytest.mark.parametrize(
    ("source", "measured"),
    [(ScriptedAsyncSource(events(1)), None), (StreamingSource(events(1)), MEASURED)],
    ids=["time not measured", "Streaming API"],
)
def test_where_nothing_can_be_confirmed_nothing_is_opened(
    source: ScriptedAsyncSource, measured: ServerTime | None
) -> None:
    assert during(source, _after_a_while, measured) is None
    assert source.starts == []


def test_it_is_one_subscription_at_latest_for_one_event() -> None:
    source = ScriptedAsyncSource(events(1), [Pass(5), Keepalive()])
    during(source, _after_a_while)
    assert (source.starts, source.limits) == ([StartFrom.LATEST], [1])


def test_it_was_opened_at_a_lower_bound_of_the_time_before_it_was_requested() -> None:
    async def main() -> Reference | None:
        await asyncio.sleep(10)
        source = ScriptedAsyncSource(events(1), [Pass(5), Keepalive()])
        context = reference(source, TOPIC, MEASURED, silence_timeout=300.0, clock=virtual_clock)
        async with context as found:
            return await _after_a_while(found)

    found = run_in_virtual_time(main())
    assert found is not None
    assert found.opened_at == BEGINNING + timedelta(seconds=10 - 2), "the response may have been on its way for 2 s"


def test_its_empty_response_is_evidence_for_a_reader_that_stands_there() -> None:
    found = during(ScriptedAsyncSource(events(1), [Pass(5), Keepalive(at=POSITION)]), _after_a_while)
    assert not found.evidence.is_reached
    found.evidence.reader_took([POSITION])
    assert found.evidence.is_reached
    found = during(ScriptedAsyncSource(events(1), [Pass(5), Keepalive(at=behind(POSITION))]), _after_a_while)
    found.evidence.reader_took([POSITION])
    assert not found.evidence.is_reached


def test_its_event_is_evidence_for_a_reader_that_takes_it() -> None:
    source = ScriptedAsyncSource(events(4), [Pass(5), Deliver(1)], latest_from=2)
    found = during(source, _after_a_while)
    assert found.evidence.has_event
    assert not found.evidence.is_reached
    found.evidence.reader_took([source.stream[1].replay_id, source.stream[2].replay_id])
    assert found.evidence.is_reached


@pytest.mark.parametrize("fault", [ServiceUnavailableError("cut"), QuotaExceededError("used up")])
def test_a_fault_is_logged_and_confirms_nothing(fault: Exception, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    found = during(ScriptedAsyncSource(events(1), [Pass(5), fault]), _after_a_while)
    assert not found.evidence.is_reached
    assert f"{TOPIC}: the subscription that looks for the end of the stream failed: {fault}" in caplog.text


def test_an_error_of_the_wait_ends_it_too() -> None:
    async def fail(found: Reference | None) -> None:
        await asyncio.sleep(1)
        raise KeyError("of the wait")

    with pytest.raises(KeyError, match="of the wait"):
        during(ScriptedAsyncSource(events(1)), fail)


def test_a_wait_that_is_cancelled_ends_it_too() -> None:
    source = ScriptedAsyncSource(events(1))

    async def main() -> None:
        async def wait() -> None:
            context = reference(source, TOPIC, MEASURED, silence_timeout=300.0, clock=virtual_clock)
            async with context:
                await asyncio.sleep(1_000)

        waiting = asyncio.create_task(wait())
        await asyncio.sleep(10)
        assert source.open_subscriptions == 1
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting

    run_in_virtual_time(main())
    assert source.open_subscriptions == 0
