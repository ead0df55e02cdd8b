"""Avro schemas of events over REST, for clients of the Streaming API, which has no schemas."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Mapping
from urllib.parse import quote

import httpx

from airflow_provider_sfstream.exceptions import SchemaError, ServiceUnavailableError, SessionExpiredError
from airflow_provider_sfstream.salesforce.auth.tokens import AccessToken
from airflow_provider_sfstream.salesforce.errors.streaming import error_from_status
from airflow_provider_sfstream.salesforce.network.bounded import UNPACKED, aread
from airflow_provider_sfstream.salesforce.network.proxies import proxy_for
from airflow_provider_sfstream.salesforce.schemas import LARGEST_SCHEMA, parse

log = logging.getLogger(__name__)

CALL_TIMEOUT = 30.0
"""Seconds for a request."""


async def event_schema(
    token: AccessToken, schema_id: str, *, api_version: str, context: ssl.SSLContext, proxies: Mapping[str, str]
) -> str | None:
    """Return the schema of the payload, as returned by the Pub/Sub API's GetSchema (Platform Events Developer Guide,
    "Get the Event Schema", ``payloadFormat=COMPACT``).

    JSON payloads can be read without a schema. So a schema that Salesforce does not return (the user may not call REST,
    the ID is unknown) is no error: it is ``None``, with a warning in the log.

    :raises SessionExpiredError: if Salesforce refuses the token.
    :raises ServiceUnavailableError: if Salesforce cannot be reached.
    """
    status, text = await _response(token, schema_id, api_version=api_version, context=context, proxies=proxies)
    if status != httpx.codes.OK:
        log.warning(
            "Salesforce did not return the schema %s of JSON events (HTTP %d); the events are read without it. To "
            "store the schema with them, grant the user the permission 'API Enabled' and read access to the event.",
            schema_id,
            status,
        )
        return None
    try:
        parse(text)
    except SchemaError as error:
        log.warning("The schema %s of JSON events is invalid; the events are read without it. %s", schema_id, error)
        return None
    return text


async def _response(
    token: AccessToken, schema_id: str, *, api_version: str, context: ssl.SSLContext, proxies: Mapping[str, str]
) -> tuple[int, str]:
    path = f"services/data/v{api_version}/event/eventSchema/{quote(schema_id, safe='')}"
    url = f"{token.instance_url}/{path}?payloadFormat=COMPACT"
    headers = {"Authorization": f"Bearer {token.value}", **UNPACKED}
    what = f"schema {schema_id}"
    try:
        # One client for each request: requests for schemas are rare, and an idle connection would be closed by then.
        async with httpx.AsyncClient(
            verify=context, timeout=CALL_TIMEOUT, trust_env=False, proxy=proxy_for(url, proxies)
        ) as client:
            answer = await client.send(client.build_request("GET", url, headers=headers), stream=True)
            response = await aread(answer, most_bytes=LARGEST_SCHEMA, most_seconds=CALL_TIMEOUT)
    except httpx.HTTPError as fault:
        # Without the cause: it contains the request, and with it the token.
        raise error_from_status(None, f"{type(fault).__name__}: {fault}", topic=what) from None
    error = error_from_status(response.status_code, topic=what)
    is_unavailable = response.status_code >= 400 and isinstance(error, ServiceUnavailableError)
    if is_unavailable or isinstance(error, SessionExpiredError):
        raise error
    return response.status_code, response.text
