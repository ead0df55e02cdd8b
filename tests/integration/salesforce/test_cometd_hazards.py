"""Faults of CometD connections and of replay markers, with the client of aiosfstream ("stock") and with our client.

The stock client loses events, hangs or hides the fault, so it is expected to fail each of these tests. If it passes
one, that test proves nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

import aiosfstream
import pytest
from aiosfstream import ReplayMarker, ReplayMarkerStoragePolicy, ReplayOption
from aiosfstream.auth import PasswordAuthenticator
from aiosfstream.exceptions import AuthenticationError, ReplayError, ServerError, TransportError

from tests.support.cometd_clients import TokenAuthenticator, cometd_client
from tests.support.cometd_proxy import (
    FIRST_CONNECT,
    CometdProxy,
    answer,
    call_before_forwarding,
    drop,
    hang,
    lose,
    reply,
    rewrite,
)
from tests.support.localorg import LocalOrg

DEADLINE = 60.0
"""Seconds within which each awaited condition must become true."""

STOCK_DEADLINE = 1.0
"""Shorter deadline for the stock client, which is expected to wait in vain."""

hazard = pytest.mark.parametrize(
    "kind",
    [pytest.param("stock", marks=pytest.mark.xfail(strict=True, reason="known fault of the stock client")), "ours"],
)
REPLAY_ID_REFUSED = (
    "400::The replayId {7} you provided was invalid.  Please provide a valid ID, -2 to replay all events, or -1 to "
    "replay only new events."
)
_amounts = itertools.count(1)


@dataclass
class Scene:
    """Org with a proxy before it, and a new topic."""

    org: LocalOrg
    proxy: CometdProxy
    topic: str

    def publish(self, *amounts: int) -> None:
        self.org.publish(self.topic, [{"Amount__c": float(amount)} for amount in amounts])

    def authenticator(self) -> TokenAuthenticator:
        return TokenAuthenticator(self.org.token, self.proxy.url)

    def client(self, kind: str, **options: Any) -> AbstractAsyncContextManager[aiosfstream.Client]:
        return cometd_client(kind, options.pop("authenticator", None) or self.authenticator(), **options)


@pytest.fixture
async def scene(org: LocalOrg, topic: str) -> AsyncIterator[Scene]:
    org.knobs(cometd_connect_seconds=0.3)
    async with CometdProxy.running(org.instance_url) as proxy:
        yield Scene(org, proxy, topic)


@pytest.fixture(autouse=True)
def no_longer_than_needed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.node.get_closest_marker("xfail") is not None:
        monkeypatch.setattr(request.module, "DEADLINE", STOCK_DEADLINE)


def amount_of(message: dict[str, Any]) -> int:
    return int(message["data"]["payload"]["Amount__c"])


async def amounts(client: aiosfstream.Client, count: int) -> list[int]:
    """Receive and mark ``count`` messages, and return their amounts."""
    received = []
    async with asyncio.timeout(DEADLINE):
        while len(received) < count:
            message = await client.receive()
            async with client.replay_storage(message):
                received.append(amount_of(message))
    return received


async def amounts_over_errors(client: aiosfstream.Client, topic: str, count: int) -> list[int]:
    """Do the same, but reopen the client after an error, as applications do that store their position."""
    received: list[int] = []
    async with asyncio.timeout(DEADLINE):
        while len(received) < count:
            try:
                received += await amounts(client, 1)
            except (TransportError, ServerError):
                await client.close()
                await client.open()
                await client.subscribe(topic)
    return received


async def opened(client: aiosfstream.Client, topic: str) -> None:
    async with asyncio.timeout(DEADLINE):
        await client.open()
        await client.subscribe(topic)


def markers_from_the_start() -> aiosfstream.DefaultMappingStorage:
    return aiosfstream.DefaultMappingStorage({}, default_id=ReplayOption.ALL_EVENTS)


# --- the connection


@hazard
@pytest.mark.parametrize("arriving", [0, 40], ids=["nothing arrives", "a part arrives"])
async def test_lost_response_raises_and_no_event_is_missed(scene: Scene, kind: str, arriving: int) -> None:
    async with scene.client(kind, replay=markers_from_the_start()) as client:
        await opened(client, scene.topic)
        scene.publish(1)
        assert await amounts(client, 1) == [1]
        scene.proxy.next("/meta/connect", lose(arriving, lambda: scene.publish(2)))
        await scene.proxy.until(lambda: scene.proxy.begun == 1)
        reading = asyncio.create_task(amounts_over_errors(client, scene.topic, 2))
        await scene.proxy.until(lambda: scene.proxy.acted == 1)
        scene.publish(3)
        assert await reading == [2, 3]
        assert b'"Amount__c":2.0' in b"".join(scene.proxy.answered[:-1]).replace(b" ", b"")


@hazard
async def test_no_event_is_missed_when_a_response_is_lost_during_processing(scene: Scene, kind: str) -> None:
    async with scene.client(kind, replay=markers_from_the_start()) as client:
        await opened(client, scene.topic)
        scene.proxy.next("/meta/connect", lose(happens=lambda: scene.publish(1)))
        await scene.proxy.until(lambda: scene.proxy.begun == 1)
        await scene.proxy.until(lambda: scene.proxy.acted == 1)
        polls = len(scene.proxy.requests)
        scene.publish(2)
        if kind == "stock":  # the stock client polls again without the application
            await scene.proxy.until(lambda: len(scene.proxy.requests) > polls + 1)
        assert await amounts_over_errors(client, scene.topic, 2) == [1, 2]


@hazard
async def test_lost_session_raises_instead_of_skipping_events(scene: Scene, kind: str) -> None:
    async with scene.client(kind) as client:  # new events only: there is no marker yet
        await opened(client, scene.topic)
        scene.proxy.next("/meta/handshake", call_before_forwarding(lambda: scene.publish(1)))
        scene.org.fault("cometd_kill_sessions")
        with pytest.raises(ServerError, match="Unknown client"):
            await amounts(client, 1)


@hazard
async def test_lost_session_raises_instead_of_replaying_events(scene: Scene, kind: str) -> None:
    scene.publish(1, 2)
    async with scene.client(kind, replay=ReplayOption.ALL_EVENTS) as client:
        await opened(client, scene.topic)
        assert await amounts(client, 2) == [1, 2]
        scene.org.fault("cometd_kill_sessions")
        with pytest.raises(ServerError):
            await amounts(client, 1)


@hazard
async def test_subscription_that_cannot_be_resumed_raises(scene: Scene, kind: str) -> None:
    scene.publish(1)
    async with scene.client(kind, replay=markers_from_the_start()) as client:
        await opened(client, scene.topic)
        assert await amounts(client, 1) == [1]
        scene.org.fault("cometd_fail", channel="/meta/subscribe", error=REPLAY_ID_REFUSED, times=None)
        scene.org.fault("cometd_kill_sessions")
        with pytest.raises(ServerError):
            await amounts(client, 1)


@hazard
async def test_interval_in_advice_is_read_as_milliseconds(scene: Scene, kind: str) -> None:
    async with scene.client(kind, replay=markers_from_the_start()) as client:
        advice = {"reconnect": "retry", "interval": 20, "timeout": 110_000}
        scene.proxy.next(FIRST_CONNECT, rewrite(lambda messages: [{**messages[0], "advice": advice}]))
        await opened(client, scene.topic)
        scene.publish(1)
        assert await amounts(client, 1) == [1]


@hazard
async def test_failed_login_after_a_refused_token_raises(scene: Scene, kind: str) -> None:
    authenticator = scene.authenticator()
    async with scene.client(kind, authenticator=authenticator) as client:
        await opened(client, scene.topic)

        async def failing() -> tuple[int, dict[str, Any]]:
            return 400, {"error": "invalid_grant"}

        authenticator._authenticate = failing
        scene.org.revoke()
        with pytest.raises(AuthenticationError):
            await amounts(client, 1)


@hazard
async def test_repeatedly_refused_token_raises_after_one_new_login(scene: Scene, kind: str) -> None:
    authenticator = scene.authenticator()
    async with scene.client(kind, authenticator=authenticator) as client:
        await opened(client, scene.topic)
        refused = {"successful": False, "error": "401::Authentication invalid"}
        scene.proxy.next("/meta/connect", reply(**refused), times=1000)
        with pytest.raises(ServerError, match="Authentication invalid"):
            await amounts(client, 1)
        assert authenticator.calls == 2


@hazard
async def test_refused_connect_without_advice_raises_after_one_request(scene: Scene, kind: str) -> None:
    async with scene.client(kind) as client:
        await opened(client, scene.topic)
        before = len(scene.proxy.requests)
        scene.org.fault("cometd_kill_sessions", how="no_advice")
        with pytest.raises(ServerError, match="Unknown client"):
            await amounts(client, 1)
        assert len(scene.proxy.requests) <= before + 1


async def test_session_ended_by_the_server_raises(scene: Scene) -> None:
    async with scene.client("ours") as client:
        await opened(client, scene.topic)
        scene.org.fault("cometd_kill_sessions", how="disconnect")
        with pytest.raises(ServerError, match=r"Unknown client|ended the session"):
            await amounts(client, 1)


@hazard
@pytest.mark.parametrize("channel", ["/meta/handshake", FIRST_CONNECT])
async def test_open_times_out_without_a_response(scene: Scene, kind: str, channel: str) -> None:
    async with scene.client(kind, connection_timeout=0.2) as client:
        scene.proxy.next(channel, hang())
        with pytest.raises(TransportError):
            async with asyncio.timeout(DEADLINE):
                await client.open()


@hazard
async def test_failed_open_leaves_no_task_running(scene: Scene, kind: str) -> None:
    before = asyncio.all_tasks()
    async with scene.client(kind) as client:
        scene.proxy.next(FIRST_CONNECT, answer(500, "<html>Internal Server Error</html>"), times=10)
        with pytest.raises(TransportError):
            await client.open()
        await client.close()
        ours = [task for task in asyncio.all_tasks() - before if "aiocometd" in repr(task) or "cometd_" in repr(task)]
        assert ours == []


@hazard
async def test_close_raises_no_error_in_the_event_loop(scene: Scene, kind: str) -> None:
    errors: list[str] = []
    async with scene.client(kind) as client:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: errors.append(context["message"]))
        await opened(client, scene.topic)
        await scene.proxy.until(lambda: len(scene.proxy.on("/meta/connect")) > 1)
        await client.close()
        await asyncio.sleep(0)
        assert errors == []
        assert scene.proxy.requests[-1]["channel"] == "/meta/disconnect"


@hazard
async def test_cancelled_receive_loses_no_event(scene: Scene, kind: str) -> None:
    async with scene.client(kind, replay=ReplayOption.ALL_EVENTS) as client:
        await opened(client, scene.topic)
        scene.publish(*range(1, 61))
        received: list[int] = []
        async with asyncio.timeout(DEADLINE):
            for steps in itertools.cycle(range(6)):
                waiting = asyncio.create_task(client.receive())
                for _ in range(steps):
                    await asyncio.sleep(0)
                waiting.cancel()
                [outcome] = await asyncio.gather(waiting, return_exceptions=True)
                if isinstance(outcome, dict):
                    received.append(amount_of(outcome))
                    if received[-1] == 60:
                        break
                elif not client.has_pending_messages:
                    await asyncio.sleep(0.01)
        assert received == list(range(1, 61))


@hazard
async def test_events_in_the_subscribe_response_do_not_block_the_subscription(scene: Scene, kind: str) -> None:
    events = [
        {"channel": scene.topic, "data": {"payload": {"Amount__c": n}, "event": {"replayId": n}}} for n in (1, 2, 3)
    ]
    async with scene.client(
        kind, max_pending_count=2, replay_storage_policy=ReplayMarkerStoragePolicy.MANUAL
    ) as client:
        scene.proxy.next("/meta/subscribe", rewrite(lambda messages: [*events, *messages]))
        await opened(client, scene.topic)
        assert await amounts(client, 3) == [1, 2, 3]


@hazard
async def test_expired_session_of_a_slow_application_raises_without_duplicates(scene: Scene, kind: str) -> None:
    scene.org.knobs(cometd_connect_seconds=60, cometd_batch_events=4)
    received: list[int] = []
    policy = ReplayMarkerStoragePolicy.MANUAL
    async with scene.client(
        kind, max_pending_count=2, replay=ReplayOption.ALL_EVENTS, replay_storage_policy=policy
    ) as client:
        await opened(client, scene.topic)
        scene.org.knobs(cometd_reconnect_seconds=0.2)  # valid from the next response, which has the events
        scene.publish(*range(1, 9))
        received += await amounts(client, 1)
        await until_forgotten(scene.org, client)
        with contextlib.suppress(ServerError, TimeoutError):
            while len(received) < 20:
                received += await amounts(client, 1)
        assert received == list(range(1, 1 + len(received)))
        assert client.closed


async def until_forgotten(org: LocalOrg, client: aiosfstream.Client) -> None:
    client_id = client._transport.client_id
    async with asyncio.timeout(DEADLINE):
        while client_id in [session["client_id"] for session in org.admin("GET", "/org")["cometd_sessions"]]:
            await asyncio.sleep(0.02)


@hazard
def test_client_created_outside_the_event_loop_can_be_used_in_it(
    org: LocalOrg, topic: str, kind: str, recwarn: pytest.WarningsRecorder
) -> None:
    from airflow_provider_sfstream.salesforce.streaming.cometd.client import CometdClient
    from tests.support.stock_aiosfstream import StockClient, stock_asyncio

    authenticator = TokenAuthenticator(org.token, f"http://localhost:{org.http_port}")
    make: Callable[..., aiosfstream.Client] = CometdClient if kind == "ours" else StockClient
    client = make(authenticator, replay=ReplayOption.ALL_EVENTS)
    org.publish(topic, [{"Amount__c": 1.0}])

    async def main() -> list[int]:
        try:
            await opened(client, topic)
            return await amounts(client, 1)
        finally:
            if isinstance(client, StockClient):
                await client.abandon()
            await client.close()

    with stock_asyncio():
        assert asyncio.run(main()) == [1]
    assert not [warning for warning in recwarn if issubclass(warning.category, DeprecationWarning)]


@hazard
async def test_no_secret_is_logged(org: LocalOrg, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    authenticator = PasswordAuthenticator("the-key", "the-secret", "user@example.com", "the-password")
    authenticator.__class__ = type("Local", (PasswordAuthenticator,), {"_token_url": "http://localhost:1/token"})
    async with cometd_client(kind, authenticator) as client:
        with pytest.raises(AuthenticationError):
            await client.open()
        assert "the-secret" not in caplog.text + repr(client)
        assert "the-password" not in caplog.text + repr(client)


# --- replay IDs and markers


@hazard
async def test_default_policy_marks_a_message_after_its_processing(scene: Scene, kind: str) -> None:
    markers: dict[str, ReplayMarker] = {}
    async with scene.client(kind, replay=markers) as client:
        await opened(client, scene.topic)
        scene.publish(1)
        async with asyncio.timeout(DEADLINE):
            message = await client.receive()
        assert markers == {}  # the application may still fail to process the message
        async with client.replay_storage(message):
            pass
        assert list(markers) == [scene.topic]


@hazard
async def test_markers_follow_the_order_of_arrival_and_ignore_dates(scene: Scene, kind: str) -> None:
    markers: dict[str, ReplayMarker] = {}
    async with scene.client(kind, replay=markers) as client:
        dates = ["2026-11-21T10:00:00.500Z", "2026-11-21T10:00:00.400Z", "2026-11-21T10:00:00Z", None]
        for number, date in enumerate(dates):
            payload = {} if date is None else {"CreatedDate": date}
            message = {"channel": scene.topic, "data": {"payload": payload, "event": {"replayId": number}}}
            async with client.replay_storage(message):
                pass
            assert markers[scene.topic].replay_id == number


@hazard
async def test_an_event_without_a_date_is_received(scene: Scene, kind: str) -> None:
    def without_date(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for message in messages:
            message.get("data", {}).get("payload", {}).pop("CreatedDate", None)
        return messages

    policy = ReplayMarkerStoragePolicy.AUTOMATIC
    async with scene.client(kind, replay={}, replay_storage_policy=policy) as client:
        scene.proxy.next("/meta/connect", rewrite(without_date), times=3)
        await opened(client, scene.topic)
        scene.publish(1)
        async with asyncio.timeout(DEADLINE):
            assert amount_of(await client.receive()) == 1


@hazard
async def test_message_is_returned_again_after_its_marker_could_not_be_stored(scene: Scene, kind: str) -> None:
    class Broken(aiosfstream.ReplayMarkerStorage):  # type: ignore[misc]
        works = False

        async def get_replay_marker(self, subscription: str) -> ReplayMarker | None:
            return None

        async def set_replay_marker(self, subscription: str, replay_marker: ReplayMarker) -> None:
            if not self.works:
                raise ReplayError("the database is gone")

    storage = Broken()
    policy = ReplayMarkerStoragePolicy.AUTOMATIC
    async with scene.client(kind, replay=storage, replay_storage_policy=policy) as client:
        await opened(client, scene.topic)
        scene.publish(1)
        async with asyncio.timeout(DEADLINE):
            with pytest.raises(ReplayError):
                await client.receive()
            storage.works = True
            assert amount_of(await client.receive()) == 1


@hazard
async def test_replay_id_zero_is_sent(scene: Scene, kind: str) -> None:
    async with scene.client(kind, replay={scene.topic: ReplayMarker("", 0)}) as client:
        scene.proxy.next("/meta/subscribe", reply())
        await opened(client, scene.topic)
        assert scene.proxy.on("/meta/subscribe")[0]["ext"]["replay"] == {scene.topic: 0}


@hazard
async def test_replay_map_has_the_channel_without_its_filter(scene: Scene, kind: str) -> None:
    filtered = "/topic/Invoices?Status__c='Open'"
    async with scene.client(kind, replay={filtered: ReplayMarker("", 7)}) as client:
        scene.proxy.next("/meta/subscribe", reply())
        await opened(client, filtered)
        assert scene.proxy.on("/meta/subscribe")[0]["ext"]["replay"] == {"/topic/Invoices": 7}


@hazard
async def test_marker_is_stored_under_the_channel_name_with_its_filter(scene: Scene, kind: str) -> None:
    filtered = "/topic/Invoices?Status__c='Open'"
    markers: dict[str, ReplayMarker] = {}
    async with scene.client(kind, replay=markers) as client:
        scene.proxy.next("/meta/subscribe", reply())
        await opened(client, filtered)
        message = {"channel": "/topic/Invoices", "data": {"event": {"replayId": 5, "createdDate": "2026-11-21"}}}
        async with client.replay_storage(message):
            pass
        assert markers[filtered].replay_id == 5


@hazard
@pytest.mark.parametrize(
    "error",
    [
        "400::The channel you requested to subscribe to does not exist {/topic/Invoices}",
        "400::The replayId for channel {/topic/X} wasn't found using the provided replay ID map {{/topic/Y=5}}",
    ],
)
async def test_replay_fallback_is_used_for_refused_replay_ids_only(scene: Scene, kind: str, error: str) -> None:
    async with scene.client(
        kind, replay={scene.topic: ReplayMarker("", 7)}, replay_fallback=ReplayOption.NEW_EVENTS
    ) as client:
        scene.proxy.next("/meta/subscribe", reply(successful=False, error=error))
        with pytest.raises(ServerError):
            await opened(client, scene.topic)
        assert len(scene.proxy.on("/meta/subscribe")) == 1


# --- works with both clients, and must continue to work


both = pytest.mark.parametrize("kind", ["stock", "ours"])


@both
@pytest.mark.parametrize(("replay", "expected"), [(ReplayOption.ALL_EVENTS, 1), (ReplayOption.NEW_EVENTS, 2)])
async def test_replay_option_selects_all_or_new_events(
    scene: Scene, kind: str, replay: ReplayOption, expected: int
) -> None:
    scene.publish(1)
    async with scene.client(kind, replay=replay) as client:
        await opened(client, scene.topic)
        scene.publish(2)
        assert (await amounts(client, 1)) == [expected]


@both
async def test_a_marker_resumes_after_its_event(scene: Scene, kind: str) -> None:
    scene.publish(1, 2, 3)
    markers: dict[str, ReplayMarker] = {}
    storage = aiosfstream.DefaultMappingStorage(markers, default_id=ReplayOption.ALL_EVENTS)
    async with scene.client(kind, replay=storage) as client:
        await opened(client, scene.topic)
        assert await amounts(client, 1) == [1]
        await client.close()
        if kind == "ours":
            await opened(client, scene.topic)
            assert await amounts(client, 2) == [2, 3]


@both
async def test_refused_replay_id_uses_the_replay_fallback(scene: Scene, kind: str) -> None:
    scene.publish(1)
    async with scene.client(
        kind, replay={scene.topic: ReplayMarker("", 7)}, replay_fallback=ReplayOption.ALL_EVENTS
    ) as client:
        scene.proxy.next("/meta/subscribe", reply(successful=False, error=REPLAY_ID_REFUSED))
        await opened(client, scene.topic)
        assert await amounts(client, 1) == [1]


@both
async def test_refused_replay_id_without_a_fallback_raises(scene: Scene, kind: str) -> None:
    async with scene.client(kind, replay={scene.topic: ReplayMarker("", 7)}) as client:
        scene.proxy.next("/meta/subscribe", reply(successful=False, error=REPLAY_ID_REFUSED))
        with pytest.raises(ServerError) as refused:
            await opened(client, scene.topic)
        assert refused.value.error_code == 400


@both
async def test_an_expired_token_is_renewed(scene: Scene, kind: str) -> None:
    authenticator = scene.authenticator()
    async with scene.client(kind, authenticator=authenticator, replay=markers_from_the_start()) as client:
        await opened(client, scene.topic)
        scene.org.revoke()
        scene.publish(1)
        assert await amounts(client, 1) == [1]
        assert authenticator.calls == 2


async def test_dropped_poll_raises_immediately(scene: Scene) -> None:
    async with scene.client("ours", replay=markers_from_the_start()) as client:
        await opened(client, scene.topic)
        scene.proxy.next("/meta/connect", drop())
        with pytest.raises(TransportError):
            await amounts(client, 1)
