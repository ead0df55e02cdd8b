"""Avro schemas of events over REST, for clients of the Streaming API, which has no schemas."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Mapping
from functools import partial
from urllib.parse import quote

import httpx

from airflow_provider_sfstream.exceptions import SchemaError, ServiceUnavailableError, SessionExpiredError
from airflow_provider_sfstream.salesforce.auth.tokens import Session
from airflow_provider_sfstream.salesforce.errors.streaming import error_from_status
from airflow_provider_sfstream.salesforce.network.bounded import UNPACKED, aread
from airflow_provider_sfstream.salesforce.network.proxies import proxy_for
from airflow_provider_sfstream.salesforce.schemas import LARGEST_SCHEMA, parse

log = logging.getLogger(__name__)

CALL_TIMEOUT = 30.0
"""Seconds for a request."""


class EventSchemas:
    """Loader of schemas, with one request for each. Belongs to the event loop that first uses it.

    JSON payloads can be read without a schema. So a schema that Salesforce does not return (the user may not call REST,
    the id is unknown) is no error: it is ``None``, with one warning in the log. A temporary failure is raised.

    :param session: source of the access token.
    :param ssl_context: for an org reached over TLS.
    :param api_version: for example ``"62.0"``.
    :param proxies: see :func:`~airflow_provider_sfstream.salesforce.network.proxies.proxy_for`.
    """

    def __init__(
        self, session: Session, ssl_context: ssl.SSLContext, *, api_version: str, proxies: Mapping[str, str]
    ) -> None:
        self._session = session
        self._ssl_context = ssl_context
        self._api_version = api_version
        self._proxies = proxies
        self._loads: dict[str, asyncio.Task[str | None]] = {}

    async def get(self, schema_id: str) -> str | None:
        """Return the Avro schema JSON of ``schema_id``; ``None`` for a channel's name, or if Salesforce returns none.

        It is the schema of the payload, as returned by the Pub/Sub API's GetSchema (Platform Events Developer Guide,
        "Get the Event Schema", ``payloadFormat=COMPACT``). Logs in again once if Salesforce refuses the token.

        :raises ServiceUnavailableError: if Salesforce cannot be reached.
        :raises AuthenticationError: if the login failed.
        """
        if schema_id.startswith("/"):
            return None
        load = self._loads.get(schema_id)
        if load is None:
            load = self._loads[schema_id] = asyncio.create_task(self._load(schema_id))
            load.add_done_callback(partial(self._forget_failure, schema_id))
        try:
            # Shielded: the cancellation of one caller must not cancel the request of the other callers.
            return await asyncio.shield(load)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if load.cancelled() and task is not None and not task.cancelling():
                raise RuntimeError("The Streaming API client is closed.") from None
            raise

    async def aclose(self) -> None:
        """Cancel the running requests; waiting callers receive a ``RuntimeError``."""
        loads, self._loads = list(self._loads.values()), {}
        for load in loads:
            load.cancel()
        if loads:
            await asyncio.wait(loads)

    async def _load(self, schema_id: str) -> str | None:
        try:
            status, text = await self._request(schema_id)
        except SessionExpiredError:
            self._session.renew()
            status, text = await self._request(schema_id)
        if status == httpx.codes.OK:
            try:
                parse(text)
            except SchemaError as error:
                log.warning(
                    "The schema %s of JSON events is invalid; the events are read without it. %s", schema_id, error
                )
                return None
            return text
        log.warning(
            "Salesforce did not return the schema %s of JSON events (HTTP %d); the events are read without it. To "
            "store the schema with them, grant the user the permission 'API Enabled' and read access to the event.",
            schema_id,
            status,
        )
        return None

    async def _request(self, schema_id: str) -> tuple[int, str]:
        token = await self._session.atoken()
        path = f"services/data/v{self._api_version}/event/eventSchema/{quote(schema_id, safe='')}"
        url = f"{token.instance_url}/{path}?payloadFormat=COMPACT"
        what = f"schema {schema_id}"
        with self._session.using(token):
            try:
                async with self._client(url) as client:
                    headers = {"Authorization": f"Bearer {token.value}", **UNPACKED}
                    answer = await client.send(client.build_request("GET", url, headers=headers), stream=True)
                    response = await aread(answer, most_bytes=LARGEST_SCHEMA, most_seconds=CALL_TIMEOUT)
            except httpx.HTTPError as fault:
                # Without the cause: it contains the request, and with it the token.
                raise error_from_status(None, f"{type(fault).__name__}: {fault}", topic=what) from None
            error = error_from_status(response.status_code, topic=what)
            if isinstance(error, SessionExpiredError) or (
                response.status_code >= 400 and isinstance(error, ServiceUnavailableError)
            ):
                raise error
        return response.status_code, response.text

    def _client(self, url: str) -> httpx.AsyncClient:
        # One client for each request: requests for schemas are rare, and an idle connection would be closed by then.
        return httpx.AsyncClient(
            verify=self._ssl_context, timeout=CALL_TIMEOUT, trust_env=False, proxy=proxy_for(url, self._proxies)
        )

    def _forget_failure(self, schema_id: str, load: asyncio.Task[str | None]) -> None:
        if load.cancelled() or load.exception() is not None:
            self._loads.pop(schema_id, None)
