"""The Streaming API hook against a local org: what test_connection says of each part, and what it gives to others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from aiosfstream import ReplayOption

from airflow_provider_sfstream.exceptions import AuthenticationError, ConfigurationError
from airflow_provider_sfstream.hooks import salesforce_streaming
from airflow_provider_sfstream.hooks.salesforce_streaming import SalesforceStreamingHook
from airflow_provider_sfstream.protocol.events import StartFrom
from tests.support.localorg import LocalOrg

TOPIC = "/topic/Accounts"


@pytest.fixture(scope="module")
def running_org(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOrg]:
    with LocalOrg.running(tmp_path_factory.mktemp("org")) as org:
        org.push_topic("Accounts", "SELECT Id, Name FROM Account")
        org.rest("POST", "/sobjects/Account", {"Name": "Acme"})
        yield org


@pytest.fixture
def org(running_org: LocalOrg) -> Iterator[LocalOrg]:
    yield running_org
    running_org.clear_faults()
    running_org.admin("POST", "/oauth", {"fail_next": 0, "login_host": False})


@pytest.fixture
def hook(org: LocalOrg, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make a hook on a connection to the org, some extras changed."""

    def make(**changes: Any) -> SalesforceStreamingHook:
        extra = {
            "login_url": org.login_url,
            "consumer_key": org.client_id,
            "consumer_secret": org.client_secret,
            **changes,
        }
        monkeypatch.setenv("AIRFLOW_CONN_SF", json.dumps({"conn_type": "salesforce", "extra": json.dumps(extra)}))
        return SalesforceStreamingHook("sf")

    return make


def logins(org: LocalOrg) -> int:
    return int(org.admin("GET", "/oauth")["requests"])


class TestConnection:
    def test_a_good_connection(self, org: LocalOrg, hook: Any) -> None:
        ok, message = hook().test_connection()
        assert ok, message
        assert org.org_id in message
        assert "Streaming API 62.0" in message

    def test_a_good_connection_and_topic(self, hook: Any) -> None:
        ok, message = hook().test_connection(TOPIC)
        assert ok, message
        assert f"{TOPIC} can be subscribed to" in message

    def test_over_tls(self, org: LocalOrg, hook: Any) -> None:
        ok, message = hook(login_url=org.https_instance_url, tls_ca=org.ca_file).test_connection(TOPIC)
        assert ok, message

    def test_the_login_is_named(self, org: LocalOrg, hook: Any) -> None:
        for changes, part in [
            ({"consumer_secret": "WRONG-s3cret"}, "consumer_secret"),
            ({"login_url": org.https_instance_url}, "tls_ca"),
            ({"organization_id": "00D000000000001AAA"}, "organization_id"),
        ]:
            ok, message = hook(**changes).test_connection()
            assert not ok
            assert message.startswith("Login: "), message
            assert part in message
            assert "s3cret" not in message

    def test_the_identity_is_named(self, org: LocalOrg, hook: Any) -> None:
        ok, message = hook(access_token="WRONG-s3cret", instance_url=org.instance_url).test_connection()
        assert not ok
        assert message.startswith("Identity: ")
        assert "s3cret" not in message

    @pytest.mark.parametrize(
        ("fault", "part"),
        [
            ({"error": "403::Handshake denied", "failure_reason": "503::Server is too busy."}, "unavailable"),
            ({"error": "403::Organization concurrent user limit exceeded"}, "too many clients"),
            ({"error": "400::Unsupported API version."}, "version"),
        ],
    )
    def test_the_endpoint_is_named(self, org: LocalOrg, hook: Any, fault: dict[str, Any], part: str) -> None:
        org.fault("cometd_fail", channel="/meta/handshake", **fault)
        ok, message = hook().test_connection(TOPIC)
        assert not ok
        assert message.startswith("Streaming endpoint: "), message
        assert part in message

    def test_the_topic_is_named(self, org: LocalOrg, hook: Any) -> None:
        ok, message = hook().test_connection("/topic/Nowhere")
        assert not ok
        assert message.startswith("Topic permission: /topic/Nowhere")
        denied = "403::User not enabled for streaming"
        org.fault("cometd_fail", channel="/meta/subscribe", error=denied)
        ok, message = hook().test_connection(TOPIC)
        assert not ok
        assert message.startswith(f"Topic permission: {TOPIC}")
        assert denied in message

    def test_fields_are_named_before_anything_is_contacted(self, org: LocalOrg, hook: Any) -> None:
        before = len(org.requests())
        for changes, part in [
            ({"version": "36.0"}, "version.*37.0 or above"),
            ({"version": "latest"}, "version"),
            ({"version": 36}, "version"),
            ({"tls_ca": "/no/such/file.pem"}, "tls_ca"),
        ]:
            with pytest.raises(ConfigurationError, match=rf"(?s){part}"):
                hook(**changes).get_conn()
            ok, message = hook(**changes).test_connection()
            assert not ok
            assert message.startswith("Connection fields: "), message
        assert len(org.requests()) == before


