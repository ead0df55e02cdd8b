"""Pub/Sub channel: endpoints, call metadata, options and certificate authorities."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_sfstream.exceptions import AuthenticationError, ConfigurationError
from airflow_provider_sfstream.salesforce.auth.tokens import AccessToken
from airflow_provider_sfstream.salesforce.network.settings import Timers
from airflow_provider_sfstream.salesforce.network.tls import is_loopback, load_ca
from airflow_provider_sfstream.salesforce.pubsub.channel import (
    DEFAULT_ENDPOINT,
    Endpoint,
    call_metadata,
    channel_options,
)


@pytest.mark.parametrize(
    ("text", "target", "plaintext"),
    [
        (DEFAULT_ENDPOINT, "api.pubsub.salesforce.com:7443", False),
        ("api.deu.pubsub.salesforce.com", "api.deu.pubsub.salesforce.com:443", False),
        ("https://api.pubsub.salesforce.com:7443/", "api.pubsub.salesforce.com:7443", False),
        ("http://127.0.0.1:7011", "127.0.0.1:7011", True),
        ("http://LOCALHOST:7011", "localhost:7011", True),
        ("http://[::1]:7011", "[::1]:7011", True),
    ],
)
def test_an_endpoint_is_a_host_and_a_port(text: str, target: str, plaintext: bool) -> None:
    assert Endpoint.parse(text) == Endpoint(target, plaintext)


@pytest.mark.parametrize(
    "text", ["", ":7443", "ftp://host:1", "host:port", "host:99999", "https://host/path", "https://u:p@host:1"]
)
def test_invalid_endpoint_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="pubsub_endpoint must be host:port"):
        Endpoint.parse(text)


@pytest.mark.parametrize(
    "text", ["http://api.pubsub.salesforce.com:7443", "http://10.0.0.7:80", "http://localhost.evil.example"]
)
def test_plaintext_to_another_machine_requires_allow_insecure(text: str) -> None:
    with pytest.raises(ConfigurationError, match="allow_insecure"):
        Endpoint.parse(text)
    assert Endpoint.parse(text, allow_insecure=True).plaintext


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("localhost", True), ("127.0.0.53", True), ("::1", True), ("[::1]", True), ("0.0.0.0", False), ("myhost", False)],
)
def test_loopback_is_this_machine_only(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_every_call_carries_the_three_headers_and_its_own_trace_id() -> None:
    token = AccessToken("tok", "https://org.my.salesforce.com", "00D000000000001AAA")
    first, second = dict(call_metadata(token)), dict(call_metadata(token))
    assert first["accesstoken"] == "tok"
    assert first["instanceurl"] == "https://org.my.salesforce.com"
    assert first["tenantid"] == "00D000000000001AAA"
    assert first["x-client-trace-id"] != second["x-client-trace-id"]
    assert set(first) == {"accesstoken", "instanceurl", "tenantid", "x-client-trace-id"}


def test_messages_of_the_largest_size_fit() -> None:
    options = dict(channel_options(Timers()))
    assert int(options["grpc.max_receive_message_length"]) > 3_000_000
    assert int(options["grpc.max_send_message_length"]) > 3_000_000


def test_default_pings_keep_a_silent_connection_open() -> None:
    options = dict(channel_options(Timers()))
    assert int(options["grpc.keepalive_time_ms"]) < 60_000
    assert options["grpc.http2.max_pings_without_data"] == 0, "gRPC's default is two pings, and almost none after them"


def test_each_timer_is_an_option_in_milliseconds() -> None:
    options = dict(channel_options(Timers(1.5, 2, 3, 4)))
    names = ("keepalive_time_ms", "keepalive_timeout_ms", "min_reconnect_backoff_ms", "max_reconnect_backoff_ms")
    assert [options[f"grpc.{name}"] for name in names] == [1500, 2000, 3000, 4000]


@pytest.mark.parametrize("value", ["", "two words", "line\nbreak", "snowman ☃"])
def test_token_that_is_no_valid_header_is_refused_and_not_quoted(value: str) -> None:
    with pytest.raises(AuthenticationError) as caught:
        AccessToken(value, "https://x", "00D")
    assert not value or value not in str(caught.value)


def test_a_token_does_not_show_in_its_repr() -> None:
    assert "s3cret" not in repr(AccessToken("s3cret", "https://x", "00D"))


def test_a_certificate_authority_is_a_file_or_its_text(tmp_path: Path, ca_pem: str) -> None:
    file = tmp_path / "ca.pem"
    file.write_text(ca_pem)
    assert load_ca(str(file)) == load_ca(ca_pem) == ca_pem
    assert load_ca(None) is load_ca("  ") is None


@pytest.mark.parametrize(
    "text", ["-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----", "/no/such/file.pem"]
)
def test_an_unusable_certificate_authority_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="tls_ca"):
        load_ca(text)


def test_a_file_without_a_certificate_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("hello")
    with pytest.raises(ConfigurationError, match="tls_ca"):
        load_ca(str(file))
