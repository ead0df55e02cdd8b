"""Contract of all hooks that read events, on a local org: connection tests, clients and logins."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import AuthenticationError, ConfigurationError
from airflow_provider_sfstream.salesforce.events import StartFrom
from scripts.airflow_stack import free_port
from tests.support.event_hooks import EVENT_HOOKS, EventHook
from tests.support.localorg import LocalOrg
from tests.support.tasks import set_connection

MakeHook = Callable[..., Any]


@pytest.fixture(params=EVENT_HOOKS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> EventHook:
    kind: EventHook = request.param
    return kind


def logins(org: LocalOrg) -> int:
    return int(org.admin("GET", "/oauth")["requests"])


class TestConnection:
    def test_valid_connection_passes(self, org: LocalOrg, kind: EventHook, make_hook: MakeHook) -> None:
        ok, message = make_hook().test_connection()
        assert ok, message
        assert org.org_id in message
        assert kind.success_text in message
        ok, message = make_hook().test_connection(kind.topic)
        assert ok, message
        assert f"{kind.topic} can be subscribed to" in message
        assert "Salesforce retires" not in message

    def test_retiring_login_and_api_version_are_named_in_the_message(
        self, org: LocalOrg, kind: EventHook, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        extra = {**kind.extra(org), "version": "40.0"}
        login = {"login": org.username, "password": org.password}
        set_connection(monkeypatch, "sf", conn_type="salesforce", extra=extra, **login)
        ok, message = kind.hook("sf").test_connection(kind.topic)
        assert ok, message
        assert "Salesforce retires this login in 2027" in message
        assert "retires them in Summer '28" in message

    def test_valid_connection_over_tls_passes(self, org: LocalOrg, kind: EventHook, make_hook: MakeHook) -> None:
        ok, message = make_hook(**kind.extra_over_tls(org)).test_connection(kind.topic)
        assert ok, message

    def test_failed_login_is_named_in_the_message(self, org: LocalOrg, make_hook: MakeHook) -> None:
        for changes, part in [
            ({"consumer_secret": "WRONG-s3cret"}, "consumer_secret"),
            ({"login_url": f"http://127.0.0.1:{free_port()}"}, "cannot be reached"),
            ({"login_url": org.https_instance_url}, "tls_ca"),
            ({"organization_id": "00D000000000001AAA"}, "organization_id"),
        ]:
            ok, message = make_hook(**changes).test_connection()
            assert not ok
            assert message.startswith("Login: "), message
            assert part in message
            assert "s3cret" not in message

    def test_failed_identity_is_named_in_the_message(self, org: LocalOrg, make_hook: MakeHook) -> None:
        ok, message = make_hook(access_token="WRONG-s3cret", instance_url=org.instance_url).test_connection()
        assert not ok
        assert message.startswith("Identity: ")
        assert "s3cret" not in message

    def test_topic_without_permission_is_named_in_the_message(
        self, org: LocalOrg, kind: EventHook, make_hook: MakeHook
    ) -> None:
        ok, message = make_hook().test_connection(kind.missing_topic)
        assert not ok
        assert message.startswith(f"Topic permission: {kind.missing_topic}")
        kind.deny(org)
        ok, message = make_hook().test_connection(kind.topic)
        assert not ok
        assert message.startswith(f"Topic permission: {kind.topic}")


def test_hook_and_client_share_one_login(org: LocalOrg, kind: EventHook, make_hook: MakeHook) -> None:
    one = make_hook()
    assert one.org_id == org.org_id
    before = logins(org)
    with one.get_conn() as client:
        batch = next(client.subscribe(kind.topic, StartFrom.EARLIEST, limit=1, idle_timeout=60))
    assert batch.payloads == [org.record(kind.topic)[0]["payload"]]
    assert logins(org) == before, "hook and client share one login"


def test_a_refused_login_raises(make_hook: MakeHook) -> None:
    with pytest.raises(AuthenticationError):
        _ = make_hook(consumer_secret="WRONG").org_id


class TestAsyncClient:
    @pytest.mark.parametrize("tls", [False, True], ids=["plaintext", "tls"])
    async def test_reads_events(self, org: LocalOrg, kind: EventHook, make_hook: MakeHook, tls: bool) -> None:
        async with make_hook(**kind.extra_over_tls(org) if tls else {}).async_client() as client:
            stream = client.subscribe(kind.topic, StartFrom.EARLIEST, limit=1, silence_timeout=60)
            assert [len(batch) async for batch in stream if len(batch)] == [1]
            assert await client.org_id() == org.org_id

    async def test_equal_connections_share_one_client_and_one_login(self, org: LocalOrg, make_hook: MakeHook) -> None:
        before = logins(org)
        leave = asyncio.Event()

        async def user() -> Any:
            async with make_hook().async_client() as client:
                org_id = await client.org_id()
                await leave.wait()
                assert await client.org_id() == org_id, "the client stays open until its last user has closed it"
            return client

        users = [asyncio.create_task(user()) for _ in range(200)]
        async with make_hook().async_client() as client:
            assert await client.org_id() == org.org_id
            leave.set()
            assert set(await asyncio.gather(*users)) == {client}
            assert logins(org) == before + 1
        with pytest.raises(RuntimeError, match="closed"):
            await client.schema("K98aAtiNFBjA-PJlcvaQ2g")

    async def test_edited_connection_creates_another_client(self, kind: EventHook, make_hook: MakeHook) -> None:
        async with (
            make_hook().async_client() as first,
            make_hook(**kind.edit_with_same_client).async_client() as second,
        ):
            assert second is first, "both connections have the same settings"
            for edit in kind.edits_with_new_client:
                async with make_hook(**edit).async_client() as other:
                    assert other is not first

    async def test_refused_login_is_attempted_once_and_later_logins_work(
        self, org: LocalOrg, make_hook: MakeHook
    ) -> None:
        org.admin("POST", "/oauth", {"fail_next": 1, "fail_error": "invalid_client"})
        before = logins(org)
        async with make_hook().async_client() as client:
            outcomes = await asyncio.gather(*(client.org_id() for _ in range(20)), return_exceptions=True)
            assert {type(outcome) for outcome in outcomes} == {AuthenticationError}
            assert logins(org) == before + 1, "one login attempt for all waiting calls"
            async with make_hook().async_client() as same:
                assert same is client
                assert await same.org_id() == org.org_id

    async def test_invalid_fields_are_refused_before_any_request(
        self, org: LocalOrg, kind: EventHook, make_hook: MakeHook
    ) -> None:
        before = len(org.requests())
        for changes, part in kind.invalid_fields:
            for _ in range(2):
                with pytest.raises(ConfigurationError, match=part):
                    await make_hook(**changes).async_client().__aenter__()
        assert len(org.requests()) == before

    async def test_no_secret_in_reprs(self, org: LocalOrg, kind: EventHook, make_hook: MakeHook) -> None:
        one = make_hook()
        async with one.async_client() as client:
            await client.org_id()
            shown = repr(one.__dict__) + repr(client.__dict__) + repr(kind.module._async_clients.__dict__)
        assert org.client_secret not in shown
