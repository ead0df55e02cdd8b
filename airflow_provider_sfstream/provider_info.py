"""Provider information for Airflow. Loaded in every Airflow process, so it imports very little."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from typing import Any

_PACKAGE = "airflow_provider_sfstream"
_REPOSITORY = "airflow-provider-sfstream/airflow-provider-sfstream"
_INTEGRATION = "Salesforce Pub/Sub API"
_GUIDES = ("tutorial", "drain", "when-to-run", "backfill", "event-log", "replica", "publish", "on-call")


def get_provider_info() -> dict[str, Any]:
    """Return the provider metadata in the form of Airflow's ``provider_info.schema.json``.

    It does not list the plugin, which has an entry point: Airflow 3.1 to 3.4 loads the plugins of providers only where
    ``[core] lazy_discover_providers`` is off, and would then report this one as loaded twice.
    """
    return {
        "package-name": "airflow-provider-sfstream",
        "name": "Salesforce Event Streams",
        "description": "Drain Salesforce platform events and change events into your lake, in replay windows.",
        "integrations": [
            {
                "integration-name": _INTEGRATION,
                "external-doc-url": "https://developer.salesforce.com/docs/platform/pub-sub-api/overview",
                "how-to-guide": [f"https://github.com/{_REPOSITORY}/blob/main/docs/{name}.md" for name in _GUIDES],
                "logo": f"https://raw.githubusercontent.com/{_REPOSITORY}/main/docs/images/logo.svg",
                "tags": ["service"],
            }
        ],
        "operators": _modules(
            "operators",
            "accept_replay_loss check_streams drain_replay_window erase_records event_channel event_log "
            "maintain_tables managed_event_subscription prune_replay_windows publish_events refresh_replica "
            "replay_position replica restore_replay_position salesforce_preflight spark_submit_event_log "
            "spark_submit_refresh_replica spark_submit_replica",
        ),
        "sensors": _modules("sensors", "salesforce_allocation salesforce_event"),
        "triggers": _modules("triggers", "salesforce_allocation salesforce_event"),
        "hooks": _modules(
            "hooks",
            "event_channel event_topics managed_event_subscription replay_store salesforce_allocations "
            "salesforce_pubsub salesforce_records salesforce_streaming",
        ),
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
                "description": "Settings of airflow-provider-sfstream.",
                "options": {
                    "status_conn_id": {
                        "description": (
                            "Airflow connection of the database in which tasks store the status of streams for the "
                            "page of streams: SQLite, PostgreSQL or MySQL. If empty, Airflow's Variables are used."
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


def _modules(package: str, names: str) -> list[dict[str, Any]]:
    """Return the entry of modules of a package, by their names with spaces between them."""
    modules = [f"{_PACKAGE}.{package}.{name}" for name in names.split()]
    return [{"integration-name": _INTEGRATION, "python-modules": modules}]


def _salesforce_connection_type() -> dict[str, Any]:
    """Return the connection type ``salesforce``, shared with ``apache-airflow-providers-salesforce``.

    The type belongs to that provider. If it is installed, the type has its hook and its fields, and this package adds
    only the other fields to the form; Airflow warns of the second registration, and has no other way to add fields.
    Otherwise this package defines the hook and all fields.
    """
    is_shared = _is_installed("apache-airflow-providers-salesforce")
    fields = {name: field for name, field in _FIELDS.items() if not (is_shared and name in _SHARED_FIELDS)}
    connection_type = {
        "connection-type": "salesforce",
        "hook-class-name": _OTHER_HOOK if is_shared else f"{_PACKAGE}.hooks.salesforce_pubsub.SalesforcePubSubHook",
        "hook-name": "Salesforce",
        "conn-fields": fields,
    }
    if not is_shared:
        connection_type["ui-field-behaviour"] = {
            # The port is shown, although nothing reads it: without a stored port, the Test button of Airflow 3.3.2
            # posts 0, and the API server refuses a port that differs from the stored one (apache/airflow#73298).
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


_OTHER_HOOK = "airflow.providers.salesforce.hooks.salesforce.SalesforceHook"

_JWT = "Login with a JWT"
_OTHER_LOGINS = "Other Logins"
_ORG_AND_NETWORK = "Org and Network"
_TIMERS = "Timers"


def _field(label: str, description: str, section: str | None = None, **schema: Any) -> dict[str, Any]:
    """Return a field of the form. Airflow shows fields without a section first, under its own heading."""
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
        "Of the external client app. A login with client credentials needs only domain, key and secret",
        format="password",
    ),
    "auth_flow": _field(
        "Login Flow",
        "Required only if fields of several logins are filled in",
        enum=[None, "client_credentials", "jwt_bearer", "refresh_token", "password", "access_token"],
        values_display={
            "null": "The login whose fields are filled in",
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
        "Refresh Token",
        "Needs Consumer Key, and Consumer Secret if the app requires it",
        _OTHER_LOGINS,
        format="password",
    ),
    "security_token": _field(
        "Security Token",
        "For the login with a password, which Salesforce is retiring: appended to the password",
        _OTHER_LOGINS,
        format="password",
    ),
    "access_token": _field(
        "Access Token", "Used unchanged, with Instance URL. Cannot be renewed", _OTHER_LOGINS, format="password"
    ),
    "instance_url": _field(
        "Instance URL",
        "Of the org that issued the access token, such as https://mycompany.my.salesforce.com",
        _OTHER_LOGINS,
    ),
    "instance": _field("Instance", "The login host, if Domain, Login URL and Instance URL are empty", _OTHER_LOGINS),
    "login_url": _field("Login URL", "Instead of Domain: https://host, or https://host:port", _ORG_AND_NETWORK),
    "organization_id": _field("Organization ID", "If set, a login to another org fails", _ORG_AND_NETWORK),
    "pubsub_endpoint": _field(
        "Pub/Sub API Endpoint",
        "host:port. If empty, api.pubsub.salesforce.com:7443",
        _ORG_AND_NETWORK,
        examples=["api.pubsub.salesforce.com:7443", "api.deu.pubsub.salesforce.com:7443"],
    ),
    "version": _field(
        "API Version",
        "Of the Streaming API and of REST calls. If empty, 66.0. The Pub/Sub API has no version",
        _ORG_AND_NETWORK,
    ),
    "tls_ca": _field(
        "Certificate Authority",
        "PEM text, or a file on the workers. If empty, public authorities are trusted",
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
        "Accept http:// to hosts other than this machine. Credentials are then sent without encryption",
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
        "Connect Timeout", "Limit of an attempt to connect to the Pub/Sub API. If empty, 20"
    ),
    "reconnect_seconds": _seconds("Longest Reconnect Pause", "Between attempts to connect. If empty, 5"),
    "call_timeout_seconds": _seconds("Call Timeout", "Limit of a single call. If empty, 30, on the Streaming API 10"),
}
"""All fields, in the order of the form: first those that most connections need, then by login."""

_SHARED_FIELDS = (
    *("consumer_key", "consumer_secret", "domain", "private_key", "private_key_file_path", "security_token"),
    *("organization_id", "instance", "instance_url", "proxies", "version"),
)
"""Fields that Airflow's Salesforce provider has too, except its ``client_id``, which this package does not read."""
