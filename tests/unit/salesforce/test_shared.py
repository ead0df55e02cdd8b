"""Resource that all users of a key share: opening, closing, and failures of users."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import pytest

from airflow_provider_sfstream.hooks.salesforce_events import SharedOnLoop


class Resource:
    def __init__(self) -> None:
        self.closed = False

    async def aclose(self) -> None:
        await asyncio.sleep(0)
        self.closed = True


@dataclass
class Opener:
    """Function that opens a resource as soon as ``gate`` is set."""

    gate: asyncio.Event = field(default_factory=asyncio.Event)
    opened: list[Resource] = field(default_factory=list)
    attempts: int = 0
    failures: int = 0

    async def __call__(self) -> Resource:
        self.attempts += 1
        await self.gate.wait()
        if self.failures:
            self.failures -= 1
            raise OSError("cannot be opened")
        self.opened.append(Resource())
        return self.opened[-1]


@pytest.fixture
def shared() -> SharedOnLoop[Resource]:
    return SharedOnLoop()


@pytest.fixture
def opener() -> Opener:
    opener = Opener()
    opener.gate.set()
    return opener


async def steps(count: int = 20) -> None:
    """Let every task run until it waits."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_first_user_opens_and_last_user_closes_the_resource(
    shared: SharedOnLoop[Resource], opener: Opener
) -> None:
    async with shared.use("key", opener) as first:
        async with shared.use("key", opener) as second:
            assert second is first
        assert not first.closed
    assert first.closed
    async with shared.use("key", opener) as third:
        assert third is not first
        assert not third.closed


async def test_each_key_has_its_own_resource(shared: SharedOnLoop[Resource], opener: Opener) -> None:
    async with shared.use("one", opener) as one, shared.use("two", opener) as two:
        assert one is not two
    assert one.closed
    assert two.closed


async def test_users_that_enter_while_it_opens_share_the_resource(
    shared: SharedOnLoop[Resource], opener: Opener
) -> None:
    opener.gate.clear()
    leave = asyncio.Event()

    async def user() -> Resource:
        async with shared.use("key", opener) as resource:
            await leave.wait()
            assert not resource.closed
        return resource

    users = [asyncio.create_task(user()) for _ in range(50)]
    await steps()
    opener.gate.set()
    await steps(200)
    leave.set()
    assert set(await asyncio.gather(*users)) == set(opener.opened)
    assert len(opener.opened) == 1
    assert opener.opened[0].closed


async def test_no_user_receives_a_resource_that_is_closing(shared: SharedOnLoop[Resource], opener: Opener) -> None:
    async def user() -> None:
        async with shared.use("key", opener) as resource:
            await asyncio.sleep(0)
            assert not resource.closed

    # Each user enters after a different number of steps, so some enter while another one closes the resource.
    users = []
    for pause in range(12):
        users.append(asyncio.create_task(user()))
        await steps(pause)
    await asyncio.gather(*users)
    assert all(resource.closed for resource in opener.opened)


async def test_next_user_opens_the_resource_if_the_first_is_cancelled(
    shared: SharedOnLoop[Resource], opener: Opener
) -> None:
    opener.gate.clear()

    async def user() -> Resource:
        async with shared.use("key", opener) as resource:
            return resource

    first, second, third = (asyncio.create_task(user()) for _ in range(3))
    await steps()
    first.cancel()
    third.cancel()
    await steps()
    opener.gate.set()
    assert await second is opener.opened[0]
    assert opener.opened[0].closed
    assert opener.attempts == 2
    assert len(opener.opened) == 1
    assert first.cancelled()
    assert third.cancelled()


async def test_failed_or_cancelled_user_releases_the_resource(shared: SharedOnLoop[Resource], opener: Opener) -> None:
    async with AsyncExitStack() as stack:
        with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the user fails within
            async with shared.use("key", opener):
                resource = await stack.enter_async_context(shared.use("key", opener))
                raise ZeroDivisionError
        assert not resource.closed, "another user still uses the resource"

        async def waiting() -> None:
            async with shared.use("key", opener):
                await asyncio.Event().wait()

        task = asyncio.create_task(waiting())
        await steps()
        task.cancel()
        await asyncio.wait([task])
        assert not resource.closed
    assert resource.closed


async def test_resource_is_opened_again_after_a_failure(shared: SharedOnLoop[Resource], opener: Opener) -> None:
    opener.failures = 1
    with pytest.raises(OSError, match="cannot be opened"):
        async with shared.use("key", opener):
            pass
    async with shared.use("key", opener) as resource:
        assert not resource.closed
    assert opener.attempts == 2


def test_each_event_loop_has_its_own_resource(shared: SharedOnLoop[Resource]) -> None:
    opened: list[Resource] = []

    async def open_resource() -> Resource:
        opened.append(Resource())
        return opened[-1]

    async def outer() -> None:
        async with shared.use("key", open_resource):
            await asyncio.to_thread(asyncio.run, inner())
            assert [resource.closed for resource in opened] == [False, True]

    async def inner() -> None:
        async with shared.use("key", open_resource) as resource:
            assert resource is not opened[0]

    asyncio.run(outer())


async def test_no_repr_shows_a_key(shared: SharedOnLoop[Resource], opener: Opener) -> None:
    async with shared.use("s3cret", opener):
        assert "s3cret" not in repr(shared) + repr(shared.__dict__)
