"""Salesforce's time, from the ``Date`` header of a request that any user may send."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from airflow_provider_sfstream.exceptions import SalesforceStreamError
from airflow_provider_sfstream.salesforce.api_versions import DEFAULT_API_VERSION
from airflow_provider_sfstream.salesforce.auth.tokens import TokenProvider
from airflow_provider_sfstream.salesforce.rest.client import RestClient
from airflow_provider_sfstream.salesforce.server_time import ServerTime

log = logging.getLogger(__name__)


def measured_server_time(
    token_provider: TokenProvider,
    clock: Callable[[], float],
    *,
    tls_ca: str | None,
    proxies: Mapping[str, str] | None,
    allow_insecure: bool,
) -> ServerTime | None:
    """Return Salesforce's time, measured now with ``clock``; ``None``, with a warning, if no response has it.

    :param clock: monotonic seconds.
    :raises SalesforceStreamError: if the login failed.
    """
    token_provider.token()  # a login that fails is an error of the run, and no missing measurement
    client = RestClient(
        token_provider,
        api_version=DEFAULT_API_VERSION,
        tls_ca=tls_ca,
        proxies=proxies,
        allow_insecure=allow_insecure,
    )
    with client:
        try:
            sent = clock()
            date = client.server_time()
            return ServerTime(date, sent, clock())
        except SalesforceStreamError as error:
            log.warning(
                "Salesforce's time could not be measured, so this run claims no time: its window has no confirmed_at "
                "and no contact_at. No event is affected. %s",
                error,
            )
            return None
