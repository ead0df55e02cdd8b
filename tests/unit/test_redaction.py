"""Redaction: no text shows a secret in any encoding."""

from __future__ import annotations

import base64
import itertools
import json
import time
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_sfstream import exceptions, redaction
from airflow_provider_sfstream.actions.storage import open_folder
from airflow_provider_sfstream.hooks.salesforce import SalesforceSettings
from airflow_provider_sfstream.landing.location import Landing
from airflow_provider_sfstream.monitoring.lineage import name_of_url
from airflow_provider_sfstream.redaction import (
    has_credentials,
    quoted,
    quoted_setting,
    redacted,
    remember_secrets,
    remember_user_info,
    without_user_info,
)
from airflow_provider_sfstream.replay_stores.table.urls import sqlalchemy_url
from airflow_provider_sfstream.salesforce.auth.credentials import Credentials
from airflow_provider_sfstream.salesforce.network.proxies import checked_proxy
from airflow_provider_sfstream.salesforce.network.settings import DEFAULT_NETWORK
from airflow_provider_sfstream.salesforce.network.tls import checked_origin
from airflow_provider_sfstream.salesforce.pubsub.channel import Endpoint
from airflow_provider_sfstream.salesforce.stream_uris import StreamUri
from tests.support.stepwise_login import Login

PRINTABLE = st.characters(exclude_categories=("C", "Z"))
SECRET = st.text(PRINTABLE | st.just(" "), min_size=13, max_size=40).filter(lambda text: text.strip() == text)
PEM = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQ\nEFAASCBKcwggSjAgEAAo\n-----END PRIVATE KEY-----\n"

FORMS = {
    "plain": lambda secret: secret,
    "URL": lambda secret: quote(secret, safe=""),
    "URL, lower case": lambda secret: "".join(
        part.lower() if part[:1] == "%" else part for part in _split(quote(secret, safe=""))
    ),
    "form": quote_plus,
    "JSON": lambda secret: json.dumps(secret)[1:-1],
    "repr": lambda secret: repr(secret)[1:-1],
    "basic authentication": lambda secret: base64.b64encode(f"user:{secret}".encode()).decode(),
    "base64 for URLs": lambda secret: base64.urlsafe_b64encode(f"{secret}:".encode()).decode(),
}


def _split(text: str) -> list[str]:
    parts, at = [], 0
    while at < len(text):
        size = 3 if text[at] == "%" else 1
        parts.append(text[at : at + size])
        at += size
    return parts


@pytest.mark.parametrize("form", FORMS)
@given(secret=SECRET)
def test_a_secret_is_found_in_every_form(form: str, secret: str) -> None:
    remember_secrets(secret)
    written = FORMS[form](secret)
    shown = str(exceptions.ServiceUnavailableError(f"/event/Order__e: the server sent <{written}>."))
    whole = written if form not in ("basic authentication", "base64 for URLs") else written[8:-4]
    assert whole not in shown
    assert shown.startswith("/event/Order__e: the server sent <")


