"""Login with an Airflow connection, and the refusal of production orgs that the options do not name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_sfstream.salesforce.api_versions import DEFAULT_API_VERSION, api_version_from
from airflow_provider_sfstream.salesforce.auth.token_provider import OAuthTokenProvider
from airflow_provider_sfstream.salesforce.auth.tokens import AccessToken
from airflow_provider_sfstream.salesforce.identifiers import to_18
from airflow_provider_sfstream.salesforce.network.settings import NetworkSettings
from airflow_provider_sfstream.salesforce.pubsub.channel import DEFAULT_ENDPOINT, Endpoint

if TYPE_CHECKING:
    from airflow_provider_sfstream.hooks.salesforce import SalesforceSettings

CONNECTION_ID = "salesforce_live"
VARIABLE = "AIRFLOW_CONN_SALESFORCE_LIVE"
NO_CONNECTION = f"""\
There is no org to check. Set {VARIABLE} to an Airflow connection to a Developer Edition or a sandbox, for example

  export {VARIABLE}='{{"conn_type": "salesforce", "extra": {{"domain": "mycompany-dev-ed.my",
      "consumer_key": "...", "consumer_secret": "..."}}}}'

docs/reference/live-check.md describes the requirements. Nothing was contacted."""


class NotRunError(Exception):
    """The check did not start: nothing was published, created or changed."""


@dataclass(frozen=True)
class Login:
    """A session with an org, and the addresses of its APIs."""

    token: AccessToken
    endpoint: Endpoint
    api_version: str
    network: NetworkSettings

    @classmethod
    def by(cls, settings: SalesforceSettings) -> Login:
        """Log in with the settings of a connection.

        :raises SalesforceStreamError: if the settings are invalid, or the login is refused.
        """
        provider = OAuthTokenProvider(
            settings.credentials,
            network=settings.network,
            organization_id=settings.organization_id,
        )
        return cls(
            token=provider.token(),
            endpoint=Endpoint.parse(
                settings.pubsub_endpoint or DEFAULT_ENDPOINT, allow_insecure=settings.network.allow_insecure
            ),
            api_version=api_version_from(settings.version or DEFAULT_API_VERSION, first=60, what="a live check needs"),
            network=settings.network,
        )

    @property
    def org_id(self) -> str:
        """The org ID, 18 characters."""
        return to_18(self.token.org_id)


def log_in_from_environment() -> Login:
    """Log in with the connection in ``AIRFLOW_CONN_SALESFORCE_LIVE``: JSON, or a URI.

    :raises NotRunError: if the variable is not set.
    """
    if not os.environ.get(VARIABLE):
        raise NotRunError(NO_CONNECTION)
    from airflow_provider_sfstream.hooks.salesforce import SalesforceLoginHook

    return Login.by(SalesforceLoginHook(CONNECTION_ID).settings())


def log_in_with(fields: Mapping[str, Any]) -> Login:
    """Log in with the fields of a connection."""
    from airflow.sdk import Connection

    from airflow_provider_sfstream.hooks.salesforce import SalesforceSettings

    extra = fields["extra"]
    return Login.by(SalesforceSettings.from_connection(Connection(conn_id="local_org", conn_type="salesforce"), extra))


def check_not_production(organization: Mapping[str, Any] | None, org_id: str, named: str | None) -> None:
    """Refuse a production org, unless the options name it.

    :param organization: ``IsSandbox`` and ``OrganizationType`` of its ``Organization`` record; ``None`` if the user may
        not read it: the org then counts as a production org.
    :param named: ID of the production org that may be checked, 15 or 18 characters.
    :raises NotRunError: if this is a production org and not the named one.
    """
    record = organization or {}
    if record.get("IsSandbox") is True or record.get("OrganizationType") == "Developer Edition":
        return
    if named is not None and named[:15] == org_id[:15]:
        return
    kind = record.get("OrganizationType") or "its type is not visible to this user"
    raise NotRunError(
        f"The connection leads to org {org_id}, which is no sandbox and no Developer Edition ({kind}). The check "
        "publishes events, writes Accounts and commits on a managed subscription, which is visible to its users. "
        f"Use another org, or allow this one with --production-org {org_id}. Nothing was published or changed."
    )
