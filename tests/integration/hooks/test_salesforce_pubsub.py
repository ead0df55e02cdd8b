"""The hook against a local org: what test_connection says of each part, and what it gives to operators."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import AuthenticationError, ConfigurationError
from airflow_provider_sfstream.hooks import salesforce_pubsub
from airflow_provider_sfstream.hooks.salesforce_pubsub import SalesforcePubSubHook
from airflow_provider_sfstream.protocol.events import StartFrom
from tests.support.localorg import LocalOrg


@pytest.fixture(scope="module")
def running_org(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOrg]:
    with LocalOrg.running(tmp_path_factory.mktemp("org")) as org:
        org.define("Order__e", Amount__c="double")
        yield org


@pytest.fixture
def org(running_org: LocalOrg) -> Iterator[LocalOrg]:
    yield running_org
    running_org.clear_faults()
    running_org.admin("POST", "/oauth", {"fail_next": 0, "login_host": False})


@pytest.fixture
def hook(org: LocalOrg, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make a hook on a connection to the org, some extras changed."""

    def make(**changes: Any) -> SalesforcePubSubHook:
        extra = {
            "login_url": org.login_url,
            "consumer_key": org.client_id,
            "consumer_secret": org.client_secret,
            "pubsub_endpoint": f"http://{org.grpc_target}",
            **changes,
        }
        monkeypatch.setenv("AIRFLOW_CONN_SF", json.dumps({"conn_type": "salesforce", "extra": json.dumps(extra)}))
        return SalesforcePubSubHook("sf")

    return make


def closed_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return int(unused.getsockname()[1])


def test_a_good_connection(org: LocalOrg, hook: Any) -> None:
    ok, message = hook().test_connection()
    assert ok, message
    assert org.org_id in message
    assert org.grpc_target in message


def test_a_good_connection_and_topic(hook: Any) -> None:
    ok, message = hook().test_connection("/event/Order__e")
    assert ok, message
    assert "/event/Order__e can be subscribed to" in message


def test_over_tls(org: LocalOrg, hook: Any) -> None:
    changes = {"login_url": org.https_instance_url, "pubsub_endpoint": f"localhost:{org.grpc_tls_port}"}
    ok, message = hook(**changes, tls_ca=org.ca_file).test_connection()
    assert ok, message


def test_the_login_is_named(org: LocalOrg, hook: Any) -> None:
    for changes, part in [
        ({"consumer_secret": "WRONG-s3cret"}, "consumer_secret"),
        ({"login_url": f"http://127.0.0.1:{closed_port()}"}, "cannot be reached"),
        ({"login_url": org.https_instance_url}, "tls_ca"),
        ({"organization_id": "00D000000000001AAA"}, "organization_id"),
    ]:
        ok, message = hook(**changes).test_connection()
        assert not ok
        assert message.startswith("Login: "), message
        assert part in message
        assert "s3cret" not in message


def test_the_identity_is_named(org: LocalOrg, hook: Any) -> None:
    ok, message = hook(access_token="WRONG-s3cret", instance_url=org.instance_url).test_connection()
    assert not ok
    assert message.startswith("Identity: ")
    assert "s3cret" not in message


def test_the_endpoint_is_named(org: LocalOrg, hook: Any) -> None:
    for endpoint, part in [
        (f"http://127.0.0.1:{closed_port()}", "cannot be reached"),
        (f"localhost:{org.grpc_tls_port}", "tls_ca"),
        (f"localhost:{org.grpc_port}", "TLS"),
        (f"http://127.0.0.1:{org.http_port}", "does not speak"),
    ]:
        ok, message = hook(pubsub_endpoint=endpoint).test_connection()
        assert not ok
        assert message.startswith("Pub/Sub endpoint: "), message
        assert part in message


def test_the_topic_is_named(org: LocalOrg, hook: Any) -> None:
    ok, message = hook().test_connection("/event/Nowhere__e")
    assert not ok
    assert message.startswith("Topic permission: /event/Nowhere__e")
    denied = {"rpc": "GetTopic", "code": "topic.meta.permission", "status": "PERMISSION_DENIED"}
    org.fault("fail_calls", **denied)
    ok, message = hook().test_connection("/event/Order__e")
    assert not ok
    assert message.startswith("Topic permission: /event/Order__e")
    org.fault("fail_calls", **denied)
    ok, message = hook().test_connection()
    assert ok, "a user without change events may still have other topics"


