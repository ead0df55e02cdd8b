"""How the Streaming API is reached."""

from __future__ import annotations

import ssl

import aiohttp
import pytest
from aiosfstream.exceptions import TransportError

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.salesforce.streaming.cometd.http import HttpOptions, cometd_url, transport_error


@pytest.mark.parametrize("instance_url", ["https://x.my.salesforce.com", "https://x.my.salesforce.com/"])
def test_the_address_of_the_endpoint(instance_url: str) -> None:
    assert cometd_url(instance_url, "62.0", allow_insecure=False) == "https://x.my.salesforce.com/cometd/62.0"


@pytest.mark.parametrize("instance_url", ["http://127.0.0.1:8080", "http://localhost:8080", "http://[::1]:8080"])
def test_plaintext_to_this_machine(instance_url: str) -> None:
    assert cometd_url(instance_url, "62.0", allow_insecure=False).startswith(instance_url)


def test_plaintext_to_another_machine_must_be_allowed() -> None:
    with pytest.raises(ConfigurationError, match=r"x\.example would send credentials unencrypted"):
        cometd_url("http://x.example", "62.0", allow_insecure=False)

    assert cometd_url("http://x.example", "62.0", allow_insecure=True) == "http://x.example/cometd/62.0"


@pytest.mark.parametrize("instance_url", ["x.my.salesforce.com", "ftp://x.example", "", "https://"])
def test_what_is_no_instance_url(instance_url: str) -> None:
    with pytest.raises(ConfigurationError, match="instance URL"):
        cometd_url(instance_url, "62.0", allow_insecure=True)


def test_the_proxy_given_comes_before_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://environment:3128")
    monkeypatch.setenv("NO_PROXY", "other.example")

    def proxy(options: HttpOptions, url: str) -> object:
        return options.request_options(url)["proxy"]

    assert proxy(HttpOptions(proxy="http://given:1"), "https://x.example") == "http://given:1"
    assert proxy(HttpOptions(), "https://x.example") == "http://environment:3128"
    assert proxy(HttpOptions(), "https://other.example") is None
    assert "given" not in repr(HttpOptions(proxy="http://user:given@proxy:1"))


def test_without_a_context_certificates_are_verified_as_the_library_does() -> None:
    context = ssl.create_default_context()

    assert "ssl" not in HttpOptions().request_options("https://x.example")
    assert HttpOptions(ssl=context).request_options("https://x.example")["ssl"] is context


def test_an_error_shows_no_password_of_a_proxy() -> None:
    error = transport_error(aiohttp.ClientError("cannot reach http://user:secret@proxy:3128 now"))

    assert isinstance(error, TransportError)
    assert str(error) == "ClientError: cannot reach http://***@proxy:3128 now"


def test_an_error_keeps_what_tls_said() -> None:
    cause = ssl.SSLCertVerificationError("certificate verify failed")
    outer = aiohttp.ClientError("cannot connect")
    outer.__cause__ = cause

    assert transport_error(outer).__cause__ is cause
    assert transport_error(aiohttp.ClientError("cannot connect")).__cause__ is None


def test_a_timeout_says_so() -> None:
    assert "did not answer in time" in str(transport_error(TimeoutError()))
