"""Evidence for the end of a stream: when it confirms the end, and when it does not."""

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
from airflow_provider_sfstream.streams.end_of_stream import EndOfStream, reference
from tests.support.scripted_async_source import Pause, ScriptedAsyncSource, unused_replay_id_after
from tests.support.scripted_source import Deliver, Keepalive, events, replay_id
from tests.support.virtual_time import BEGINNING, run_in_virtual_time, virtual_clock


def empty(at: bytes, pending: int = 1) -> EventBatch:
    """Create an empty response with the replay ID ``at``."""
    return EventBatch([], [], [], [], at, pending, 0)


def delivery(*replay_ids: bytes) -> EventBatch:
    """Create a response with events."""
    count = len(replay_ids)
    return EventBatch(list(replay_ids), [None] * count, [""] * count, [b""] * count, replay_ids[-1], 0, 0)


def test_end_is_not_reached_without_evidence() -> None:
    evidence = EndOfStream()
    assert (evidence.is_reached, evidence.has_event) == (False, False)


# -- an event of the second subscription -----------------------------------------------------------------------------


def test_reader_reaches_the_end_with_the_first_event_of_the_second_subscription() -> None:
    evidence = EndOfStream()
    evidence.reference_answered(delivery(replay_id(7)))
    evidence.reader_took([replay_id(3), replay_id(5)])
    assert (evidence.is_reached, evidence.has_event) == (False, True)
    evidence.reader_took([replay_id(7), replay_id(9)])
    assert evidence.is_reached


def test_first_event_of_the_second_subscription_may_arrive_after_the_reader_read_it() -> None:
    evidence = EndOfStream()
    evidence.reader_took([replay_id(5), replay_id(7), replay_id(9)])
    evidence.reader_took([replay_id(11)])
    assert not evidence.is_reached
    evidence.reference_answered(delivery(replay_id(7)))
    assert evidence.is_reached


def test_only_the_first_event_of_the_second_subscription_is_a_reference() -> None:
    """The first event is the earliest evidence for the time of the request."""
    evidence = EndOfStream()
    evidence.reference_answered(delivery(replay_id(7)))
    evidence.reference_answered(delivery(replay_id(9)))
    evidence.reader_took([replay_id(8), replay_id(9)])
    assert not evidence.is_reached


def test_events_with_greater_replay_ids_than_the_reference_are_no_evidence() -> None:
    """Replay IDs are opaque: an event before the reference may have a greater one."""
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


def test_reader_reaches_the_end_with_the_event_named_by_the_second_subscription() -> None:
    evidence = EndOfStream()
    evidence.reference_answered(empty(replay_id(7)))
    evidence.reader_took([replay_id(5)])
    assert (evidence.is_reached, evidence.has_event) == (False, False)
    evidence.reader_took([replay_id(7)])
    assert evidence.is_reached


def test_reader_reaches_the_end_with_the_replay_id_of_the_second_subscription() -> None:
    """The start position of the reader is no evidence: the reader needs a response of its own."""
    evidence = EndOfStream()
    evidence.reference_answered(empty(replay_id(7)))
    assert not evidence.is_reached
    evidence.reader_answered(empty(replay_id(7)))
    assert evidence.is_reached


def test_reader_that_already_received_that_replay_id_has_reached_the_end() -> None:
    for unknown in (replay_id(7), b"unknown form"):
        evidence = EndOfStream()
        evidence.reader_answered(empty(unknown))
        evidence.reference_answered(empty(unknown))
        assert evidence.is_reached, "equal replay IDs may have an unknown format"


def test_the_first_replay_id_of_the_second_subscription_stays_the_reference() -> None:
    evidence = EndOfStream()
    evidence.reference_answered(empty(replay_id(7)))
    evidence.reference_answered(empty(replay_id(9)))
    evidence.reader_took([replay_id(7)])
    assert evidence.is_reached


# -- empty responses of both subscriptions ---------------------------------------------------------------------------


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
        assert not evidence.is_reached, "an empty response of the second subscription alone is no evidence"
        evidence.reader_answered(reader)
    assert evidence.is_reached


def test_seeking_reader_reaches_the_end_only_past_the_reference() -> None:
    evidence = EndOfStream()
    evidence.reference_answered(empty(replay_id(700)))
    for number in (10, 250, 699):
        evidence.reader_answered(empty(replay_id(number)))
        assert not evidence.is_reached
    evidence.reader_answered(empty(replay_id(701)))
    assert evidence.is_reached


def test_greater_replay_ids_alone_do_not_confirm_the_end() -> None:
    """A greater replay ID of the reader counts only in an empty response to pending requests."""
    evidence = EndOfStream()
    evidence.reference_answered(empty(replay_id(700)))
    evidence.reader_took([replay_id(901), replay_id(902)])
    assert not evidence.is_reached
    evidence.reader_answered(empty(replay_id(902), pending=0))
    assert not evidence.is_reached, "a response without pending requests is no evidence"
    evidence.reader_answered(empty(b""))
    assert not evidence.is_reached, "a response without a replay ID is no evidence"
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
def test_replay_ids_in_unknown_or_different_formats_do_not_confirm_the_end(reader: bytes, second: bytes) -> None:
    evidence = EndOfStream()
    evidence.reference_answered(empty(second))
    evidence.reader_answered(empty(reader))
    assert not evidence.is_reached


