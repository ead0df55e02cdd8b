"""The second subscription of a wait: what it answers is evidence, what fails is logged, and it ends with the wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import timedelta
from typing import Any, ClassVar

import pytest

from airflow_provider_sfstream.exceptions import QuotaExceededError, ServiceUnavailableError
from airflow_provider_sfstream.salesforce.events import StartFrom
from airflow_provider_sfstream.salesforce.server_time import ServerTime
from airflow_provider_sfstream.streams.end_of_stream import Reference, reference
from tests.support.scripted_async_source import Pass, ScriptedAsyncSource, behind
from tests.support.scripted_source import Deliver, Keepalive, events, replay_id
from tests.support.virtual_time import BEGINNING, run_in_virtual_time, virtual_clock

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
