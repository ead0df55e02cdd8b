"""The HTTP session of simple-salesforce, with the logins, TLS, proxies and time limits of this package."""

from __future__ import annotations

import ssl
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase
from urllib3.util.retry import Retry

from airflow_provider_sfstream.exceptions import ConfigurationError, RequestRejectedError
from airflow_provider_sfstream.salesforce.auth.tokens import Session
from airflow_provider_sfstream.salesforce.network.settings import NetworkSettings

LARGEST_ANSWER = 256 * 1024 * 1024
"""Bytes of one decompressed response, which is in memory."""
TIMEOUT = (10.0, 300.0)
"""Seconds to connect, and to wait for the next part of a response. Salesforce allows two minutes for a query."""

_PART = 64 * 1024
_TEMPORARY_STATUSES = (502, 503, 504)


def record_session(tokens: Session, network: NetworkSettings) -> requests.Session:
    """Return a session for HTTPS requests to the org of ``tokens``. The caller closes it.

    If Salesforce refuses the token of a request, the session logs in and sends it again, once. It retries read-only
    requests after temporary faults of the connection or the service.
    """
    instance_url = tokens.token().instance_url
    if urlsplit(instance_url).scheme != "https":
        raise ConfigurationError(
            f"Records are fetched over HTTPS only, but the login returned {instance_url}. Set login_url or "
            f"instance_url of the connection to the https:// address of the org. Nothing was sent to {instance_url}."
        )
    session = _Session()
    # Without trust_env, which would send the credentials of a .netrc file, and use CA files of the environment.
    session.trust_env = False
    session.auth = _TokenAuth(tokens)
    session.max_redirects = 0
    proxy = network.proxy(instance_url)
    session.proxies = {"https": proxy} if proxy else {}
    session.adapters.clear()
    session.mount("https://", _Adapter(network.ssl_context))
    return session


class _Session(requests.Session):
    """Session that reads each response immediately, up to a limit of decompressed bytes."""

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        response = super().send(request, **{**options, "stream": True})
        body = bytearray()
        for part in response.iter_content(_PART):
            body += part
            if len(body) > LARGEST_ANSWER:
                response.close()
                raise RequestRejectedError(
                    f"{urlsplit(str(request.url)).path}: a response is larger than {LARGEST_ANSWER // 2**20} MiB and "
                    "was discarded. Request fewer records at a time (bulk_page_records). The replica is unchanged."
                )
        response._content = bytes(body)  # as in requests, but with a limit
        return response


class _TokenAuth(AuthBase):
    def __init__(self, tokens: Session) -> None:
        self._tokens = tokens

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        self._sign(request)
        request.register_hook("response", self._retry_refused)
        return request

    def _sign(self, request: requests.PreparedRequest) -> bool:
        """Add the token if ``request`` is for the token's org."""
        self._token = self._tokens.token()
        if urlsplit(self._token.instance_url).netloc.lower() != urlsplit(str(request.url)).netloc.lower():
            return False
        request.headers["Authorization"] = f"Bearer {self._token.value}"
        return True

    def _retry_refused(self, response: requests.Response, **options: Any) -> requests.Response:
        """Send a request with a refused token again, once; Salesforce has not executed any part of it."""
        if response.status_code != 401:
            return response
        response.close()
        self._tokens.refused(self._token)
        self._tokens.renew()
        request = response.request.copy()
        if not self._sign(request):
            return response
        retried: requests.Response = response.connection.send(request, **options)
        retried.history.append(response)
        retried.request = request
        return retried


class _Adapter(HTTPAdapter):
    """Adapter that verifies certificates with the TLS context of this package, and limits every wait."""

    def __init__(self, ssl_context: ssl.SSLContext) -> None:
        self._ssl_context = ssl_context
        retries = Retry(
            total=4,
            other=0,  # permanent errors, for example of a certificate
            backoff_factor=0.5,
            status_forcelist=_TEMPORARY_STATUSES,
            allowed_methods=("GET",),
            raise_on_status=False,
            redirect=False,
        )
        super().__init__(max_retries=retries)

    def init_poolmanager(self, *args: Any, **options: Any) -> Any:
        return super().init_poolmanager(*args, **options, ssl_context=self._ssl_context)

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        return super().proxy_manager_for(proxy, **options, ssl_context=self._ssl_context)

    def cert_verify(self, conn: Any, url: str, verify: Any, cert: Any) -> None:
        """Use only the certificates of the context: requests would also trust the public authorities."""
        conn.cert_reqs, conn.ca_certs, conn.ca_cert_dir = "CERT_REQUIRED", None, None

    def send(self, request: Any, *args: Any, **options: Any) -> requests.Response:
        options["timeout"] = options.get("timeout") or TIMEOUT
        return super().send(request, *args, **options)
