"""The CometD client against a local org, through a proxy that injects faults."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiocometd
import pytest
from aiosfstream import ConstantReplayId, DefaultMappingStorage, ReplayMarker, ReplayMarkerStoragePolicy, ReplayOption
from aiosfstream.exceptions import AuthenticationError, ClientInvalidOperation, ServerError, TransportError

from airflow_provider_sfstream.exceptions import ConfigurationError, LoginUnavailableError
from airflow_provider_sfstream.salesforce.network.settings import NetworkSettings
from airflow_provider_sfstream.salesforce.replay_ids import replay_id_to_integer
from airflow_provider_sfstream.salesforce.streaming.cometd.client import CometdClient
from airflow_provider_sfstream.salesforce.streaming.cometd.http import HttpError, SessionAuthenticator
from airflow_provider_sfstream.salesforce.streaming.cometd.messages import UnreadableMessageError
from tests.support.cometd_clients import OrgTokens
from tests.support.cometd_proxy import FIRST_CONNECT, CometdProxy, answer, drop, hang, lose, reply, rewrite, trickle
from tests.support.localorg import LocalOrg

DEADLINE = 60.0


@dataclass
class Scene:
    """Org with a proxy before it, and a new topic."""

    org: LocalOrg
    proxy: CometdProxy
    topic: str
    tokens: OrgTokens

    def publish(self, *amounts: int) -> list[int]:
        published = self.org.publish(self.topic, [{"Amount__c": float(amount)} for amount in amounts])
        return [int.from_bytes(replay_id[:8], "big") for replay_id in published]

    @contextlib.asynccontextmanager
    async def client(self, subscribed: bool = True, **options: Any) -> AsyncIterator[CometdClient]:
        options = {"replay": ReplayOption.ALL_EVENTS, "connection_timeout": DEADLINE, **options}
        client = CometdClient(SessionAuthenticator(self.tokens), **options)
        async with asyncio.timeout(4 * DEADLINE):
            try:
                if subscribed:
                    await client.open()
                    await client.subscribe(self.topic)
                yield client
            finally:
                await client.close()

    async def polling(self, action: Any) -> None:
        """Set ``action`` as the response to the next poll, and wait until the client polls."""
        self.proxy.next("/meta/connect", action)
        await self.proxy.until(lambda: self.proxy.begun == 1)


@pytest.fixture
async def scene(org: LocalOrg, topic: str) -> AsyncIterator[Scene]:
    org.knobs(cometd_connect_seconds=0.3)
    async with CometdProxy.running(org.instance_url) as proxy:
        yield Scene(org, proxy, topic, OrgTokens(org, proxy.url))


def amounts(messages: list[Any]) -> list[int]:
    return [int(message["data"]["payload"]["Amount__c"]) for message in messages]


async def received(client: CometdClient, count: int) -> list[Any]:
    messages: list[Any] = []
    while len(messages) < count:
        messages += await client.receive_many(count - len(messages))
    return messages


# --- receiving


async def test_received_messages_equal_those_of_the_org(scene: Scene) -> None:
    replay_ids = scene.publish(1, 2)
    async with scene.client() as client:
        messages = await received(client, 2)

    recorded = scene.org.record(scene.topic, api="streaming")
    assert [message.data for message in messages] == [event["payload"] for event in recorded]
    assert [message["data"]["event"]["replayId"] for message in messages] == replay_ids
    assert [replay_id_to_integer(event["replay_id"]) for event in recorded] == replay_ids
    assert {message["channel"] for message in messages} == {scene.topic}


@pytest.mark.parametrize("size", [1, 7, 1000])
async def test_response_body_may_arrive_in_parts_of_any_size(scene: Scene, size: int) -> None:
    scene.publish(*range(1, 21))
    scene.proxy.next("/meta/connect", trickle(size))
    async with scene.client() as client:
        assert amounts(await received(client, 20)) == list(range(1, 21))


async def test_response_is_read_no_faster_than_the_application_consumes_it(scene: Scene) -> None:
    scene.publish(*range(1, 201))
    async with scene.client(max_pending_count=10) as client:
        consumed: list[int] = []
        while len(consumed) < 200:
            consumed += amounts(await client.receive_many(3))
            assert client.pending_count <= 10
    assert consumed == list(range(1, 201))


async def test_slow_application_does_not_cause_a_response_timeout(scene: Scene) -> None:
    scene.publish(*range(1, 2001))
    async with scene.client(max_pending_count=10, connection_timeout=6) as client:
        await client.receive()
        await asyncio.sleep(6.2)  # more than the client waits for the network
        assert amounts(await received(client, 1999)) == list(range(2, 2001))


async def test_heartbeats_are_returned(scene: Scene) -> None:
    scene.org.knobs(cometd_connect_seconds=0.05)
    async with scene.client() as client:
        assert await client.receive_many(10, heartbeats=True) == []
        scene.publish(1)
        messages: list[Any] = []
        while not messages:
            messages = await client.receive_many(10, heartbeats=True)
        assert amounts(messages) == [1]


@pytest.mark.parametrize("most", [0, -1])
async def test_receive_many_requires_a_positive_count(scene: Scene, most: int) -> None:
    async with scene.client(subscribed=False) as client:
        with pytest.raises(ValueError, match="at least 1"):
            await client.receive_many(most)


async def test_iterating_ends_when_the_client_is_closed(scene: Scene) -> None:
    scene.publish(1)
    got: list[int] = []
    async with scene.client() as client:

        async def read() -> None:
            async for message in client:
                got.extend(amounts([message]))

        reading = asyncio.create_task(read())
        while not got:
            await asyncio.sleep(0.01)
        await client.close()
        await reading
    assert got == [1]


async def test_pending_messages_can_be_received_after_closing(scene: Scene) -> None:
    scene.publish(1, 2)
    async with scene.client() as client:
        assert amounts([await client.receive()]) == [1]
    assert amounts([await client.receive()]) == [2]
    with pytest.raises(ClientInvalidOperation):
        await client.receive()


async def test_a_custom_json_library_parses_and_writes_every_message(scene: Scene) -> None:
    parsed: list[str] = []
    written: list[Any] = []

    def loads(text: str) -> Any:
        assert isinstance(text, str)
        parsed.append(text)
        return json.loads(text)

    def dumps(value: Any) -> str:
        written.extend(value)
        return json.dumps(value)

    scene.publish(1, 2)
    async with scene.client(json_loads=loads, json_dumps=dumps) as client:
        assert amounts(await received(client, 2)) == [1, 2]
    assert len([text for text in parsed if "Amount__c" in text]) == 2
    assert [message["channel"] for message in written] == [message["channel"] for message in scene.proxy.requests]


async def test_one_client_can_have_two_subscriptions(scene: Scene, org: LocalOrg) -> None:
    other = str(org.define("Other__e", Amount__c="double")["name"])
    scene.publish(1)
    org.publish(other, [{"Amount__c": 2.0}])
    async with scene.client(subscribed=False) as client:
        await client.open()
        await client.subscribe(scene.topic)
        await client.subscribe(other)
        messages = await received(client, 2)
        assert {message["channel"] for message in messages} == {scene.topic, other} == client.subscriptions
        await client.unsubscribe(other)
        assert client.subscriptions == {scene.topic}


async def test_second_filter_on_a_subscribed_channel_is_refused(scene: Scene) -> None:
    async with scene.client(subscribed=False) as client:
        await client.open()
        scene.proxy.next("/meta/subscribe", reply(), times=2)
        await client.subscribe("/topic/Invoices?A__c='1'")
        await client.subscribe("/topic/Invoices?A__c='1'")
        with pytest.raises(ClientInvalidOperation, match="another client"):
            await client.subscribe("/topic/Invoices?A__c='2'")


# --- replay


async def test_a_subscription_starts_after_a_replay_id(scene: Scene) -> None:
    replay_ids = scene.publish(1, 2, 3)
    async with scene.client(replay=ConstantReplayId(replay_ids[0])) as client:
        assert amounts(await received(client, 2)) == [2, 3]


async def test_markers_resume_a_reopened_client(scene: Scene) -> None:
    scene.publish(1, 2, 3)
    markers: dict[str, ReplayMarker] = {}
    async with scene.client(replay=ReplayOption.ALL_EVENTS) as client:
        first = await client.receive()
    async with scene.client(subscribed=False, replay=markers) as client:
        async with client.replay_storage(first):
            pass
        for expected in (2, 3):
            await client.open()
            await client.subscribe(scene.topic)
            message = await client.receive()
            assert amounts([message]) == [expected]
            async with client.replay_storage(message):
                pass
            await client.close()


async def test_automatic_policy_marks_returned_messages(scene: Scene) -> None:
    replay_ids = scene.publish(1, 2, 3)
    markers = {scene.topic: ReplayMarker("", replay_ids[0])}
    policy = ReplayMarkerStoragePolicy.AUTOMATIC
    async with scene.client(replay=markers, replay_storage_policy=policy) as client:
        assert amounts([await client.receive()]) == [2]
    assert markers[scene.topic].replay_id == replay_ids[1]


@pytest.mark.parametrize("seed", range(3))
async def test_no_event_is_missed_under_random_faults(scene: Scene, seed: int) -> None:
    chance = random.Random(seed)
    count = 60
    markers: dict[str, ReplayMarker] = {}
    seen: list[int] = []

    async def publish() -> None:
        for amount in range(1, count + 1):
            await asyncio.to_thread(scene.publish, amount)
            fault = chance.choice([None, None, drop(), lose(), lose(100), lose(600), answer(503, "busy"), "kill"])
            if fault == "kill":
                await asyncio.to_thread(scene.org.fault, "cometd_kill_sessions")
            elif fault is not None:
                scene.proxy.next("/meta/connect", fault)

    async def read_until_an_error() -> None:
        replay = DefaultMappingStorage(markers, default_id=ReplayOption.ALL_EVENTS)
        async with scene.client(replay=replay) as client:
            while count not in seen:
                message = await client.receive()
                async with client.replay_storage(message):
                    seen.extend(amounts([message]))

    publishing = asyncio.create_task(publish())
    sessions = 0
    async with asyncio.timeout(4 * DEADLINE):
        while count not in seen:
            sessions += 1
            with contextlib.suppress(TransportError, ServerError):
                await read_until_an_error()
        await publishing
    assert sessions > 3
    assert seen == list(
        range(1, count + 1)
    )  # each event is marked before the next is received, so there are no duplicates either


# --- the connection


async def test_first_connect_is_not_held_and_the_url_has_the_api_version(scene: Scene) -> None:
    scene.org.knobs(cometd_connect_seconds=60)
    async with scene.client(api_version="v58.0") as client:
        assert client.url == f"{scene.proxy.url}/cometd/58.0"
    assert scene.proxy.on("/meta/connect")[0]["advice"] == {"timeout": 0}


@pytest.mark.parametrize("version", ["36.0", "latest", ""])
def test_unsupported_api_version_is_refused(version: str) -> None:
    with pytest.raises(ConfigurationError, match=r"37\.0"):
        CometdClient(SessionAuthenticator(None), api_version=version)  # type: ignore[arg-type]


async def test_cookies_are_kept_for_a_local_ip_address(org: LocalOrg, topic: str) -> None:
    tokens = OrgTokens(org, f"http://127.0.0.1:{org.http_port}")
    async with CometdClient(SessionAuthenticator(tokens)) as client:
        await client.subscribe(topic)  # refused without the session's cookie


async def test_events_are_received_over_tls_and_unknown_authorities_refused(
    org: LocalOrg, topic: str, other_authority: str
) -> None:
    tokens = OrgTokens(org, org.https_instance_url)
    org.publish(topic, [{"Amount__c": 1.0}])
    trusting = NetworkSettings(org.ca_file)
    async with CometdClient(SessionAuthenticator(tokens), network=trusting, replay=ReplayOption.ALL_EVENTS) as client:
        await client.subscribe(topic)
        assert amounts([await client.receive()]) == [1]

    for authority in (other_authority, None):
        client = CometdClient(SessionAuthenticator(tokens), network=NetworkSettings(authority))
        with pytest.raises(TransportError, match="certificate verify failed") as refused:
            await client.open()
        assert isinstance(refused.value.__cause__, ssl.SSLCertVerificationError)


async def test_plaintext_to_another_machine_is_refused_before_the_token_is_sent(org: LocalOrg) -> None:
    client = CometdClient(SessionAuthenticator(OrgTokens(org, "http://salesforce.example")))
    with pytest.raises(ConfigurationError, match="would send credentials unencrypted"):
        await client.open()


async def test_client_connects_through_a_proxy_without_logging_its_password(scene: Scene) -> None:
    seen: list[str] = []

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n")
        seen.append(head.decode())
        writer.write(b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\nContent-Type: text/plain\r\n\r\nbusy")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(forward, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    network = NetworkSettings(proxies={"http": f"http://user:secret@127.0.0.1:{address[1]}"})
    async with server, scene.client(subscribed=False, network=network) as client:
        with pytest.raises(HttpError) as busy:
            await client.open()
        assert (busy.value.status, busy.value.text) == (503, "busy")
        assert seen == [f"POST {scene.proxy.url}/cometd/66.0 HTTP/1.1\r\n"]
        assert "secret" not in repr(client) + str(busy.value)


@pytest.mark.parametrize(
    ("status", "body", "content_type"),
    [
        (500, "<html>Internal Server Error</html>", "text/html"),
        (503, "", "text/plain"),
        (401, '[{"message":"Session expired or invalid","errorCode":"INVALID_SESSION_ID"}]', "application/json"),
        (403, '{"error":"no"}', "application/json"),
        (302, "moved", "text/html"),
    ],
)
@pytest.mark.parametrize("channel", ["/meta/handshake", FIRST_CONNECT, "/meta/subscribe", "/meta/connect"])
async def test_http_error_has_status_and_body(
    scene: Scene, channel: str, status: int, body: str, content_type: str
) -> None:
    async with scene.client(subscribed=False) as client:
        scene.proxy.next(channel, answer(status, body, content_type))
        if status == 401:  # the client then repeats the request with another token
            scene.proxy.next(
                "/meta/connect" if channel == FIRST_CONNECT else channel, answer(status, body, content_type)
            )
        with pytest.raises(HttpError, match=f"HTTP {status}") as failed:
            await open_subscribe_receive(client, scene.topic)
        assert failed.value.status == status
        assert failed.value.text == body


async def open_subscribe_receive(client: CometdClient, topic: str) -> None:
    await client.open()
    await client.subscribe(topic)
    await client.receive()


async def test_html_page_instead_of_messages_raises(scene: Scene) -> None:
    async with scene.client(subscribed=False) as client:
        scene.proxy.next("/meta/handshake", answer(200, "<html>Down for maintenance</html>"))
        with pytest.raises(TransportError, match="not a JSON array"):
            await client.open()


async def test_bayeux_error_in_an_http_error_is_reported(scene: Scene) -> None:
    async with scene.client(subscribed=False) as client:
        scene.proxy.next("/meta/handshake", reply(status=400, successful=False, error="400::API version is mandatory"))
        with pytest.raises(ServerError) as refused:
            await client.open()
        assert refused.value.error == "400::API version is mandatory"


@pytest.mark.parametrize("arriving", [0, 0.5, 0.9])
async def test_messages_before_the_end_of_a_broken_response_are_received(scene: Scene, arriving: float) -> None:
    async with scene.client() as client:
        await scene.polling(lose(int(arriving * 20_000), lambda: scene.publish(*range(1, 101))))
        got: list[int] = []
        with contextlib.suppress(TransportError):
            while len(got) < 100:
                got += amounts(await client.receive_many(7))
        assert len(got) < 100
        assert got == list(range(1, len(got) + 1))
        assert (len(got) > 10) == (arriving > 0)
        assert client.closed
        await client.open()
        await client.subscribe(scene.topic)
        assert amounts(await received(client, 100)) == list(range(1, 101))


async def test_unreadable_message_raises_an_error_with_its_replay_id(scene: Scene) -> None:
    async with scene.client() as client:
        broken = (
            '[{"channel":"/x","data":{"event":{"replayId":1}}},{"channel":"/x","data":{"event":{"replayId":2},"n":-}}]'
        )
        await scene.polling(answer(200, broken, "application/json"))
        assert (await client.receive())["data"]["event"]["replayId"] == 1
        with pytest.raises(UnreadableMessageError, match="replayId 2"):
            await client.receive()


async def test_a_message_after_the_reply_is_received(scene: Scene) -> None:
    async with scene.client() as client:
        body = {"payload": {"Amount__c": 9}, "event": {"replayId": 9}}
        await scene.polling(rewrite(lambda messages: [*messages, {"channel": "/x", "data": body}]))
        assert amounts([await client.receive()]) == [9]


@pytest.mark.parametrize("advice", ["none", "handshake"])
async def test_advice_to_end_the_session_raises(scene: Scene, advice: str) -> None:
    async with scene.client() as client:
        await scene.polling(rewrite(lambda messages: [{**messages[0], "advice": {"reconnect": advice}}]))
        with pytest.raises(ServerError, match=advice):
            await client.receive()


async def test_disconnect_message_without_advice_ends_the_session(scene: Scene) -> None:
    async with scene.client() as client:
        await scene.polling(answer(200, '[{"channel":"/meta/disconnect"}]', "application/json"))
        with pytest.raises(ServerError, match="ended the session"):
            await client.receive()


async def test_an_error_of_aiocometd_is_raised_as_that_of_aiosfstream(scene: Scene) -> None:
    async with scene.client() as client:
        client._queue.end(aiocometd.exceptions.TransportError("from an authenticator"))
        with pytest.raises(TransportError, match="from an authenticator"):
            await client.receive()


async def test_poll_response_without_a_reply_raises(scene: Scene) -> None:
    async with scene.client() as client:
        await scene.polling(answer(200, "[]", "application/json"))
        with pytest.raises(TransportError, match="no reply"):
            await client.receive()


@pytest.mark.parametrize("channel", ["/meta/handshake", FIRST_CONNECT, "/meta/subscribe", "/meta/connect"])
@pytest.mark.parametrize(
    "fields",
    [
        {"advice": ["none"], "error": 401},
        {"advice": {"interval": "soon", "timeout": None, "reconnect": 5}, "error": None},
        {"ext": [], "error": ["401::Authentication invalid"]},
        {"ext": {"sfdc": "busy"}, "error": ""},
    ],
)
async def test_malformed_refusal_raises_a_server_error(scene: Scene, channel: str, fields: dict[str, Any]) -> None:
    async with scene.client(subscribed=False) as client:
        scene.proxy.next(channel, reply(successful=False, **fields))
        with pytest.raises(ServerError):
            await open_subscribe_receive(client, scene.topic)


async def test_first_subscription_is_sent_before_the_first_held_poll(scene: Scene) -> None:
    async with scene.client() as client:
        await client.receive_many(1, heartbeats=True)
    channels = [request["channel"] for request in scene.proxy.requests]
    assert channels[:4] == ["/meta/handshake", "/meta/connect", "/meta/subscribe", "/meta/connect"]


async def test_session_without_a_subscription_is_polled(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_provider_sfstream.salesforce.streaming.cometd.transport.SUBSCRIBE_FIRST_SECONDS", 0.05)
    async with scene.client(subscribed=False) as client:
        await client.open()
        assert await client.receive_many(1, heartbeats=True) == []


async def test_poll_without_a_response_times_out(scene: Scene) -> None:
    async with scene.client() as client:
        scene.proxy.next("/meta/connect", hang())
        client._transport._timeout = 0.2  # set after opening, which needs the longer timeout
        with pytest.raises(TransportError, match="did not answer in time"):
            await client.receive()


async def test_a_subscription_that_is_cancelled_ends_the_session(scene: Scene) -> None:
    async with scene.client(subscribed=False) as client:
        await client.open()
        scene.proxy.next("/meta/subscribe", hang())
        subscribing = asyncio.create_task(client.subscribe(scene.topic))
        await scene.proxy.until(lambda: scene.proxy.begun == 1)
        subscribing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await subscribing
        with pytest.raises(TransportError, match="cancelled"):
            await client.receive()
    assert scene.proxy.requests[-1]["channel"] == "/meta/disconnect"


async def test_refused_subscription_keeps_the_session_open(scene: Scene) -> None:
    scene.publish(1)
    async with scene.client(subscribed=False) as client:
        await client.open()
        with pytest.raises(ServerError) as refused:
            await client.subscribe("/event/Unknown__e")
        assert refused.value.error_code == 403
        await client.subscribe(scene.topic)
        assert amounts([await client.receive()]) == [1]


# --- opening and closing


async def test_opening_an_open_client_is_refused(scene: Scene) -> None:
    async with scene.client() as client:
        with pytest.raises(ClientInvalidOperation, match="already open"):
            await client.open()
    async with scene.client(subscribed=False) as client:
        outcomes = await asyncio.gather(client.open(), client.open(), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [type(None), ClientInvalidOperation]


async def test_client_of_another_event_loop_is_refused(scene: Scene) -> None:
    loop = asyncio.new_event_loop()
    try:
        async with scene.client(subscribed=False, loop=loop) as client:
            with pytest.raises(ClientInvalidOperation, match="another event loop"):
                await client.open()
    finally:
        loop.close()


async def test_closed_client_refuses_subscriptions_and_can_be_reopened(scene: Scene) -> None:
    async with scene.client(subscribed=False) as client:
        await client.close()
        with pytest.raises(ClientInvalidOperation):
            await client.subscribe(scene.topic)
        with pytest.raises(ClientInvalidOperation):
            await client.receive()
        await client.open()
        await client.close()
        await client.close()


@pytest.mark.parametrize("channel", ["/meta/handshake", FIRST_CONNECT])
async def test_cancelled_open_leaves_no_task_running(scene: Scene, channel: str) -> None:
    before = asyncio.all_tasks()
    async with scene.client(subscribed=False) as client:
        scene.proxy.next(channel, hang())
        opening = asyncio.create_task(client.open())
        await scene.proxy.until(lambda: scene.proxy.begun == 1)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert client.closed
        running = [task for task in asyncio.all_tasks() - before if "cometd_transport" in repr(task)]
        assert running == []
        await client.open()


async def test_close_ends_without_a_response_of_the_server(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_provider_sfstream.salesforce.streaming.cometd.transport.DISCONNECT_SECONDS", 0.1)
    async with scene.client() as client:
        scene.proxy.next("/meta/disconnect", hang())
        await asyncio.wait_for(client.close(), DEADLINE)
        assert client.closed


async def test_close_ends_the_session_at_the_org(scene: Scene) -> None:
    async with scene.client() as client:
        client_id = client._transport.client_id
        assert client_id in open_sessions(scene.org)
    assert client_id not in open_sessions(scene.org)


def open_sessions(org: LocalOrg) -> list[str]:
    return [session["client_id"] for session in org.admin("GET", "/org")["cometd_sessions"]]


# --- access tokens


async def test_a_refused_token_is_renewed_once(scene: Scene) -> None:
    async with scene.client() as client:
        scene.org.revoke()
        scene.publish(1)
        assert amounts([await client.receive()]) == [1]
        assert scene.tokens.logins == 2
        scene.org.revoke()
        with pytest.raises(ServerError) as refused:
            await client.receive()
        assert refused.value.error_code == 401
        assert scene.tokens.logins == 2
        await client.open()
        assert scene.tokens.logins == 3


async def test_token_refused_at_the_handshake_is_renewed(scene: Scene) -> None:
    scene.publish(1)
    scene.tokens.token()
    scene.org.revoke()
    async with scene.client() as client:
        assert amounts([await client.receive()]) == [1]
    assert scene.tokens.logins == 2


async def test_token_is_renewed_after_http_401(scene: Scene) -> None:
    scene.publish(1)
    async with scene.client(subscribed=False) as client:
        await client.open()
        scene.proxy.next("/meta/subscribe", answer(401, "<html>Unauthorized</html>"))
        await client.subscribe(scene.topic)
        assert amounts([await client.receive()]) == [1]
        assert scene.tokens.logins == 2


async def test_failed_login_error_is_the_cause_of_the_authentication_error(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene.client() as client:

        def unavailable() -> Any:
            raise LoginUnavailableError("the login host is busy")

        monkeypatch.setattr(scene.tokens, "token", unavailable)
        scene.org.revoke()
        with pytest.raises(AuthenticationError, match="busy") as failed:
            await client.receive()
        assert isinstance(failed.value.__cause__, LoginUnavailableError)


async def test_no_token_in_cometd_logs_reprs_or_errors(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    shown = []
    scene.publish(1)
    async with scene.client() as client:
        await client.receive()
        secrets = [scene.tokens.token().value]
        scene.org.revoke()
        scene.publish(2)
        await client.receive()
        secrets.append(scene.tokens.token().value)
        echoed = f"<html>{secrets[1]}</html>"
        scene.proxy.next("/meta/connect", answer(500, echoed))
        with pytest.raises(HttpError) as failed:
            await client.receive()
        shown += [repr(client), repr(failed.value), str(failed.value), failed.value.text, repr(client.auth)]
    assert len(set(secrets)) == 2
    for secret in secrets:
        assert secret not in caplog.text
        assert secret not in "".join(shown)