@pytest.mark.parametrize("version", ["58.0", "58", "v58.0", 58, 58.0, "V58"])
def test_the_connections_api_version_is_used(org: LocalOrg, hook: Any, version: Any) -> None:
    with hook(version=version).get_conn() as client:
        assert client.api_version == "58.0"
        client.check(TOPIC)


def test_what_operators_use(org: LocalOrg, hook: Any) -> None:
    one = hook()
    assert one.org_id == org.org_id
    before = logins(org)
    with one.get_conn() as client:
        batch = next(client.subscribe(TOPIC, StartFrom.EARLIEST, limit=1, idle_timeout=20))
    assert batch.payloads == [org.record(TOPIC)[0]["payload"]]
    assert logins(org) == before, "hook and client share one login"


async def test_code_written_for_aiosfstream(org: LocalOrg, hook: Any) -> None:
    async with hook().cometd_client(replay=ReplayOption.ALL_EVENTS) as client:
        await client.subscribe(TOPIC)
        async for message in client:
            assert message["data"]["sobject"]["Name"] == "Acme"
            break


class TestAsyncClient:
    async def test_reads_events(self, org: LocalOrg, hook: Any) -> None:
        async with hook().async_client() as client:
            stream = client.subscribe(TOPIC, StartFrom.EARLIEST, limit=1, silence_timeout=20)
            [batch] = [batch async for batch in stream if len(batch)]
            assert len(batch) == 1
            assert await client.org_id() == org.org_id

    async def test_equal_connections_share_one_client_and_one_login(self, org: LocalOrg, hook: Any) -> None:
        before = logins(org)
        leave = asyncio.Event()

        async def user() -> Any:
            async with hook().async_client() as client:
                await client.org_id()
                await leave.wait()
            return client

        users = [asyncio.create_task(user()) for _ in range(50)]
        async with hook().async_client() as client:
            assert await client.org_id() == org.org_id
            leave.set()
            assert set(await asyncio.gather(*users)) == {client}
            assert logins(org) == before + 1
        with pytest.raises(RuntimeError, match="closed"):
            await client.schema("K98aAtiNFBjA-PJlcvaQ2g")

    async def test_an_edited_connection_gives_another_client(self, hook: Any) -> None:
        async with hook().async_client() as first, hook(version="58.0").async_client() as second:
            assert second is not first

    async def test_a_refused_login_does_not_poison_the_others(self, org: LocalOrg, hook: Any) -> None:
        org.admin("POST", "/oauth", {"fail_next": 1, "fail_error": "invalid_client"})
        async with hook().async_client() as client:
            with pytest.raises(AuthenticationError):
                await client.org_id()
            async with hook().async_client() as same:
                assert same is client
                assert await same.org_id() == org.org_id

    async def test_unusable_fields_are_refused_and_leave_nothing(self, org: LocalOrg, hook: Any) -> None:
        before = len(org.requests())
        for changes, part in [({"consumer_secret": ""}, "consumer_secret"), ({"version": "1"}, "version")]:
            for _ in range(2):
                with pytest.raises(ConfigurationError, match=part):
                    await hook(**changes).async_client().__aenter__()
        assert len(org.requests()) == before

    async def test_no_secret_in_reprs(self, org: LocalOrg, hook: Any) -> None:
        one = hook()
        async with one.async_client() as client:
            await client.org_id()
            shown = repr(one.__dict__) + repr(client.__dict__) + repr(salesforce_streaming._async_clients.__dict__)
        assert org.client_secret not in shown