@pytest.mark.parametrize("length", [8, 10])
def test_replay_ids_of_both_observed_formats_are_compared(length: int) -> None:
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


# -- any sequence of responses ---------------------------------------------------------------------------------------

_numbers = st.integers(0, 30)
_steps = st.lists(
    st.tuples(st.just("took"), st.lists(_numbers, min_size=1, max_size=4))
    | st.tuples(st.just("answered"), st.lists(_numbers, min_size=1, max_size=1)),
    max_size=20,
)


@given(start=_numbers, steps=_steps)
def test_end_is_never_reached_without_a_response_of_the_second_subscription(
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
def test_reader_is_never_at_the_end_before_it_has_all_earlier_events(stream: list[int], opened: st.DataObject) -> None:
    """The replay IDs are in any order. The second subscription opens after ``count`` events were published."""
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
    """Source whose empty responses contain no position."""

    confirms_positions: ClassVar[bool] = False


def during(
    source: ScriptedAsyncSource,
    use: Callable[[EndOfStream | None], Coroutine[Any, Any, Any]],
    measured: ServerTime | None = MEASURED,
) -> Any:
    """Run ``use`` with the second subscription; check that no subscription stays open; return the result."""

    async def main() -> Any:
        context = reference(source, TOPIC, measured, silence_timeout=300.0, clock=virtual_clock)
        async with context as found:
            return await use(found)

    try:
        return run_in_virtual_time(main())
    finally:
        assert source.open_subscriptions == 0


async def _after_a_while(found: EndOfStream | None) -> EndOfStream | None:
    await asyncio.sleep(60)
    return found


@pytest.mark.parametrize(
    ("source", "measured"),
    [(ScriptedAsyncSource(events(1)), None), (StreamingSource(events(1)), MEASURED)],
    ids=["time not measured", "Streaming API"],
)
def test_no_second_subscription_is_opened_if_the_end_cannot_be_confirmed(
    source: ScriptedAsyncSource, measured: ServerTime | None
) -> None:
    assert during(source, _after_a_while, measured) is None
    assert source.starts == []


def test_second_subscription_starts_at_latest_and_requests_one_event() -> None:
    source = ScriptedAsyncSource(events(1), [Pause(5), Keepalive()])
    during(source, _after_a_while)
    assert (source.starts, source.limits) == ([StartFrom.LATEST], [1])


def test_opened_at_is_a_lower_bound_of_the_time_of_the_request() -> None:
    async def main() -> EndOfStream | None:
        await asyncio.sleep(10)
        source = ScriptedAsyncSource(events(1), [Pause(5), Keepalive()])
        context = reference(source, TOPIC, MEASURED, silence_timeout=300.0, clock=virtual_clock)
        async with context as found:
            return await _after_a_while(found)

    found = run_in_virtual_time(main())
    assert found is not None
    assert found.opened_at == BEGINNING + timedelta(seconds=10 - 2), "the response may have taken up to 2 s"


def test_empty_response_is_evidence_for_a_reader_at_its_position() -> None:
    found = during(ScriptedAsyncSource(events(1), [Pause(5), Keepalive(at=POSITION)]), _after_a_while)
    assert not found.is_reached
    found.reader_took([POSITION])
    assert found.is_reached
    found = during(
        ScriptedAsyncSource(events(1), [Pause(5), Keepalive(at=unused_replay_id_after(POSITION))]), _after_a_while
    )
    found.reader_took([POSITION])
    assert not found.is_reached


def test_event_is_evidence_for_a_reader_that_reads_it() -> None:
    source = ScriptedAsyncSource(events(4), [Pause(5), Deliver(1)], latest_from=2)
    found = during(source, _after_a_while)
    assert found.has_event
    assert not found.is_reached
    found.reader_took([source.stream[1].replay_id, source.stream[2].replay_id])
    assert found.is_reached


@pytest.mark.parametrize("fault", [ServiceUnavailableError("cut"), QuotaExceededError("used up")])
def test_fault_of_the_second_subscription_is_logged_and_confirms_nothing(
    fault: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    found = during(ScriptedAsyncSource(events(1), [Pause(5), fault]), _after_a_while)
    assert not found.is_reached
    assert f"{TOPIC}: the subscription that looks for the end of the stream failed: {fault}" in caplog.text


@pytest.mark.parametrize(
    ("fault", "count"), [(ServiceUnavailableError("cut"), 2), (QuotaExceededError("used up"), 1)], ids=str
)
def test_second_subscription_of_a_wait_is_reopened_after_a_fault_that_may_pass(fault: Exception, count: int) -> None:
    source = ScriptedAsyncSource(events(1), [Pause(5), fault, Keepalive(at=POSITION)])
    found = during(source, _after_a_while)
    found.reader_took([POSITION])
    assert (found.is_reached, source.starts) == (count == 2, [StartFrom.LATEST] * count)
    assert found.opened_at == BEGINNING - timedelta(seconds=2), "a later reference also confirms the first request"


def test_error_of_the_wait_closes_the_second_subscription() -> None:
    async def fail(found: EndOfStream | None) -> None:
        await asyncio.sleep(1)
        raise KeyError("of the wait")

    with pytest.raises(KeyError, match="of the wait"):
        during(ScriptedAsyncSource(events(1)), fail)


def test_cancelled_wait_closes_the_second_subscription() -> None:
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