def test_what_operators_use(org: LocalOrg, hook: Any) -> None:
    org.publish("/event/Order__e", [{"Amount__c": 1.0}])
    one = hook()
    assert one.org_id == org.org_id
    logins = org.admin("GET", "/oauth")["requests"]
    with one.get_conn() as client:
        batch = next(client.subscribe("/event/Order__e", StartFrom.EARLIEST, limit=1, idle_timeout=20))
    assert len(batch) == 1
    assert org.admin("GET", "/oauth")["requests"] == logins, "hook and client share one login"


async def test_org_id_without_blocking(org: LocalOrg, hook: Any) -> None:
    assert await hook().aorg_id() == org.org_id


def test_a_refused_login_raises(hook: Any) -> None:
    with pytest.raises(AuthenticationError):
        _ = hook(consumer_secret="WRONG").org_id


def logins(org: LocalOrg) -> int:
    return int(org.admin("GET", "/oauth")["requests"])


class TestAsyncClient:
    async def test_reads_events(self, org: LocalOrg, hook: Any) -> None:
        org.publish("/event/Order__e", [{"Amount__c": 1.0}])
        async with hook().async_client() as client:
            stream = client.subscribe("/event/Order__e", StartFrom.EARLIEST, limit=1, silence_timeout=20)
            [batch] = [batch async for batch in stream]
            assert len(batch) == 1
            assert await client.org_id() == org.org_id

    async def test_over_tls(self, org: LocalOrg, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AIRFLOW_CONN_TLS", json.dumps(org.airflow_connection()))
        org.publish("/event/Order__e", [{"Amount__c": 1.0}])
        async with SalesforcePubSubHook("tls").async_client() as client:
            stream = client.subscribe("/event/Order__e", StartFrom.EARLIEST, limit=1, silence_timeout=20)
            assert [len(batch) async for batch in stream] == [1]

    async def test_equal_connections_share_one_client_and_one_login(self, org: LocalOrg, hook: Any) -> None:
        before = logins(org)
        leave = asyncio.Event()

        async def user() -> Any:
            async with hook().async_client() as client:
                org_id = await client.org_id()
                await leave.wait()
                assert await client.org_id() == org_id, "it is open until the last one has left"
            return client

        users = [asyncio.create_task(user()) for _ in range(200)]
        async with hook().async_client() as client:
            assert await client.org_id() == org.org_id
            leave.set()
            assert set(await asyncio.gather(*users)) == {client}
            assert logins(org) == before + 1
        with pytest.raises(RuntimeError, match="closed"):
            await client.schema("K98aAtiNFBjA-PJlcvaQ2g")

    async def test_an_edited_connection_gives_another_client(self, hook: Any) -> None:
        old = hook()
        async with old.async_client() as first, hook(organization_id="").async_client() as second:
            assert second is first, "what is said is the same"
            async with hook(allow_insecure=True).async_client() as third:
                assert third is not first
            async with hook(proxies={"https": "http://127.0.0.1:1"}).async_client() as fourth:
                assert fourth is not first

    async def test_a_refused_login_does_not_poison_the_others(self, org: LocalOrg, hook: Any) -> None:
        org.admin("POST", "/oauth", {"fail_next": 1, "fail_error": "invalid_client"})
        before = logins(org)
        one = hook()
        async with one.async_client() as client:
            outcomes = await asyncio.gather(*(client.org_id() for _ in range(20)), return_exceptions=True)
            assert {type(outcome) for outcome in outcomes} == {AuthenticationError}
            assert logins(org) == before + 1, "one attempt for all who waited"
            async with hook().async_client() as same:
                assert same is client
                assert await same.org_id() == org.org_id

    async def test_unusable_fields_are_refused_and_leave_nothing(self, org: LocalOrg, hook: Any) -> None:
        before = len(org.requests())
        for changes, part in [
            ({"consumer_secret": ""}, "consumer_secret"),
            ({"pubsub_endpoint": "http://192.0.2.1:7443"}, "allow_insecure"),
            ({"tls_ca": "/no/such/file.pem"}, "tls_ca"),
        ]:
            for _ in range(2):
                with pytest.raises(ConfigurationError, match=part):
                    await hook(**changes).async_client().__aenter__()
        assert len(org.requests()) == before

    async def test_no_secret_in_reprs(self, org: LocalOrg, hook: Any) -> None:
        one = hook()
        async with one.async_client() as client:
            await client.org_id()
            shown = repr(one.__dict__) + repr(client.__dict__) + repr(salesforce_pubsub._async_clients.__dict__)
        assert org.client_secret not in shown
