"""Provider information for Airflow. Loaded in every Airflow process, so it imports very little."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from typing import Any

_PACKAGE = "airflow_provider_sfstream"
_REPOSITORY = "airflow-provider-sfstream/airflow-provider-sfstream"
_GUIDES = ("tutorial", "drain", "when-to-run", "backfill", "event-log", "replica", "publish", "on-call")


def get_provider_info() -> dict[str, Any]:
    """Return the provider metadata in the form of Airflow's ``provider_info.schema.json``.

    Not among it is the plugin: Airflow loads plugins of providers only where ``[core] lazy_discover_providers`` is off,
    and would there report the one of the entry point, which it always loads, as loaded twice.
    """
    return {
        "package-name": "airflow-provider-sfstream",
        "name": "Salesforce Event Streams",
        "description": "Drain Salesforce platform events and change events into your lake, in replay windows.",
        "integrations": [
            {
                "integration-name": "Salesforce Pub/Sub API",
                "external-doc-url": "https://developer.salesforce.com/docs/platform/pub-sub-api/overview",
                "how-to-guide": [f"https://github.com/{_REPOSITORY}/blob/main/docs/{name}.md" for name in _GUIDES],
                "logo": f"https://raw.githubusercontent.com/{_REPOSITORY}/main/docs/images/logo.svg",
                "tags": ["service"],
            }
        ],
        "operators": [
            {
                "integration-name": "Salesforce Pub/Sub API",
                "python-modules": [
                    f"{_PACKAGE}.operators.accept_replay_loss",
                    f"{_PACKAGE}.operators.check_streams",
                    f"{_PACKAGE}.operators.drain_replay_window",
                    f"{_PACKAGE}.operators.erase_records",
                    f"{_PACKAGE}.operators.event_channel",
                    f"{_PACKAGE}.operators.event_log",
                    f"{_PACKAGE}.operators.maintain_tables",
                    f"{_PACKAGE}.operators.managed_event_subscription",
                    f"{_PACKAGE}.operators.prune_replay_windows",
                    f"{_PACKAGE}.operators.publish_events",
                    f"{_PACKAGE}.operators.refresh_replica",
                    f"{_PACKAGE}.operators.replay_position",
                    f"{_PACKAGE}.operators.replica",
                    f"{_PACKAGE}.operators.restore_replay_position",
                    f"{_PACKAGE}.operators.salesforce_preflight",
                    f"{_PACKAGE}.operators.spark_submit_event_log",
                    f"{_PACKAGE}.operators.spark_submit_refresh_replica",
                    f"{_PACKAGE}.operators.spark_submit_replica",
                ],
            }
        ],
        "sensors": [
            {
                "integration-name": "Salesforce Pub/Sub API",
                "python-modules": [f"{_PACKAGE}.sensors.salesforce_allocation", f"{_PACKAGE}.sensors.salesforce_event"],
            }
        ],
        "triggers": [
            {
                "integration-name": "Salesforce Pub/Sub API",
                "python-modules": [
                    f"{_PACKAGE}.triggers.salesforce_allocation",
                    f"{_PACKAGE}.triggers.salesforce_event",
                ],
            }
        ],
        "hooks": [
            {
                "integration-name": "Salesforce Pub/Sub API",
                "python-modules": [
                    f"{_PACKAGE}.hooks.event_channel",
                    f"{_PACKAGE}.hooks.event_topics",
                    f"{_PACKAGE}.hooks.managed_event_subscription",
                    f"{_PACKAGE}.hooks.replay_store",
                    f"{_PACKAGE}.hooks.salesforce_allocations",
                    f"{_PACKAGE}.hooks.salesforce_pubsub",
                    f"{_PACKAGE}.hooks.salesforce_records",
                    f"{_PACKAGE}.hooks.salesforce_streaming",
                ],
            }
        ],
        "notifications": [f"{_PACKAGE}.notifications.salesforce_stream.SalesforceStreamNotifier"],
        "asset-uris": [
            {
                "schemes": ["sfstream"],
                "handler": f"{_PACKAGE}.assets.sfstream.sanitize_uri",
                "factory": f"{_PACKAGE}.assets.sfstream.create_asset",
                "to_openlineage_converter": f"{_PACKAGE}.assets.sfstream.convert_asset_to_openlineage",
            }
        ],
        "extra-links": [
            f"{_PACKAGE}.monitoring.links.{name}"
            for name in ("StreamLink", "ManifestLink", "PreviousWindowLink", "SparkUILink")
        ],
        "cli": [f"{_PACKAGE}.cli.airflow_command.get_cli_commands"],
        "queues": [f"{_PACKAGE}.queues.sfstream.SfstreamMessageQueueProvider"],
        "connection-types": [_salesforce_connection_type()],
        "config": {
            "sfstream": {
                "description": "Of airflow-provider-sfstream.",
                "options": {
                    "status_conn_id": {
                        "description": (
                            "Airflow connection of the database in which tasks leave the status of streams for the "
                            "page of streams: SQLite, PostgreSQL or MySQL. Empty: in Airflow's Variables."
                        ),
                        "type": "string",
                        "version_added": "0.1.0",
                        "example": "sfstream_replay_store",
                        "default": "",
                    }
                },
            }
        },
    }


def _salesforce_connection_type() -> dict[str, Any]:
    """Return the connection type ``salesforce``, shared with ``apache-airflow-providers-salesforce``.

    The type belongs to that provider. Where it is installed, its hook stays the type's hook and its fields stay its
    own; only our fields are added to its form. Where it is not, the whole form is ours.
    """
    theirs = _is_installed("apache-airflow-providers-salesforce")
    fields = {name: field for name, field in _FIELDS.items() if not (theirs and name in _SHARED_FIELDS)}
    connection_type = {
        "connection-type": "salesforce",
        "hook-class-name": _THEIR_HOOK if theirs else f"{_PACKAGE}.hooks.salesforce_pubsub.SalesforcePubSubHook",
        "hook-name": "Salesforce",
        "conn-fields": fields,
    }
    if not theirs:
        connection_type["ui-field-behaviour"] = {
            # Not the port, though nothing reads it: where none is stored, the Test button of Airflow 3.3.2 posts 0, and
            # the API server refuses a port that is not the stored one (mended by apache/airflow#73298).
            "hidden-fields": ["schema", "host"],
            "relabeling": {"login": "Username"},
            "placeholders": {
                "login": "for the logins with a JWT and with a password",
                "password": "for the login with a password",
                "port": "0, or the Test button of Airflow 3.3 fails",
            },
        }
    return connection_type


def _is_installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


_THEIR_HOOK = "airflow.providers.salesforce.hooks.salesforce.SalesforceHook"

_JWT = "Login with a JWT"
_OTHER_LOGINS = "Other Logins"
_ORG_AND_NETWORK = "Org and Network"
_TIMERS = "Timers"


def _field(label: str, description: str, section: str | None = None, **schema: Any) -> dict[str, Any]:
    """Return a field of the form. Those without a section are shown first, under a heading of Airflow's."""
    schema = {"type": ["string", "null"], **schema}
    if section is not None:
        schema["section"] = section
    return {"label": label, "description": description, "schema": schema}


