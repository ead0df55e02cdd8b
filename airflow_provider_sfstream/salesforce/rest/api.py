"""What clients of one part of the REST API have in common."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import ClassVar, Self

from airflow_provider_sfstream.salesforce.api_versions import (
    DEFAULT_API_VERSION,
    FIRST_API_VERSION,
    api_version_from,
)
from airflow_provider_sfstream.salesforce.auth.tokens import TokenProvider
from airflow_provider_sfstream.salesforce.rest.client import RestClient


class RestApiClient:
    """A context manager that closes its connections. Nothing is contacted before the first request.

    :param token_provider: gives the access token, at the time of each request.
    :param api_version: of ``first_api_version`` or above, a leading ``v`` allowed.
    :param tls_ca: certificate authority to trust instead of the usual ones: a file, or PEM text.
    :param proxies: proxy URL by scheme (``http``, ``https``), before the environment's ``HTTPS_PROXY``.
    :param allow_insecure: accept an org's address without TLS that is not loopback.
    :raises ConfigurationError: if an argument is unusable. Nothing was contacted.
    """

    first_api_version: ClassVar[int] = FIRST_API_VERSION
    """The first version that has this part."""
    needs_version: ClassVar[str]
    """What needs it, for the error: "API version '30.0' is none that" and this."""

    def __init__(
        self,
        token_provider: TokenProvider,
        *,
        api_version: str = DEFAULT_API_VERSION,
        tls_ca: str | None = None,
        proxies: Mapping[str, str] | None = None,
        allow_insecure: bool = False,
    ) -> None:
        self.api_version = api_version_from(api_version, first=self.first_api_version, what=self.needs_version)
        self._rest = RestClient(
            token_provider,
            api_version=self.api_version,
            tls_ca=tls_ca,
            proxies=proxies,
            allow_insecure=allow_insecure,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def server_time(self) -> datetime:
        """Return what time it is at the org, aware, in whole seconds, by the ``Date`` of an answer (RFC 9110). No API
        request is counted for it.

        :raises SalesforceStreamError: if the org does not answer, or without a time.
        """
        return self._rest.server_time()

    def close(self) -> None:
        """Close the connections."""
        self._rest.close()
