"""The HTTP session that simple-salesforce sends its requests through: our logins, TLS, proxies, time limits."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase
from urllib3.util.retry import Retry

from airflow_provider_sfstream.exceptions import ConfigurationError, RequestRejectedError
from airflow_provider_sfstream.salesforce.auth.tokens import Session
from airflow_provider_sfstream.salesforce.network.proxies import proxy_for

LARGEST_ANSWER = 256 * 1024 * 1024
"""Bytes of one answer, unpacked. It is held in memory."""
TIMEOUT = (10.0, 300.0)
"""Seconds to connect, and to wait for more of an answer. Salesforce gives a query up to two minutes."""

_PART = 64 * 1024
_PASSING = (502, 503, 504)


def record_session(tokens: Session, ssl_context: ssl.SSLContext, proxies: Mapping[str, str]) -> requests.Session:
    """Return a session for requests to the org that ``tokens`` lead to, over HTTPS only. The caller closes it.

    A request that Salesforce refuses for its token is sent again once, after a new login. Requests that only read are
    repeated where the connection or the service failed in passing.

    :param proxies: proxy URL by scheme, before the environment's.
    :raises AuthenticationError: if a login was needed and failed.
    :raises ConfigurationError: if the org's address is not one of HTTPS. Nothing was sent to it.
    """
    instance_url = tokens.token().instance_url
    if urlsplit(instance_url).scheme != "https":
        raise ConfigurationError(
            f"Records are fetched over HTTPS only, and the login leads to {instance_url}. Give the connection the "
            "https:// address of the org (login_url, instance_url). Nothing was sent to it."
        )
    session = _Session()
    # Without trust_env, which would also send the credentials of a .netrc file, and take CA files from elsewhere.
    session.trust_env = False
    session.auth = _TokenAuth(tokens)
    session.max_redirects = 0
    proxy = proxy_for(instance_url, proxies)
    session.proxies = {"https": proxy} if proxy else {}
    session.adapters.clear()
    session.mount("https://", _Adapter(ssl_context))
    return session


class _Session(requests.Session):
    """Reads each answer at once, and no more of it than there may be, however small it came."""

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        response = super().send(request, **{**options, "stream": True})
        body = bytearray()
        for part in response.iter_content(_PART):
            body += part
            if len(body) > LARGEST_ANSWER:
                response.close()
                raise RequestRejectedError(
                    f"{urlsplit(str(request.url)).path}: an answer is larger than {LARGEST_ANSWER // 2**20} MiB and "
                    "was thrown away. Ask for fewer records at a time (bulk_page_records). The replica is as it was."
                )
        response._content = bytes(body)  # what requests itself does, without a limit
        return response


class _TokenAuth(AuthBase):
    """Signs each request with the token of the moment."""

    def __init__(self, tokens: Session) -> None:
        self._tokens = tokens

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        self._sign(request)
        request.register_hook("response", self._again)
        return request

    def _sign(self, request: requests.PreparedRequest) -> bool:
        """Add the token, if ``request`` goes to the org that it is of."""
        self._token = self._tokens.token()
        if urlsplit(self._token.instance_url).netloc.lower() != urlsplit(str(request.url)).netloc.lower():
            return False
        request.headers["Authorization"] = f"Bearer {self._token.value}"
        return True

    def _again(self, response: requests.Response, **options: Any) -> requests.Response:
        """Send a request whose token was refused once more; Salesforce refuses it before doing anything."""
        if response.status_code != 401:
            return response
        response.close()
        self._tokens.refused(self._token)
        self._tokens.renew()
        request = response.request.copy()
        if not self._sign(request):
            return response
        again: requests.Response = response.connection.send(request, **options)
        again.history.append(response)
        again.request = request
        return again


class _Adapter(HTTPAdapter):
    """Verifies certificates with one TLS context, as all clients of this package do, and never waits for ever."""

    def __init__(self, ssl_context: ssl.SSLContext) -> None:
        self._ssl_context = ssl_context
        repeat = Retry(
            total=4,
            other=0,  # what no retry mends, such as a certificate
            backoff_factor=0.5,
            status_forcelist=_PASSING,
            allowed_methods=("GET",),
            raise_on_status=False,
            redirect=False,
        )
        super().__init__(max_retries=repeat)

    def init_poolmanager(self, *args: Any, **options: Any) -> Any:
        return super().init_poolmanager(*args, **options, ssl_context=self._ssl_context)

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        return super().proxy_manager_for(proxy, **options, ssl_context=self._ssl_context)

    def cert_verify(self, conn: Any, url: str, verify: Any, cert: Any) -> None:
        """Leave certificates to the context: requests would trust the public authorities beside it."""
        conn.cert_reqs, conn.ca_certs, conn.ca_cert_dir = "CERT_REQUIRED", None, None

    def send(self, request: Any, *args: Any, **options: Any) -> requests.Response:
        options["timeout"] = options.get("timeout") or TIMEOUT
        return super().send(request, *args, **options)
