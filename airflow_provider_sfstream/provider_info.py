"""What Airflow discovers of this package. Loaded in every Airflow process, so it imports next to nothing."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from typing import Any

_PACKAGE = "airflow_provider_sfstream"


def get_provider_info() -> dict[str, Any]:
    """Return the provider metadata in the form of Airflow's ``provider_info.schema.json``."""
    return {
        "package-name": "airflow-provider-sfstream",
        "name": "Salesforce Event Streams",
        "description": "Drain Salesforce platform events and change events into your lake, in replay windows.",
        "integrations": [
            {
                "integration-name": "Salesforce Pub/Sub API",
                "external-doc-url": "https://developer.salesforce.com/docs/platform/pub-sub-api/overview",
                "tags": ["service"],
            }
        ],
        "operators": [
            {
                "integration-name": "Salesforce Pub/Sub API",
                "python-modules": [
                    f"{_PACKAGE}.operators.accept_replay_loss",
                    f"{_PACKAGE}.operators.drain_replay_window",
                    f"{_PACKAGE}.operators.managed_event_subscription",
                    f"{_PACKAGE}.operators.prune_replay_windows",
                    f"{_PACKAGE}.operators.reconcile_replica",
                    f"{_PACKAGE}.operators.refresh_computed_fields",
                    f"{_PACKAGE}.operators.refresh_dirty_records",
                    f"{_PACKAGE}.operators.replay_position",
                    f"{_PACKAGE}.operators.restore_replay_position",
                    f"{_PACKAGE}.operators.spark_submit_event_log",
                    f"{_PACKAGE}.operators.spark_submit_replica",
                ],
            }
        ],
        "sensors": [
            {
                "integration-name": "Salesforce Pub/Sub API",
                "python-modules": [f"{_PACKAGE}.sensors.salesforce_event"],
            }
        ],
        "triggers": [
            {
                "integration-name": "Salesforce Pub/Sub API",
                "python-modules": [f"{_PACKAGE}.triggers.salesforce_event"],
            }
        ],
        "hooks": [
            {
                "integration-name": "Salesforce Pub/Sub API",
                "python-modules": [
                    f"{_PACKAGE}.hooks.managed_event_subscription",
                    f"{_PACKAGE}.hooks.replay_store",
                    f"{_PACKAGE}.hooks.salesforce_pubsub",
                    f"{_PACKAGE}.hooks.salesforce_records",
                    f"{_PACKAGE}.hooks.salesforce_streaming",
                ],
            }
        ],
        "asset-uris": [
            {
                "schemes": ["sfstream"],
                "handler": f"{_PACKAGE}.assets.sfstream.sanitize_uri",
                "factory": f"{_PACKAGE}.assets.sfstream.create_asset",
            }
        ],
        "queues": [f"{_PACKAGE}.queues.sfstream.SfstreamMessageQueueProvider"],
        "connection-types": [_salesforce_connection_type()],
    }


def _salesforce_connection_type() -> dict[str, Any]:
    """Return the connection type ``salesforce``, shared with ``apache-airflow-providers-salesforce``.

    The type belongs to that provider. Where it is installed, its hook stays the type's hook and its fields stay its
    own; only our fields are added to its form. Where it is not, the whole form is ours.
    """
    theirs = _is_installed("apache-airflow-providers-salesforce")
    connection_type = {
        "connection-type": "salesforce",
        "hook-class-name": _THEIR_HOOK if theirs else f"{_PACKAGE}.hooks.salesforce_pubsub.SalesforcePubSubHook",
        "hook-name": "Salesforce",
        "conn-fields": _OUR_FIELDS if theirs else {**_SHARED_FIELDS, **_OUR_FIELDS},
    }
    if not theirs:
        connection_type["ui-field-behaviour"] = {
            "hidden-fields": ["schema", "port", "host"],
            "relabeling": {"login": "Username"},
            "placeholders": {"domain": "mycompany.my", "pubsub_endpoint": "api.pubsub.salesforce.com:7443"},
        }
    return connection_type


def _is_installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


_THEIR_HOOK = "airflow.providers.salesforce.hooks.salesforce.SalesforceHook"


def _field(label: str, description: str | None = None, **schema: Any) -> dict[str, Any]:
    field: dict[str, Any] = {"label": label, "schema": {"type": ["string", "null"], **schema}}
    return field if description is None else {**field, "description": description}


def _seconds(label: str, description: str) -> dict[str, Any]:
    return _field(f"{label} (seconds)", description, type=["number", "null"])


_SHARED_FIELDS: dict[str, Any] = {
    "consumer_key": _field("Consumer Key"),
    "consumer_secret": _field("Consumer Secret", format="password"),
    "domain": _field("Domain", "Host label before .salesforce.com: 'test', or your My Domain such as 'mycompany.my'"),
    "private_key": _field("Private Key", "For the JWT flow: PEM text", format="password"),
    "private_key_file_path": _field("Private Key File Path", "For the JWT flow: a PEM file on the workers"),
    "security_token": _field("Security Token", "Appended to the password", format="password"),
    "organization_id": _field("Organization ID", "If given, the login must lead to this org"),
    "instance": _field("Instance"),
    "instance_url": _field("Instance URL"),
    "proxies": _field("Proxies", 'JSON, such as {"https": "http://proxy.example.com:3128"}', format="password"),
    "version": _field("API Version", "Used by Airflow's Salesforce provider"),
    "client_id": _field("Client ID", "Used by Airflow's Salesforce provider"),
}
"""The fields of Airflow's Salesforce provider."""

_OUR_FIELDS: dict[str, Any] = {
    "auth_flow": _field(
        "Login Flow",
        "Empty: decided by the fields that are filled in",
        enum=["client_credentials", "jwt_bearer", "refresh_token", "password", "access_token", None],
    ),
    "login_url": _field("Login URL", "Instead of Domain: https://host[:port]"),
    "refresh_token": _field("Refresh Token", format="password"),
    "access_token": _field("Access Token", "Used as it is, with Instance URL; cannot be renewed", format="password"),
    "pubsub_endpoint": _field("Pub/Sub API Endpoint", "host:port; default api.pubsub.salesforce.com:7443"),
    "tls_ca": _field(
        "Certificate Authority", "PEM text, or a file on the workers; default: the public ones", format="multiline"
    ),
    "allow_insecure": {
        "label": "Allow Plaintext",
        "description": "Accept http:// to hosts other than this machine. Credentials then cross the network readable",
        "schema": {"type": "boolean", "default": False},
    },
    "keepalive_seconds": _seconds("Keepalive", "Ping an idle Pub/Sub connection after this; default 45"),
    "keepalive_timeout_seconds": _seconds("Keepalive Timeout", "A ping without an answer; default 20"),
    "connect_timeout_seconds": _seconds("Connect Timeout", "An attempt to connect to the Pub/Sub API; default 20"),
    "reconnect_seconds": _seconds("Longest Reconnect Pause", "Between such attempts; default 5"),
    "call_timeout_seconds": _seconds("Call Timeout", "A single call; default 30, on the Streaming API 10"),
}
