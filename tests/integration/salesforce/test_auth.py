"""Login to a real server: every flow, every refusal, and one login for many callers."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import (
    AuthenticationError,
    IdentityError,
    LoginUnavailableError,
    RefreshTokenSpentError,
)
from airflow_provider_sfstream.salesforce.auth.credentials import credentials_from
from airflow_provider_sfstream.salesforce.auth.token_provider import OAuthTokenProvider
from airflow_provider_sfstream.salesforce.auth.tokens import AccessToken
from airflow_provider_sfstream.salesforce.network.settings import NetworkSettings
from tests.support.clients import app_fields, token_provider
from tests.support.localorg import LocalOrg

Fields = dict[str, str | None]


def client_credentials(org: LocalOrg) -> Fields:
    return app_fields(org)


def jwt_bearer(org: LocalOrg) -> Fields:
    return {**app_fields(org), "login": org.username, "private_key_file_path": org.jwt_private_key_file}


def jwt_bearer_key_in_field(org: LocalOrg) -> Fields:
    return {**app_fields(org), "login": org.username, "private_key": Path(org.jwt_private_key_file).read_text()}


def refresh_token(org: LocalOrg) -> Fields:
    return {**app_fields(org), "refresh_token": org.admin("POST", "/oauth/refresh_tokens", {})["refresh_token"]}


def password(org: LocalOrg) -> Fields:
    return {**app_fields(org), "login": org.username, "password": org.password, "security_token": org.security_token}


def access_token(org: LocalOrg) -> Fields:
    return {"access_token": org.token(), "instance_url": org.instance_url}


FLOWS = [client_credentials, jwt_bearer, jwt_bearer_key_in_field, refresh_token, password, access_token]


def provider(fields: Fields, **options: Any) -> OAuthTokenProvider:
    return OAuthTokenProvider(credentials_from(fields), **options)


def attempts(org: LocalOrg) -> int:
    return int(org.admin("GET", "/oauth")["requests"])


@pytest.mark.parametrize("flow", FLOWS)
def test_every_flow_logs_in(org: LocalOrg, flow: Callable[[LocalOrg], Fields]) -> None:
    token = provider(flow(org)).token()
    assert token.org_id == org.org_id
    assert token.instance_url == org.instance_url
    assert token.user_id
    assert org.revoke(token.value) == 1, "the org has issued the token"


@pytest.mark.parametrize("flow", FLOWS)
async def test_every_flow_logs_in_without_blocking(org: LocalOrg, flow: Callable[[LocalOrg], Fields]) -> None:
    token = await provider(flow(org)).atoken()
    assert (token.org_id, token.instance_url) == (org.org_id, org.instance_url)


def test_login_over_tls_with_the_certificate_authority_of_the_org(org: LocalOrg) -> None:
    fields = {**app_fields(org), "login_url": org.https_instance_url}
    assert provider(fields, network=NetworkSettings(org.ca_file)).token().instance_url == org.https_instance_url
    assert provider(fields, network=NetworkSettings(Path(org.ca_file).read_text())).token().org_id == org.org_id


@pytest.mark.parametrize(
    ("flow", "changes", "part"),
    [
        (client_credentials, {"consumer_secret": "WRONG-s3cret"}, "consumer_secret"),
        (client_credentials, {"consumer_key": "WRONG-key"}, "consumer_key"),
        (password, {"password": "WRONG-s3cret"}, "login, password and security_token"),
        (password, {"login": "nobody@localorg.example"}, "login, password and security_token"),
        (refresh_token, {"refresh_token": "WRONG-s3cret"}, "log in interactively again"),
        (jwt_bearer, {"login": "nobody@localorg.example"}, "Pre-authorize"),
        (jwt_bearer, {"consumer_key": "WRONG-key"}, "consumer_key"),
    ],
)
def test_wrong_credentials_name_their_remedy(
    org: LocalOrg, flow: Callable[[LocalOrg], Fields], changes: Fields, part: str
) -> None:
    with pytest.raises(AuthenticationError, match="refused the login") as caught:
        provider({**flow(org), **changes}).token()
    assert part in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert not caught.value.retriable


def test_unknown_private_key_is_refused(org: LocalOrg, other_private_key: str) -> None:
    fields = {**app_fields(org), "login": org.username, "private_key": other_private_key}
    with pytest.raises(AuthenticationError, match="certificate"):
        provider(fields).token()


def test_wrong_local_clock_is_named_in_the_error(org: LocalOrg) -> None:
    with pytest.raises(AuthenticationError, match="clock"):
        provider(jwt_bearer(org), now=lambda: 1_000_000.0).token()


def test_client_credentials_on_a_login_host_fail_with_a_hint_to_my_domain(org: LocalOrg) -> None:
    org.admin("POST", "/oauth", {"login_host": True})
    with pytest.raises(AuthenticationError, match="My Domain"):
        token_provider(org).token()


def test_refused_access_token_of_the_connection_raises(org: LocalOrg) -> None:
    with pytest.raises(IdentityError, match="expired, revoked"):
        provider({"access_token": "WRONG-s3cret", "instance_url": org.instance_url}).token()


def test_login_that_spends_the_refresh_token_fails_and_is_not_repeated(org: LocalOrg) -> None:
    """A second login with a spent token would revoke the tokens that the user may have received since."""
    fields = refresh_token(org)
    connections = [fields]
    tokens = provider(fields, read_again=lambda: credentials_from(connections[-1]))
    tokens.invalidate(tokens.token())
    org.admin("POST", "/oauth", {"rotate_refresh_tokens": True, "empty_next": 1})
    before = attempts(org)
    for _ in range(2):
        with pytest.raises(RefreshTokenSpentError, match="Events and positions are unchanged") as caught:
            tokens.token()
        assert not caught.value.retriable
    assert attempts(org) == before + 1
    org.admin("POST", "/oauth", {"rotate_refresh_tokens": False})
    connections.append(refresh_token(org))
    assert tokens.token().org_id == org.org_id
    assert attempts(org) == before + 2
    with pytest.raises(AuthenticationError, match="spent by an earlier login"):
        provider(fields).token()


def test_access_token_of_the_connection_cannot_be_renewed(org: LocalOrg) -> None:
    given = provider(access_token(org))
    token = given.token()
    given.invalidate(token)
    with pytest.raises(AuthenticationError, match="cannot be renewed"):
        given.token()


def test_login_to_an_org_other_than_organization_id_is_refused(org: LocalOrg) -> None:
    assert token_provider(org, organization_id=org.org_id[:15]).token()
    with pytest.raises(AuthenticationError, match="organization_id '00D000000000001AAA'"):
        token_provider(org, organization_id="00D000000000001AAA").token()


def test_login_succeeds_after_maintenance_of_the_login_host(org: LocalOrg) -> None:
    org.admin("POST", "/oauth", {"fail_next": 1})
    tokens = token_provider(org)
    with pytest.raises(LoginUnavailableError, match="HTTP 503"):
        tokens.token()
    assert tokens.token().org_id == org.org_id, "a failure is not cached"


def test_empty_token_is_refused_and_not_cached(org: LocalOrg) -> None:
    org.admin("POST", "/oauth", {"empty_next": 1})
    tokens = token_provider(org)
    with pytest.raises(AuthenticationError, match="without an access token"):
        tokens.token()
    assert tokens.token().value


def test_unreachable_login_host_raises(org: LocalOrg) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        fields = {**app_fields(org), "login_url": f"http://127.0.0.1:{unused.getsockname()[1]}"}
        with pytest.raises(LoginUnavailableError, match="cannot be reached"):
            provider(fields).token()


def test_unknown_certificate_authority_is_refused(org: LocalOrg, other_authority: str) -> None:
    fields = {**app_fields(org), "login_url": org.https_instance_url}
    for tls_ca in (None, other_authority):
        with pytest.raises(AuthenticationError, match="tls_ca") as caught:
            provider(fields, network=NetworkSettings(tls_ca)).token()
        assert not caught.value.retriable


def test_plain_http_server_at_a_tls_url_is_refused(org: LocalOrg) -> None:
    fields = {**app_fields(org), "login_url": f"https://127.0.0.1:{org.http_port}"}
    with pytest.raises(AuthenticationError, match="TLS with"):
        provider(fields).token()


def test_proxies_are_used_and_their_password_is_not_shown(org: LocalOrg) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        proxy = f"http://user:s3cret@127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(LoginUnavailableError) as caught:
            token_provider(org, network=NetworkSettings(proxies={"http": proxy})).token()
    assert "s3cret" not in str(caught.value)
    through = token_provider(org, network=NetworkSettings(proxies={"https": proxy})).token()
    assert through.org_id == org.org_id, "the login uses plain HTTP, so the HTTPS proxy is not used"


class TestOneLogin:
    def test_many_threads_share_one_login(self, org: LocalOrg) -> None:
        tokens, barrier, before = token_provider(org), threading.Barrier(16), attempts(org)

        def get(_: int) -> AccessToken:
            barrier.wait(60)
            return tokens.token()

        with ThreadPoolExecutor(16) as pool:
            first = set(pool.map(get, range(16)))
            assert len(first) == 1
            assert attempts(org) == before + 1

            def get_anew(_: int) -> AccessToken:
                barrier.wait(60)
                tokens.invalidate(*first)  # Salesforce refused the same token in all threads
                return tokens.token()

            second = set(pool.map(get_anew, range(16)))
        assert len(second) == 1
        assert second != first
        assert attempts(org) == before + 2

    async def test_many_tasks_and_threads_share_one_login(self, org: LocalOrg) -> None:
        tokens, before = token_provider(org), attempts(org)
        threads = [asyncio.to_thread(tokens.token) for _ in range(4)]
        values = await asyncio.gather(*(tokens.atoken() for _ in range(16)), *threads)
        assert len(set(values)) == 1
        assert attempts(org) == before + 1

    async def test_another_task_logs_in_when_the_first_is_cancelled(self, org: LocalOrg) -> None:
        tokens = token_provider(org)
        leader = asyncio.create_task(tokens.atoken())
        await asyncio.sleep(0)
        followers = [asyncio.create_task(tokens.atoken()) for _ in range(3)]
        await asyncio.sleep(0)
        leader.cancel()
        assert len(set(await asyncio.wait_for(asyncio.gather(*followers), 60))) == 1
        with pytest.raises(asyncio.CancelledError):
            await leader

    async def test_cancelled_waiting_task_does_not_affect_others(self, org: LocalOrg) -> None:
        tokens, before = token_provider(org), attempts(org)
        tasks = [asyncio.create_task(tokens.atoken()) for _ in range(3)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        assert await tasks[0] == await tasks[2]
        assert attempts(org) == before + 1

    def test_failed_login_reaches_all_callers_and_the_next_call_logs_in_again(self, org: LocalOrg) -> None:
        org.admin("POST", "/oauth", {"fail_next": 1, "fail_error": "invalid_client"})
        tokens, barrier = token_provider(org), threading.Barrier(4)

        def outcome(_: int) -> str:
            barrier.wait(60)
            try:
                return tokens.token().org_id
            except AuthenticationError:
                return "refused"

        with ThreadPoolExecutor(4) as pool:
            outcomes = set(pool.map(outcome, range(4)))
        assert "refused" in outcomes
        assert tokens.token().org_id == org.org_id

    def test_invalidating_an_old_token_changes_nothing(self, org: LocalOrg) -> None:
        tokens, before = token_provider(org), attempts(org)
        old = tokens.token()
        tokens.invalidate(old)
        new = tokens.token()
        tokens.invalidate(old)
        assert tokens.token() is new
        assert attempts(org) == before + 2


@pytest.mark.parametrize("flow", FLOWS)
def test_no_secret_in_logs_or_reprs(
    org: LocalOrg, flow: Callable[[LocalOrg], Fields], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    fields = flow(org)
    tokens = provider(fields)
    token = tokens.token()
    shown = caplog.text + repr(tokens) + repr(token) + repr(tokens.__dict__)
    public = {"login_url", "consumer_key", "login", "instance_url", "private_key_file_path"}
    secrets = [value for name, value in fields.items() if value and name not in public]
    for secret in [*secrets, token.value]:
        assert secret not in shown
