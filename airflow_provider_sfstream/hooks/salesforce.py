"""Login with an Airflow connection of type ``salesforce``, for every hook of this package."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.sdk import BaseHook

from airflow_provider_sfstream.exceptions import ConfigurationError, IdentityError, SalesforceStreamError
from airflow_provider_sfstream.redaction import redacted, without_user_info
from airflow_provider_sfstream.salesforce.api_versions import DEFAULT_API_VERSION, api_version_retirement
from airflow_provider_sfstream.salesforce.identifiers import to_18
from airflow_provider_sfstream.salesforce.network.settings import TIMERS, NetworkSettings, Timers

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_provider_sfstream.salesforce.auth.credentials import Credentials
    from airflow_provider_sfstream.salesforce.auth.token_provider import OAuthTokenProvider
    from airflow_provider_sfstream.salesforce.rest.tooling import ToolingRecordsClient

T = TypeVar("T")
C = TypeVar("C", bound=AbstractContextManager[Any])
LEGACY_PREFIX = "extra__salesforce__"
"""Prefix of the extra fields that old versions of Airflow stored."""

_LOGIN_FIELDS = (
    *("security_token", "domain", "consumer_key", "consumer_secret", "private_key", "private_key_file_path"),
    *("instance", "instance_url", "auth_flow", "login_url", "refresh_token", "access_token"),
)


@dataclass(frozen=True)
class SalesforceSettings:
    """Checked fields of a connection. ``pubsub_endpoint`` may hold a password: the repr shows it without user
    information.

    ``version`` is the API version as written, maybe as a number, for the Streaming API to check: the Pub/Sub API has
    none.
    """

    credentials: Credentials
    organization_id: str | None
    pubsub_endpoint: str | None
    network: NetworkSettings
    version: str | None = None
    timers: Timers = field(default_factory=Timers)

    def __repr__(self) -> str:
        endpoint = None if self.pubsub_endpoint is None else redacted(without_user_info(self.pubsub_endpoint))
        return f"{type(self).__name__}({self.credentials!r}, pubsub_endpoint={endpoint!r})"

    @property
    def retirements(self) -> list[str]:
        """Date and remedy of each feature in use that Salesforce retires."""
        from airflow_provider_sfstream.salesforce.auth.credentials import LOGIN_RETIREMENT

        login = LOGIN_RETIREMENT if self.credentials.flow == "password" else None
        return [text for text in (login, api_version_retirement(self.version)) if text]

    @classmethod
    def from_connection(cls, connection: Connection, extra: Mapping[str, Any]) -> SalesforceSettings:
        """Return the settings of ``connection``, whose Extra is ``extra``. An empty field counts as absent. Nothing is
        contacted."""
        from airflow_provider_sfstream.salesforce.auth.credentials import credentials_from

        try:
            allow_insecure = _boolean("allow_insecure", _field(extra, "allow_insecure"))
            fields = {name: _text(extra, name) for name in _LOGIN_FIELDS}
            fields |= {"login": connection.login or None, "password": connection.password or None}
            return cls(
                credentials=credentials_from(fields, allow_insecure=allow_insecure),
                organization_id=_text(extra, "organization_id"),
                pubsub_endpoint=_text(extra, "pubsub_endpoint"),
                network=NetworkSettings(_text(extra, "tls_ca"), _proxies(_field(extra, "proxies")), allow_insecure),
                version=None if (version := _field(extra, "version")) is None else str(version),
                timers=Timers.from_fields({name: _field(extra, name) for name in TIMERS}),
            )
        except ConfigurationError as error:
            raise ConfigurationError(f"Airflow connection {connection.conn_id!r}: {error}") from None


class SalesforceLoginHook(BaseHook):
    """Log in with an Airflow connection of type ``salesforce``, the type of Airflow's Salesforce provider.

    Reads the fields of docs/reference/connection-fields.md. One hook object logs in once and uses the token until
    Salesforce refuses it. It then logs in again and, if that is refused too, with the current credentials of the
    connection.

    The methods of all hooks raise errors of :mod:`airflow_provider_sfstream.exceptions`; ``ConfigurationError``, before
    anything is contacted, if the connection's fields cannot be used.

    :param salesforce_conn_id: the Airflow connection.
    """

    conn_name_attr = "salesforce_conn_id"
    default_conn_name = "salesforce_default"
    conn_type = "salesforce"
    hook_name = "Salesforce"

    def __init__(self, salesforce_conn_id: str = default_conn_name) -> None:
        super().__init__()
        self.salesforce_conn_id = salesforce_conn_id
        self._settings: SalesforceSettings | None = None
        self._token_provider: OAuthTokenProvider | None = None

    def settings(self) -> SalesforceSettings:
        """Return the checked fields of the connection."""
        if self._settings is None:
            self._settings = self._current_settings()
        return self._settings

    def _current_settings(self) -> SalesforceSettings:
        connection = self.get_connection(self.salesforce_conn_id)
        _check_extra(connection)
        return SalesforceSettings.from_connection(connection, connection.extra_dejson)

    async def asettings(self) -> SalesforceSettings:
        """Return :meth:`settings` without blocking the event loop."""
        if self._settings is None:
            connection = await self.aget_connection(self.salesforce_conn_id)
            _check_extra(connection)
            # Absent before Airflow 3.3.2; the blocking form may not be used in an async task after it.
            has_async_form = hasattr(connection, "aextra_dejson")
            extra = await connection.aextra_dejson() if has_async_form else connection.extra_dejson
            # In a thread: it may read a private key from a file, and imports the modules that validate it.
            self._settings = await asyncio.to_thread(SalesforceSettings.from_connection, connection, extra)
        return self._settings

    def token_provider(self) -> OAuthTokenProvider:
        """Return the token provider of this connection. Nothing is contacted yet."""
        return self._provider(self.settings())

    def _rest_client(self, client_class: Callable[..., T]) -> T:
        """Return a new client of a part of the REST API, for the caller to close."""
        settings = self.settings()
        try:
            return client_class(
                self.token_provider(), api_version=settings.version or DEFAULT_API_VERSION, network=settings.network
            )
        except ConfigurationError as error:
            raise ConfigurationError(f"Airflow connection {self.salesforce_conn_id!r}: {error}") from None

    def _provider(self, settings: SalesforceSettings) -> OAuthTokenProvider:
        from airflow_provider_sfstream.salesforce.auth.token_provider import OAuthTokenProvider

        if self._token_provider is None:
            for retirement in settings.retirements:
                self.log.warning("Airflow connection %r: %s", self.salesforce_conn_id, retirement)
            self._token_provider = OAuthTokenProvider(
                settings.credentials,
                network=settings.network,
                organization_id=settings.organization_id,
                read_again=lambda: self._current_settings().credentials,
            )
        return self._token_provider

    @property
    def org_id(self) -> str:
        """The id of the org that this connection leads to, 18 characters. Logs in if needed."""
        return self.token_provider().token().org_id

    @property
    def known_org_id(self) -> str:
        """Return the id of the org, 18 characters, without a login if the connection has ``organization_id``.

        A later login fails if it leads to another org.

        :raises ConfigurationError: if ``organization_id`` is not the id of an org.
        :raises AuthenticationError: if a login was needed and failed.
        """
        organization_id = self.settings().organization_id
        if organization_id is None:
            return self.org_id
        try:
            org_id = to_18(organization_id)
        except ValueError:
            org_id = ""
        if not org_id.startswith("00D") or not org_id.startswith(organization_id[:18]):
            raise ConfigurationError(
                f"Airflow connection {self.salesforce_conn_id!r}: organization_id {organization_id!r} is not the id "
                "of an org: 15 or 18 characters from 00D on, upper and lower case as Salesforce shows them. Nothing "
                "was contacted."
            )
        return org_id

    def login_failure(self) -> str | None:
        """Log in. Return the failed part and the error, for a connection test; ``None`` after a success."""
        try:
            _ = self.org_id
        except IdentityError as error:
            return f"Identity: {error}"
        except SalesforceStreamError as error:
            return f"Login: {error}"
        return None

    def _run_test(self, open_client: Callable[[], C], test: Callable[[C], tuple[bool, str]]) -> tuple[bool, str]:
        """Open a client, log in, and call ``test``. Return the failed part, if any, and the retirements."""
        try:
            client = open_client()
        except SalesforceStreamError as error:
            return False, f"Connection fields: {error}"
        with client:
            failure = self.login_failure()
            works, text = test(client) if failure is None else (False, failure)
            return works, " ".join([text, *self.settings().retirements])

    def _test_tooling(self, client: ToolingRecordsClient) -> tuple[bool, str]:
        """Send a query to the Tooling API, and return whether that works."""
        try:
            client.check()
        except SalesforceStreamError as error:
            return False, f"Tooling API: {error}"
        return True, f"Logged in to org {self.org_id}; Tooling API {client.api_version} reached."


def _check_extra(connection: Connection) -> None:
    """Refuse an Extra that is not a JSON object: Airflow would treat it as empty."""
    try:
        is_valid = not connection.extra or isinstance(json.loads(connection.extra), dict)
    except (ValueError, RecursionError):
        is_valid = False
    if not is_valid:
        raise ConfigurationError(f"Airflow connection {connection.conn_id!r}: its Extra is not a JSON object.")


def _field(extra: Mapping[str, Any], name: str) -> Any:
    value = extra[name] if name in extra else extra.get(f"{LEGACY_PREFIX}{name}")
    return None if value == "" else value


def _text(extra: Mapping[str, Any], name: str) -> str | None:
    value = _field(extra, name)
    if value is not None and not isinstance(value, str):
        raise ConfigurationError(f"{name} must be a text. Nothing was contacted.")
    return value


def _boolean(name: str, value: Any) -> bool:
    booleans = {"true": True, "1": True, "false": False, "0": False, "none": False}
    text = str(value).strip().lower()
    if text not in booleans:
        raise ConfigurationError(f"{name} must be true or false. Nothing was contacted.")
    return booleans[text]


def _proxies(value: Any) -> Any:
    """Return the proxies, which the connection form stores as JSON text."""
    try:
        return {} if value is None else json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return value  # NetworkSettings refuses it
