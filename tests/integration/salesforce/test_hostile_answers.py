"""Responses that could exhaust the memory or leak a token to another server: each of them raises an error."""

from __future__ import annotations

import contextlib
import functools
import gzip
import itertools
import json
import socket
import threading
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from airflow_provider_sfstream.exceptions import (
    AuthenticationError,
    ConfigurationError,
    RequestRejectedError,
    SalesforceStreamError,
    ServiceUnavailableError,
)
from airflow_provider_sfstream.salesforce import pubsub_api_pb2 as messages
from airflow_provider_sfstream.salesforce.auth import token_provider as auth
from airflow_provider_sfstream.salesforce.auth.credentials import Credentials, credentials_from
from airflow_provider_sfstream.salesforce.auth.token_provider import OAuthTokenProvider
from airflow_provider_sfstream.salesforce.events import StartFrom
from airflow_provider_sfstream.salesforce.network.settings import NetworkSettings
from airflow_provider_sfstream.salesforce.pubsub import subscription
from airflow_provider_sfstream.salesforce.pubsub.client import PubSubClient
from airflow_provider_sfstream.salesforce.rest import record_session
from airflow_provider_sfstream.salesforce.rest.client import RestClient
from airflow_provider_sfstream.salesforce.rest.records import RecordClient
from sfstream_localorg.tls import TlsFiles, ensure_tls_files
from tests.support.answering_host import Host, TokenSequence, running_host

MIB = 2**20
GRANTED = {"access_token": "s3cret-access-token", "id": "https://x/id/00D000000000001AAA/005000000000001AAA"}
PACKED = {"Content-Encoding": "gzip", "Content-Type": "application/json"}


@functools.cache
def bomb() -> bytes:
    """Return 256 KB of gzip data that unpack to 256 MiB."""
    return gzip.compress(b'{"access_token": "' + b"x" * (256 * MIB), 9)


@pytest.fixture
def host() -> Iterator[Host]:
    with running_host() as one:
        yield one


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return ensure_tls_files(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def secure_host(tls: TlsFiles) -> Iterator[Host]:
    with running_host(tls) as one:
        yield one


def login(host: Host, **options: Any) -> OAuthTokenProvider:
    return OAuthTokenProvider(
        Credentials("client_credentials", host.url, "key", consumer_secret="s3cret/of=the app"), **options
    )


def peak_of(action: Callable[[], object]) -> int:
    """Return the peak of bytes that Python allocated while ``action`` ran."""
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("headers", "body", "reason"),
    [
        (PACKED, bomb, "is larger than 1048576 bytes"),
        ({}, b" " * (8 * MIB), "is larger than 1048576 bytes"),
        (PACKED, gzip.compress(b"{}")[:-9], "is incomplete"),
        (PACKED, b"{}", "cannot be decompressed"),
        (PACKED, gzip.compress(b"{}") + b" " * (8 * MIB), "continues after"),
        ({"Content-Encoding": "br"}, b"{}", "a Content-Encoding that was not requested"),
    ],
    ids=["gzip", "plain", "cut", "not gzip", "two bodies", "another encoding"],
)
def test_login_refuses_oversized_or_malformed_responses(
    host: Host, headers: dict[str, str], body: bytes | Callable[[], bytes], reason: str
) -> None:
    host.answers = [(200, headers, body() if callable(body) else body)]

    def log_in() -> None:
        with pytest.raises(AuthenticationError, match=f"returned no valid login response .*{reason}") as raised:
            login(host).token()
        assert not raised.value.retriable

    assert peak_of(log_in) < 16 * MIB


@pytest.mark.parametrize(
    ("encoding", "pack"), [("gzip", gzip.compress), ("x-gzip", gzip.compress), ("deflate", zlib.compress)]
)
def test_compressed_login_response_is_read(host: Host, encoding: str, pack: Callable[[bytes], bytes]) -> None:
    granted = json.dumps({**GRANTED, "instance_url": host.url}).encode()
    host.answers = [(200, {"Content-Encoding": encoding}, pack(granted))]
    assert login(host).token().value == GRANTED["access_token"]