def _seconds(label: str, description: str) -> dict[str, Any]:
    return _field(f"{label} (seconds)", description, _TIMERS, type=["number", "null"])


_FIELDS: dict[str, Any] = {
    "domain": _field(
        "Domain",
        "My Domain of the org without .salesforce.com, such as mycompany.my. For a JWT, refresh token or password also "
        "test (sandboxes), or empty (login.salesforce.com)",
    ),
    "consumer_key": _field("Consumer Key", "Of the external client app"),
    "consumer_secret": _field(
        "Consumer Secret",
        "Of the external client app. Domain, key and secret are all that a login by client credentials needs",
        format="password",
    ),
    "auth_flow": _field(
        "Login Flow",
        "Has to be chosen only where fields of several logins are filled in",
        enum=[None, "client_credentials", "jwt_bearer", "refresh_token", "password", "access_token"],
        values_display={
            "null": "The one whose fields are filled in",
            "client_credentials": "Client credentials",
            "jwt_bearer": "JWT",
            "refresh_token": "Refresh token",
            "password": "Username and password",
            "access_token": "Access token",
        },
    ),
    "private_key": _field(
        "Private Key",
        "PEM text with its line breaks written as \\n, instead of the consumer secret. Needs Username and Consumer Key",
        _JWT,
        format="password",
    ),
    "private_key_file_path": _field("Private Key File Path", "A PEM file on the workers, instead of the text", _JWT),
    "refresh_token": _field(
        "Refresh Token", "Needs Consumer Key, and Consumer Secret if the app wants it", _OTHER_LOGINS, format="password"
    ),
    "security_token": _field(
        "Security Token",
        "For the login with a password, which Salesforce is retiring: appended to it",
        _OTHER_LOGINS,
        format="password",
    ),
    "access_token": _field(
        "Access Token", "Used as it is, with Instance URL. Cannot be renewed", _OTHER_LOGINS, format="password"
    ),
    "instance_url": _field(
        "Instance URL",
        "Of the org that gave the access token, such as https://mycompany.my.salesforce.com",
        _OTHER_LOGINS,
    ),
    "instance": _field(
        "Instance", "The host to log in at, where Domain, Login URL and Instance URL are empty", _OTHER_LOGINS
    ),
    "login_url": _field("Login URL", "Instead of Domain: https://host, or https://host:port", _ORG_AND_NETWORK),
    "organization_id": _field("Organization ID", "If given, a login that leads to another org fails", _ORG_AND_NETWORK),
    "pubsub_endpoint": _field(
        "Pub/Sub API Endpoint",
        "host:port. If empty, api.pubsub.salesforce.com:7443",
        _ORG_AND_NETWORK,
        examples=["api.pubsub.salesforce.com:7443", "api.deu.pubsub.salesforce.com:7443"],
    ),
    "version": _field(
        "API Version",
        "Of the Streaming API and of REST calls. If empty, 62.0. The Pub/Sub API has none",
        _ORG_AND_NETWORK,
    ),
    "tls_ca": _field(
        "Certificate Authority",
        "PEM text, or a file on the workers. If empty, the public ones are trusted",
        _ORG_AND_NETWORK,
        format="multiline",
    ),
    "proxies": _field(
        "Proxies",
        'For the login, as JSON: {"https": "http://proxy.example.com:3128"}',
        _ORG_AND_NETWORK,
        format="password",
    ),
    "allow_insecure": _field(
        "Allow Plaintext",
        "Accept http:// to hosts other than this machine. Credentials then cross the network readable",
        _ORG_AND_NETWORK,
        type=["boolean", "null"],
        default=False,
    ),
    "keepalive_seconds": _seconds(
        "Keepalive", "A Pub/Sub connection that is silent for this long is pinged. If empty, 45"
    ),
    "keepalive_timeout_seconds": _seconds(
        "Keepalive Timeout", "A connection whose ping is not answered for this long is lost. If empty, 20"
    ),
    "connect_timeout_seconds": _seconds(
        "Connect Timeout", "How long an attempt to connect to the Pub/Sub API may take. If empty, 20"
    ),
    "reconnect_seconds": _seconds("Longest Reconnect Pause", "Between such attempts. If empty, 5"),
    "call_timeout_seconds": _seconds(
        "Call Timeout", "How long a single call may take. If empty, 30, on the Streaming API 10"
    ),
}
"""All fields, in the order of the form: first those that most connections need, then by login."""

_SHARED_FIELDS = frozenset(
    {
        "consumer_key",
        "consumer_secret",
        "domain",
        "private_key",
        "private_key_file_path",
        "security_token",
        "organization_id",
        "instance",
        "instance_url",
        "proxies",
        "version",
    }
)
"""Those that Airflow's Salesforce provider has too. Its ``client_id`` is not among them: nothing here reads it."""
