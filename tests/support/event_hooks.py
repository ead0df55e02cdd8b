"""The hooks that read events, seen the same way: what the contract asks of one, it asks of all."""

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
    """A hook, a topic that it can read, and how the org refuses that."""

    name: str
    hook: Any
    module: ModuleType
    topic: str
    nowhere: str
    works: str
    """What the test of a connection says, beside the id of the org."""

    denied: tuple[str, dict[str, Any]]
    unusable: tuple[tuple[dict[str, Any], str], ...]
    """Fields that are refused before anything is contacted, and what the error names."""

    edits: tuple[dict[str, Any], ...] = ({"allow_insecure": True}, {"proxies": {"https": "http://127.0.0.1:1"}})
    """Changes that make it another connection."""

    same: dict[str, Any] = field(default_factory=lambda: {"organization_id": ""})
    """A change that does not."""

    def extra(self, org: LocalOrg) -> dict[str, Any]:
        """Return the extra of a connection to the org."""
        extra = {"login_url": org.login_url, "consumer_key": org.client_id, "consumer_secret": org.client_secret}
        return extra | ({"pubsub_endpoint": f"http://{org.grpc_target}"} if self is PUBSUB else {})

    def extra_over_tls(self, org: LocalOrg) -> dict[str, Any]:
        """Return what of it is another for TLS."""
        extra = {"login_url": org.https_instance_url, "tls_ca": org.ca_file}
        return extra | ({"pubsub_endpoint": f"localhost:{org.grpc_tls_port}"} if self is PUBSUB else {})

    def deny(self, org: LocalOrg) -> None:
        """Refuse the next subscriber."""
        fault, arguments = self.denied
        org.fault(fault, **arguments)


PUBSUB = EventHook(
    "pubsub",
    salesforce_pubsub.SalesforcePubSubHook,
    salesforce_pubsub,
    topic=ORDERS,
    nowhere="/event/Nowhere__e",
    works="127.0.0.1",
    denied=("fail_calls", {"rpc": "GetTopic", "code": "topic.meta.permission", "status": "PERMISSION_DENIED"}),
    unusable=(
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
    nowhere="/topic/Nowhere",
    works="Streaming API 62.0",
    denied=("cometd_fail", {"channel": "/meta/subscribe", "error": "403::User not enabled for streaming"}),
    unusable=(
        ({"consumer_secret": ""}, "consumer_secret"),
        ({"version": "1"}, "version"),
        ({"tls_ca": "/no/such/file.pem"}, "tls_ca"),
    ),
    edits=({"allow_insecure": True}, {"proxies": {"https": "http://127.0.0.1:1"}}, {"version": "58.0"}),
)

EVENT_HOOKS = (PUBSUB, STREAMING)
