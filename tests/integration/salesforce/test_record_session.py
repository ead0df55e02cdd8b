"""HTTP session of the record client: busy service, redirects and responses of other servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import (
    ConfigurationError,
    QuotaExceededError,
    ServiceUnavailableError,
    SessionExpiredError,
)
from airflow_provider_sfstream.salesforce.network.settings import NetworkSettings
from airflow_provider_sfstream.salesforce.rest.records import RecordClient
from sfstream_localorg.tls import TlsFiles, ensure_tls_files
from tests.support.answering_host import Host, TokenSequence, running_host

COUNT = {"totalSize": 7, "done": True, "records": []}


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    folder: Path = tmp_path_factory.mktemp("tls")
    return ensure_tls_files(folder)


@pytest.fixture
def host(tls: TlsFiles) -> Iterator[Host]:
    with running_host(tls) as one:
        yield one


@pytest.fixture
def other(tls: TlsFiles) -> Iterator[Host]:
    with running_host(tls) as one:
        yield one


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("urllib3.util.retry.Retry.sleep", lambda *_: None)


def client(tls: TlsFiles, logins: TokenSequence) -> RecordClient:
    return RecordClient(logins, api_version="62.0", network=NetworkSettings(str(tls.ca)), job_wait=0.01)


def refusal(code: str, message: str = "Refused.") -> list[dict[str, str]]:
    return [{"errorCode": code, "message": message}]


def test_request_is_retried_while_the_service_is_busy(tls: TlsFiles, host: Host) -> None:
    host.answers = [(503, {}, b"maintenance"), (502, {}, b""), (200, {}, COUNT)]
    with client(tls, TokenSequence(host)) as one:
        assert one.count("Account") == 7
    assert host.requests == [("GET", "Bearer s3cret-0")] * 3


def test_service_that_stays_busy_raises(tls: TlsFiles, host: Host) -> None:
    host.answers = [(503, {}, refusal("SERVER_UNAVAILABLE"))]
    with (
        client(tls, TokenSequence(host)) as one,
        pytest.raises(ServiceUnavailableError, match="HTTP 503, SERVER_UNAVAILABLE"),
    ):
        one.count("Account")
    assert len(host.requests) == 5


def test_creation_of_a_query_job_is_not_retried(tls: TlsFiles, host: Host) -> None:
    host.answers = [(503, {}, b"maintenance")]
    with (
        client(tls, TokenSequence(host)) as one,
        pytest.raises(ServiceUnavailableError, match="by the Bulk API, after 0"),
    ):
        list(one.bulk_query("Account", ["Id"], page_records=10))
    assert [method for method, _ in host.requests] == ["POST"]


def test_failed_query_job_raises(tls: TlsFiles, host: Host) -> None:
    job = {"id": "750", "state": "Failed", "errorMessage": "InternalServerError : Retry your request"}
    host.answers = [(200, {}, {"id": "750", "state": "UploadComplete"}), (200, {}, job)]
    with (
        client(tls, TokenSequence(host)) as one,
        pytest.raises(ServiceUnavailableError, match=r"Account: .*Retry your request"),
    ):
        list(one.bulk_query("Account", ["Id"], page_records=10))


def test_a_token_is_renewed_once_for_each_request(tls: TlsFiles, host: Host) -> None:
    expired = (401, {}, refusal("INVALID_SESSION_ID"))
    host.answers = [expired, (200, {}, COUNT), expired]
    logins = TokenSequence(host)
    with client(tls, logins) as one:
        assert one.count("Account") == 7
        assert [token for _, token in host.requests] == ["Bearer s3cret-0", "Bearer s3cret-1"]
        with pytest.raises(
            SessionExpiredError, match=r"Account: its number of records: .*also after a new login"
        ) as caught:
            one.count("Account")
    assert [token for _, token in host.requests[2:]] == ["Bearer s3cret-1", "Bearer s3cret-2"]
    assert "s3cret" not in str(caught.value)


def test_new_token_is_not_sent_after_the_org_moved_to_another_host(tls: TlsFiles, host: Host, other: Host) -> None:
    host.answers = [(401, {}, refusal("INVALID_SESSION_ID"))]
    with client(tls, TokenSequence(host, other)) as one, pytest.raises(SessionExpiredError):
        one.count("Account")
    # The new token is not sent to the old host, and the query is not sent to another host.
    assert (host.requests, other.requests) == ([("GET", "Bearer s3cret-0")], [])


def test_redirects_are_not_followed(tls: TlsFiles, host: Host, other: Host) -> None:
    host.answers = [(302, {"Location": f"{other.url}/services/data"}, b"")]
    with (
        client(tls, TokenSequence(host)) as one,
        pytest.raises(ConfigurationError, match="the response is not from Salesforce's API"),
    ):
        one.count("Account")
    assert other.requests == []


@pytest.mark.parametrize("body", [b"<html>Log in</html>", {"totalSize": "many"}, []])
def test_response_that_is_not_of_salesforce_is_refused(tls: TlsFiles, host: Host, body: Any) -> None:
    host.answers = [(200, {}, body)]
    with (
        client(tls, TokenSequence(host)) as one,
        pytest.raises(ConfigurationError, match="the response is not from Salesforce's API"),
    ):
        one.count("Account")


def test_error_contains_the_message_of_salesforce(tls: TlsFiles, host: Host) -> None:
    host.answers = [(403, {}, refusal("REQUEST_LIMIT_EXCEEDED", "TotalRequests Limit exceeded."))]
    with (
        client(tls, TokenSequence(host)) as one,
        pytest.raises(QuotaExceededError, match=r"TotalRequests Limit exceeded\."),
    ):
        one.describe("Account")