@pytest.mark.parametrize(
    "part", [b"HTTP/1.1 200 OK\r\nX-Padding: ", b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"]
)
def test_login_times_out_when_the_response_arrives_byte_by_byte(part: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server sends the headers or the body one byte at a time, without end."""
    monkeypatch.setattr(auth, "_LONGEST_LOGIN", 1.0)
    ended = threading.Event()

    def drip(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection, contextlib.suppress(OSError):  # the client closes the connection
            connection.sendall(part)
            while not ended.wait(0.1):
                connection.sendall(b"x")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=drip, args=(listening,), daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(AuthenticationError, match="did not answer within 1 seconds") as raised:
            OAuthTokenProvider(
                Credentials("client_credentials", url, "key", consumer_secret="s3cret/of=the app")
            ).token()
        assert raised.value.retriable
        ended.set()
        thread.join(5)  # without a connection, the thread would still wait


@pytest.mark.parametrize(
    "instance_url",
    [
        "http://elsewhere.example",
        "https://user:password@elsewhere.example",
        "https://acme.example\n.elsewhere.example",
        "https://acme.example\\@elsewhere.example",
        "ftp://elsewhere.example",
        "elsewhere.example",
        "https://",
        "https://[::1",
        "https://acme.example:99999",
    ],
)
def test_token_is_not_sent_to_an_invalid_instance_url(host: Host, instance_url: str) -> None:
    """Without 'id' in the response, the client requests userinfo from the instance, which would send the token."""
    for identity in ({}, {"id": GRANTED["id"]}):
        host.answers = [(200, {}, {"access_token": "s3cret-access-token", "instance_url": instance_url, **identity})]
        with pytest.raises(AuthenticationError, match="The token was not sent to it"):
            login(host).token()
    assert [method for method, _ in host.requests] == ["POST", "POST"]


def test_org_without_tls_is_used_with_allow_insecure(host: Host) -> None:
    host.answers = [(200, {}, {**GRANTED, "instance_url": "http://elsewhere.example/"})]
    assert login(host, network=NetworkSettings(allow_insecure=True)).token().instance_url == "http://elsewhere.example"


@pytest.mark.parametrize(
    "echoed", ["s3cret/of=the app", "s3cret%2Fof%3Dthe+app", "s3cret%2fof%3dthe%20app", "czNjcmV0L29mPXRoZSBhcHA="]
)
def test_error_of_a_refusal_does_not_contain_the_echoed_secret(host: Host, echoed: str) -> None:
    text = f"bad request: client_secret={echoed}\n\x1b[31mFAKE LOG LINE"
    host.answers = [(400, {}, {"error": "invalid_request", "error_description": text})]
    with pytest.raises(AuthenticationError) as raised:
        login(host).token()
    assert echoed not in str(raised.value)
    assert str(raised.value).isprintable()


def test_error_of_a_refusal_does_not_contain_the_echoed_assertion(host: Host, other_private_key: str) -> None:
    fields = {"login_url": host.url, "consumer_key": "key", "login": "u@x", "private_key": other_private_key}
    provider = OAuthTokenProvider(credentials_from(fields), now=lambda: 1_000_000.0)
    seen: list[str] = []
    answer = host.answer

    def echo() -> tuple[int, dict[str, str], bytes]:
        seen.append(host.bodies[-1].decode())
        body = {"error": "invalid_grant", "error_description": f"assertion refused: {seen[-1]}"}
        host.answers = [(400, {}, body)]
        return answer()

    host.answer = echo  # type: ignore[method-assign]
    with pytest.raises(AuthenticationError, match="assertion refused") as raised:
        provider.token()
    assertion = seen[0].rpartition("assertion=")[2]
    assert len(assertion) > 100
    assert assertion not in str(raised.value)


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"a":' * 100_000], ids=["list", "object"])
def test_too_deeply_nested_json_raises_an_error_of_this_package(host: Host, body: bytes) -> None:
    host.answers = [(200, {}, body)]
    with pytest.raises(AuthenticationError):
        login(host).token()
    with RestClient(TokenSequence(host), api_version="62.0") as client, pytest.raises(ConfigurationError):
        client.request("GET", "limits", what="limits")


@pytest.mark.parametrize(("headers", "body"), [(PACKED, bomb), ({}, b" " * (32 * MIB))], ids=["gzip", "plain"])
def test_oversized_response_of_the_rest_api_is_refused(
    host: Host, headers: dict[str, str], body: bytes | Callable[[], bytes]
) -> None:
    host.answers = [(200, headers, body() if callable(body) else body)]

    def ask() -> None:
        with (
            RestClient(TokenSequence(host), api_version="62.0") as client,
            pytest.raises(ServiceUnavailableError) as raised,
        ):
            client.request("GET", "limits", what="limits")
        assert "the response is" in str(raised.value)

    assert peak_of(ask) < 64 * MIB


def records_of(host: Host, tls: TlsFiles) -> RecordClient:
    return RecordClient(TokenSequence(host), api_version="62.0", network=NetworkSettings(str(tls.ca)), job_wait=0.01)


def test_oversized_page_of_records_is_refused(
    secure_host: Host, tls: TlsFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_session, "LARGEST_ANSWER", MIB)
    secure_host.answers = [(200, PACKED, bomb())]

    def ask() -> None:
        with records_of(secure_host, tls) as client, pytest.raises(RequestRejectedError, match="bulk_page_records"):
            list(client.query("Account", ("Id",)))

    assert peak_of(ask) < 16 * MIB


@pytest.mark.parametrize(
    "following",
    [
        "@elsewhere.example/services/data",
        "//elsewhere.example/x",
        ":1@elsewhere.example/",
        "https://elsewhere.example",
        7,
        None,
    ],
)
def test_next_page_on_another_host_is_refused(secure_host: Host, tls: TlsFiles, following: Any) -> None:
    page = {"totalSize": 2, "done": False, "records": [{"Id": "001"}], "nextRecordsUrl": following}
    secure_host.answers = [(200, {}, page)]
    with records_of(secure_host, tls) as client, pytest.raises(SalesforceStreamError, match="not as documented"):
        list(client.query("Account", ("Id",)))
    assert len(secure_host.requests) == 1


def test_endless_pages_are_refused(secure_host: Host, tls: TlsFiles) -> None:
    def page(number: int, *ids: str) -> tuple[int, dict[str, str], Any]:
        following = f"/services/data/v62.0/query/{number}"
        records = [{"Id": id_} for id_ in ids]
        return 200, {}, {"totalSize": 2, "done": False, "records": records, "nextRecordsUrl": following}

    secure_host.answers = [page(7, "001")]
    with (
        records_of(secure_host, tls) as client,
        pytest.raises(SalesforceStreamError, match="path of the next page is invalid or repeated"),
    ):
        list(client.query("Account", ("Id",)))
    secure_host.answers = [page(number) for number in range(100)]
    with records_of(secure_host, tls) as client, pytest.raises(SalesforceStreamError, match="empty pages"):
        list(client.query("Account", ("Id",)))


def test_query_error_does_not_contain_the_echoed_token(secure_host: Host, tls: TlsFiles) -> None:
    secure_host.answers = [(400, {}, [{"errorCode": "MALFORMED_QUERY", "message": "Bearer s3cret-0 cannot do this"}])]
    with records_of(secure_host, tls) as client, pytest.raises(SalesforceStreamError) as raised:
        list(client.query("Account", ("Id",)))
    assert "s3cret-0" not in str(raised.value)


@pytest.mark.parametrize(
    "proxy",
    [
        "http://user:pa/ss@127.0.0.1:1",
        "http://user:pa#ss@127.0.0.1:1",
        "http://user:pa?ss@h:1",
        "http://user:pa\\ss@h:1",
        "http://h:pass",
    ],
)
def test_error_of_an_invalid_proxy_does_not_contain_its_password(
    host: Host, proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigurationError, match="%2F %23 %3F %40") as raised:
        NetworkSettings(proxies={"http": proxy})
    assert "pa" not in str(raised.value).replace("password", "")
    monkeypatch.setenv("HTTP_PROXY", proxy)
    monkeypatch.setenv("NO_PROXY", "")
    with pytest.raises(ConfigurationError, match="%2F %23 %3F %40"):
        login(host).token()
    with RestClient(TokenSequence(host), api_version="62.0") as client, pytest.raises(ConfigurationError):
        client.request("GET", "limits", what="limits")
    assert host.requests == []


def test_flow_control_stops_a_server_that_sends_too_many_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription, "MOST_BYTES_READ", 4 * MIB)
    answers, ended = 128, threading.Event()

    def flood(requests: Any, context: grpc.ServicerContext) -> Iterator[bytes]:
        for number in range(answers):
            event = messages.ProducerEvent(id=str(number), schema_id="s", payload=bytes(MIB))
            consumer = messages.ConsumerEvent(event=event, replay_id=number.to_bytes(8, "big"))
            yield messages.FetchResponse(events=[consumer], latest_replay_id=b"1").SerializeToString()
        ended.set()

    server = grpc.server(ThreadPoolExecutor())
    methods = {"Subscribe": grpc.stream_stream_rpc_method_handler(flood)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("eventbus.v1.PubSub", methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with PubSubClient(TokenSequence(Host("http://localhost")), endpoint=f"http://127.0.0.1:{port}") as client:
            batches = client.subscribe("/event/Order__e", StartFrom.EARLIEST, idle_timeout=60)
            first = next(batches)
            assert not ended.wait(3), "unread events stay on the server, not in this process"
            rest = list(itertools.islice(batches, answers - 1))
            assert ended.wait(60)
    finally:
        server.stop(None).wait()
    received = [batch.event_ids for batch in (first, *rest) if batch is not None]
    assert received == [[str(number)] for number in range(answers)], "every event is received"
