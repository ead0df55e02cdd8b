"""Waiting for a limited time ends nothing; leaving ends everything."""

from __future__ import annotations

import asyncio

import pytest

from airflow_provider_sfstream.exceptions import QuotaExceededError
from airflow_provider_sfstream.streams.watch.arrivals import ReadAhead
from tests.support.virtual_time import run_in_virtual_time, virtual_clock


class Numbers:
    """Yields a number after each of ``pauses``, then ends with ``error``."""

    def __init__(self, *pauses: float, error: Exception | None = None) -> None:
        self.pauses, self.error = pauses, error
        self.begun: list[int] = []
        self.closed_at: float | None = None

    async def __call__(self):
        try:
            for number, pause in enumerate(self.pauses):
                self.begun.append(number)
                await asyncio.sleep(pause)
                yield number
            if self.error is not None:
                raise self.error
        finally:
            await asyncio.sleep(1)
            self.closed_at = virtual_clock()


def test_a_timeout_does_not_end_what_is_read():
    async def main():
        numbers = Numbers(0, 25, 0)
        async with ReadAhead(numbers()) as reader:
            seen = [(await reader.next(seconds), virtual_clock()) for seconds in (10, 10, 10, 10, None)]
        return seen, numbers.closed_at

    seen, closed_at = run_in_virtual_time(main())
    assert seen == [(0, 0), (None, 10), (None, 20), (1, 25), (2, 25)]
    assert closed_at == 26


def test_entering_begins_to_read_and_no_more_is_read_than_asked_for():
    async def main():
        numbers = Numbers(0, 0, 0)
        async with ReadAhead(numbers()) as reader:
            await asyncio.sleep(5)
            begun = [list(numbers.begun)]
            for _ in range(2):
                await reader.next(None)
                await asyncio.sleep(5)
                begun.append(list(numbers.begun))
        return begun

    assert run_in_virtual_time(main()) == [[0], [0], [0, 1]]


def test_an_error_is_raised_where_it_is_waited_for():
    async def main():
        numbers = Numbers(0, error=QuotaExceededError("used up"))
        async with ReadAhead(numbers()) as reader:
            await reader.next(None)
            with pytest.raises(QuotaExceededError):
                await reader.next(None)
        return numbers.closed_at

    assert run_in_virtual_time(main()) == 1


@pytest.mark.parametrize("seconds", [0, 1])
def test_leaving_after_an_error_that_nobody_waited_for_makes_no_noise(seconds):
    async def main():
        async with ReadAhead(Numbers(error=QuotaExceededError("used up"))()):
            await asyncio.sleep(seconds + 1)

    run_in_virtual_time(main())


@pytest.mark.parametrize("before", [None, 0, 5], ids=["at once", "when begun", "while it waits"])
def test_leaving_ends_a_read_in_flight(before):
    async def main():
        numbers = Numbers(100)
        async with ReadAhead(numbers()):
            if before is not None:
                await asyncio.sleep(before)
        return numbers

    numbers = run_in_virtual_time(main())
    assert numbers.closed_at == (None if before is None else before + 1)


def test_an_error_on_the_way_out_makes_no_noise():
    async def failing_to_close():
        try:
            await asyncio.sleep(100)
            yield 0
        finally:
            raise QuotaExceededError("used up")

    async def main():
        async with ReadAhead(failing_to_close()):
            await asyncio.sleep(5)

    run_in_virtual_time(main())


def test_who_waits_can_be_cancelled_even_while_leaving():
    async def main():
        numbers = Numbers(100)

        async def wait():
            async with ReadAhead(numbers()) as reader:
                await reader.next(None)

        waiting = asyncio.create_task(wait())
        await asyncio.sleep(5)
        waiting.cancel()
        await asyncio.sleep(0.5)  # it is leaving, and what it reads takes a second to close
        waiting.cancel()
        await asyncio.wait({waiting})
        assert waiting.cancelled()
        await asyncio.sleep(1)
        return numbers.closed_at

    assert run_in_virtual_time(main()) == 6