def test_a_login_remembers_its_secrets_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A triggerer that runs for months uses more tokens than the redaction remembers."""
    monkeypatch.setattr(redaction, "_MOST_SECRETS", 3)
    credentials = Credentials(
        "client_credentials", "https://acme.my.salesforce.com", "key", consumer_secret="s3cret-of-the-app"
    )
    remember_secrets("a-token", "another-token", "one-more-token")
    assert "s3cret" in redacted("s3cret-of-the-app"), "the secret that was unused for longest is dropped"
    Login(credentials, 0)
    assert redacted("s3cret-of-the-app, another-token and a-token") == "***, *** and a-token"


def test_each_line_of_a_key_is_redacted() -> None:
    remember_secrets(PEM)
    for line in PEM.splitlines()[1:-1]:
        assert line not in redacted(f"cannot load {line!r}")
    assert redacted("key: " + json.dumps(PEM)) == 'key: "***\\n"', "a key that was never registered is redacted too"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://user:pa/ss#w?rd@proxy:3128", "http://***@proxy:3128"),
        ("s3://KEY:SEC/RET@bucket/base", "s3://***@bucket/base"),
        ("sfstream:u:PW@salesforce_default/event/Order__e", "sfstream:***@salesforce_default/event/Order__e"),
        ("https://a.blob.example/c?sv=1&sig=abc%2Fdef&x=y", "https://a.blob.example/c?sv=1&sig=***&x=y"),
        ("https://b.example/k?X-Amz-Signature=0123", "https://b.example/k?X-Amz-Signature=***"),
        ("https://a.example/event/Order__e?min_events=2", "https://a.example/event/Order__e?min_events=2"),
        ("http://localhost:8080/services", "http://localhost:8080/services"),
    ],
)
def test_user_information_and_signatures_are_removed_from_urls(url: str, shown: str) -> None:
    assert redacted(f"cannot reach {url} now") == f"cannot reach {shown} now"


BEGINNINGS = (
    "sfstream:",
    "sfstream:/",
    "sfstream://",
    "s3:/",
    "s3://",
    "s3:///",
    "s3:\\\\",
    "https://",
    "file://",
    "//",
)
USERS = ("{}:{}", ":{}", "[{}", "{}]", "[{}:{}", "{}:[{}", "u:{}", "%{}", "a=b+{}", "u:p:{}", "u:{}@x")
ENDS = (
    "",
    "bucket",
    "bucket/base",
    "[",
    "[::1",
    "host:99999",
    "host:port/x",
    "/event/Order__e",
    "salesforce_default/x?a=b",
)


def _settings(url: str) -> SalesforceSettings:
    return SalesforceSettings(
        Credentials("client_credentials", "https://acme", "key", consumer_secret="app"), None, url, DEFAULT_NETWORK
    )


READERS: dict[str, Callable[[str], object]] = {
    "stream": StreamUri.parse,
    "landing": Landing.from_url,
    "folder": lambda url: open_folder("landing", url, None),
    "dataset": name_of_url,
    "proxy": checked_proxy,
    "origin": lambda url: checked_origin("login_url", url, allow_insecure=False),
    "endpoint": Endpoint.parse,
    "database": lambda url: sqlalchemy_url("generic", url, None, None, None, None, {}),
    "repr": lambda url: repr(_settings(url)),
    "shown": without_user_info,
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_no_reader_of_a_malformed_url_shows_its_secret(reader: str, beginning: str) -> None:
    secrets = (f"Zq7-{kind}-{reader}-{len(beginning)}" for kind in itertools.count())
    for user, end in itertools.product(USERS, ENDS):
        secret = next(secrets)
        url = f"{beginning}{user.replace('{}', secret)}@{end}"
        try:
            shown = str(READERS[reader](url)) if reader in ("repr", "shown") else str(READERS[reader](url))[:0]
        except exceptions.SalesforceStreamError as error:
            shown = "".join(f"{each}" for each in (error, error.__cause__) if each is not None)
        assert secret not in shown, url


@pytest.mark.parametrize("beginning", [each for each in BEGINNINGS if each != "//"])
def test_malformed_url_with_a_secret_is_recognized_and_redacted(beginning: str) -> None:
    for user, end in itertools.product(USERS, ENDS):
        url = f"{beginning}{user.replace('{}', 'Zq7')}@{end}"
        assert "Zq7" not in redacted(f"cannot use {url} now: '{url}'"), url
        assert has_credentials(url), url


@pytest.mark.parametrize(
    "url",
    [
        "s3://my_conn@bucket/base",
        "s3://bucket/dir@2026/x",
        "abfss://container@account.dfs.core.windows.net/x",
        "abfss://$web@account.dfs.core.windows.net/x",
        "s3://{{conn}}@bucket",
        "s3://{{ var.value.conn }}@bucket",
        "s3://{{ params['conn'] }}@bucket",
        "gs://bucket/run=1/a@b",
        "http://localhost:8080/x@y",
        "file:///lake/a@b:c",
        "/lake/2026-01-01T00:00/x@y",
        "/event/Order__e",
        "https://api.pubsub.salesforce.com:7443",
    ],
)
def test_url_without_a_secret_is_shown_unchanged(url: str) -> None:
    assert not has_credentials(url)
    assert redacted(f"cannot use {url} now") == f"cannot use {url} now"


@pytest.mark.parametrize(
    ("endpoint", "shown"),
    [
        ("https://user:s3cret@api.example:7443", "https://***@api.example:7443"),
        ("user:s3cret@api.example:7443", "***@api.example:7443"),
        ("s3cret@api.example", "***@api.example"),
        ("https://[s3cret@", "https://***@"),
        ("https:/u:s3cret@x", "https:/***@x"),
        ("api.pubsub.salesforce.com:7443", "api.pubsub.salesforce.com:7443"),
        (None, None),
    ],
)
def test_the_settings_of_a_connection_show_no_user_information(endpoint: str | None, shown: str | None) -> None:
    assert repr(_settings(endpoint)).endswith(f"pubsub_endpoint={shown!r})")  # type: ignore[arg-type]


def test_password_is_redacted_after_a_library_parsed_the_url() -> None:
    remember_user_info("http://user:pa%2Fss/w0rd@proxy:3128")
    assert redacted("port could not be cast to integer value as 'pa%2Fss'")
    assert "pa%2Fss/w0rd" not in redacted("no such host: pa%2Fss/w0rd")
    assert "pa/ss/w0rd" not in redacted("no such host: pa/ss/w0rd")


def test_short_secret_is_redacted_only_as_a_whole_word() -> None:
    remember_secrets("hook")
    assert redacted("the hook of a webhook, a_hook, 'hook'") == "the *** of a webhook, a_hook, '***'"
    remember_secrets("e")
    assert redacted("there") == "there"


def test_foreign_text_is_on_one_line_without_control_characters() -> None:
    forged = "fine\n[2026-01-01] INFO - all events landed\r\x1b[2J\x07\u202e\x85"
    shown = str(exceptions.LandingError(forged))
    assert shown == "fine\\n[2026-01-01] INFO - all events landed\\r\\x1b[2J\\x07\\u202e\\x85"
    assert str(exceptions.LandingError("\ud800")) == "\\ud800", "it can be written to any log"


def test_truncated_text_shows_no_part_of_a_secret() -> None:
    remember_secrets("correct-horse-battery-staple")
    assert "horse" not in quoted("x" * 490 + "correct-horse-battery-staple")
    assert len(quoted("x" * 100_000)) == 502


@pytest.mark.parametrize("value", [PEM, PEM.replace("\n", "\\n"), "x" * 256, "a\nb"])
def test_setting_that_looks_like_a_key_is_not_shown(value: str) -> None:
    assert quoted_setting(value) == f"(a text of {len(value)} characters, which is not shown)"


def test_plain_setting_is_shown_unchanged() -> None:
    assert quoted_setting("/etc/keys/salesforce.pem") == "'/etc/keys/salesforce.pem'"


def test_number_of_remembered_secrets_is_bounded() -> None:
    tokens = [f"access-token-number-{number:06}" for number in range(2 * redaction._MOST_SECRETS)]
    remember_secrets(*tokens)
    assert len(redaction._forms) == redaction._MOST_SECRETS
    assert tokens[-1] not in redacted(f"refused: {tokens[-1]}")


@pytest.mark.parametrize("piece", [":", "-----BEGIN ", "?sig=", "a:b@", ":/", "://[", ":[a", ":/a%"])
def test_redaction_of_any_long_text_is_fast(piece: str) -> None:
    text = piece * (1_000_000 // len(piece))
    began = time.process_time()
    redacted(text)
    assert time.process_time() - began < 5
