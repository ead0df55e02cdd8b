"""The hooks that read events, described for tests that run with each of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from airflow_provider_sfstream.hooks import salesforce_pubsub, salesforce_streaming
from tests.support.localorg import LocalOrg

ACCOUNTS = "/topic/Accounts"
ORDERS = "/event/Order__e"


@dataclass(frozen=True)
class EventHook:
    """A hook that reads events, with test data: a topic, a missing topic, and a fault that denies subscribing."""

    name: str
    hook: Any
    module: ModuleType
    topic: str
    missing_topic: str
    success_text: str
    """Text in the message of a successful connection test, besides the org ID."""

    denying_fault: tuple[str, dict[str, Any]]
    invalid_fields: tuple[tuple[dict[str, Any], str], ...]
    """Connection fields that are refused before any request, and text of the error."""

    edits_with_new_client: tuple[dict[str, Any], ...] = (
        {"allow_insecure": True},
        {"proxies": {"https": "http://127.0.0.1:1"}},
    )
    """Changes of the connection after which the hook needs another client."""

    edit_with_same_client: dict[str, Any] = field(default_factory=lambda: {"organization_id": ""})
    """A change of the connection after which the hook uses the same client."""

    def extra(self, org: LocalOrg) -> dict[str, Any]:
        """Return the extra of a connection to the org."""
        extra = {"login_url": org.login_url, "consumer_key": org.client_id, "consumer_secret": org.client_secret}
        return extra | ({"pubsub_endpoint": f"http://{org.grpc_target}"} if self is PUBSUB else {})

    def extra_over_tls(self, org: LocalOrg) -> dict[str, Any]:
        """Return the extra fields that a connection over TLS changes."""
        extra = {"login_url": org.https_instance_url, "tls_ca": org.ca_file}
        return extra | ({"pubsub_endpoint": f"localhost:{org.grpc_tls_port}"} if self is PUBSUB else {})

    def deny(self, org: LocalOrg) -> None:
        """Make the org deny the next subscription."""
        fault, arguments = self.denying_fault
        org.fault(fault, **arguments)


PUBSUB = EventHook(
    "pubsub",
    salesforce_pubsub.SalesforcePubSubHook,
    salesforce_pubsub,
    topic=ORDERS,
    missing_topic="/event/Nowhere__e",
    success_text="127.0.0.1",
    denying_fault=("fail_calls", {"rpc": "GetTopic", "code": "topic.meta.permission", "status": "PERMISSION_DENIED"}),
    invalid_fields=(
        ({"consumer_secret": ""}, "consumer_secret"),
        ({"pubsub_endpoint": "http://192.0.2.1:7443"}, "allow_insecure"),
        ({"tls_ca": "/no/such/file.pem"}, "tls_ca"),
    ),
)

STREAMING = EventHook(
    "streaming",
    salesforce_streaming.SalesforceStreamingHook,
    salesforce_streaming,
    topic=ACCOUNTS,
    missing_topic="/topic/Nowhere",
    success_text="Streaming API 66.0",
    denying_fault=("cometd_fail", {"channel": "/meta/subscribe", "error": "403::User not enabled for streaming"}),
    invalid_fields=(
        ({"consumer_secret": ""}, "consumer_secret"),
        ({"version": "1"}, "version"),
        ({"tls_ca": "/no/such/file.pem"}, "tls_ca"),
    ),
    edits_with_new_client=({"allow_insecure": True}, {"proxies": {"https": "http://127.0.0.1:1"}}, {"version": "58.0"}),
)

EVENT_HOOKS = (PUBSUB, STREAMING)
