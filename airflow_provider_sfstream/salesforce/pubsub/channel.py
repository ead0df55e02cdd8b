"""Common parts of the blocking and asyncio clients of the Pub/Sub API: login, endpoint, channel, metadata, faults."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import grpc
from google.protobuf.message_factory import GetMessageClass

from airflow_provider_sfstream import __version__
from airflow_provider_sfstream.exceptions import ConfigurationError, SalesforceStreamError
from airflow_provider_sfstream.salesforce import pubsub_api_pb2 as messages
from airflow_provider_sfstream.salesforce.auth.tokens import AccessToken, TokenProvider
from airflow_provider_sfstream.salesforce.clients import OrgClient
from airflow_provider_sfstream.salesforce.errors.pubsub import error_from
from airflow_provider_sfstream.salesforce.events import PayloadEncoding
from airflow_provider_sfstream.salesforce.network.proxies import check_grpc_proxy
from airflow_provider_sfstream.salesforce.network.settings import DEFAULT_NETWORK, NetworkSettings, Timers
from airflow_provider_sfstream.salesforce.network.tls import is_loopback

DEFAULT_ENDPOINT = "api.pubsub.salesforce.com:7443"
"""The global endpoint. Europe (Germany) has ``api.deu.pubsub.salesforce.com``; both listen on 443 and 7443."""

CALL_TIMEOUT = 30.0
"""Seconds for a call other than Subscribe, if its timers do not set them."""

_MIB = 1024 * 1024
CHANNEL_OPTIONS: tuple[tuple[str, int | str], ...] = (
    ("grpc.primary_user_agent", f"airflow-provider-sfstream/{__version__}"),
    # A FetchResponse is at most 3 MB, a PublishRequest at most 4 MB.
    ("grpc.max_receive_message_length", 16 * _MIB),
    ("grpc.max_send_message_length", 4 * _MIB),
    # By default gRPC sends two pings on a connection without data, and then almost none.
    ("grpc.http2.max_pings_without_data", 0),
    # The caller decides on the wait between attempts.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.use_local_subchannel_pool", 1),
)
"""Options of all channels. gRPC reads proxies from ``https_proxy`` and ``no_grpc_proxy``; SOCKS proxies are refused."""


def channel_options(timers: Timers) -> tuple[tuple[str, int | str], ...]:
    """Return the options of a channel.

    A server that receives more pings than it allows ends the connection with "too many pings", a retriable fault; gRPC
    then doubles the time between the pings of this channel.
    """
    return (
        *CHANNEL_OPTIONS,
        ("grpc.keepalive_time_ms", round(timers.keepalive_seconds * 1000)),
        ("grpc.keepalive_timeout_ms", round(timers.keepalive_timeout_seconds * 1000)),
        # gRPC also pings to measure bandwidth; while that ping is unanswered, it sends no other for 60 seconds.
        ("grpc.http2.ping_timeout_ms", round(timers.keepalive_timeout_seconds * 1000)),
        # Despite its name, this option limits the time of an attempt to connect.
        ("grpc.min_reconnect_backoff_ms", round(timers.connect_timeout_seconds * 1000)),
        ("grpc.max_reconnect_backoff_ms", round(timers.reconnect_seconds * 1000)),
    )


@dataclass(frozen=True)
class Endpoint:
    """Address of the Pub/Sub API, and whether the connection is encrypted."""

    target: str
    plaintext: bool = False

    @property
    def url(self) -> str:
        """The endpoint as an URL."""
        return f"{'http' if self.plaintext else 'https'}://{self.target}"

    @classmethod
    def parse(cls, text: str, *, allow_insecure: bool = False) -> Endpoint:
        """Return the endpoint written as ``host:port``, ``https://host:port`` or ``http://host:port`` (plaintext).

        :param allow_insecure: accept plaintext to another machine too. The network then carries readable access tokens.
        """
        try:
            parts = urlsplit(text if "://" in text else f"https://{text}")
            host, port = parts.hostname, parts.port
        except ValueError:
            parts, host, port = urlsplit(""), None, None
        extra = parts.path.strip("/") or parts.query or parts.fragment or parts.username
        if parts.scheme not in ("http", "https") or not host or extra:
            raise ConfigurationError(
                f"pubsub_endpoint must be host:port, for example {DEFAULT_ENDPOINT}, or http://host:port for plaintext "
                "to this machine. Nothing was contacted."
            )
        plaintext = parts.scheme == "http"
        if plaintext and not allow_insecure and not is_loopback(host):
            raise ConfigurationError(
                f"pubsub_endpoint {host} without TLS would send the access token unencrypted. Use TLS (no http://), "
                "or set allow_insecure on the connection if you accept that. Nothing was contacted."
            )
        bracketed = f"[{host}]" if ":" in host else host
        return cls(f"{bracketed}:{port or (80 if plaintext else 443)}", plaintext)


def multi_callable(channel: Any, rpc: str, *, sized: bool = False) -> Callable[..., Any]:
    """Return an RPC of the Pub/Sub API on a channel of ``grpc`` or ``grpc.aio``.

    :param sized: each response is a pair with its bytes on the wire.
    """
    service = messages.DESCRIPTOR.services_by_name["PubSub"]
    method = service.methods_by_name[rpc]
    request, response = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
    arity = channel.stream_stream if method.client_streaming else channel.unary_unary
    return arity(  # type: ignore[no-any-return]
        f"/{service.full_name}/{rpc}",
        request_serializer=request.SerializeToString,
        response_deserializer=(lambda data: (len(data), response.FromString(data))) if sized else response.FromString,
    )


def channel_credentials(ca_pem: str | None) -> grpc.ChannelCredentials:
    """Return TLS credentials that trust ``ca_pem``, or gRPC's default roots for ``None``."""
    return grpc.ssl_channel_credentials(root_certificates=None if ca_pem is None else ca_pem.encode("ascii"))


def call_metadata(token: AccessToken) -> tuple[tuple[str, str], ...]:
    """Return the headers that every RPC needs (Pub/Sub API guide, "RPC method headers"), and a trace id for support."""
    return (
        ("accesstoken", token.value),
        ("instanceurl", token.instance_url),
        ("tenantid", token.org_id),
        ("x-client-trace-id", str(uuid.uuid4())),
    )


def error_from_call(call: Any, topic: str) -> SalesforceStreamError:
    """Return the error for a failed ``call`` (a :class:`grpc.RpcError` that is also a :class:`grpc.Call`)."""
    # Through iter(), because trailers of asyncio calls of older gRPC return pairs from keys().
    trailers: dict[str, Any] = dict(iter(call.trailing_metadata() or ()))
    status = call.code()
    return error_from(
        _text(trailers.get("error-code")),
        None if status is None else status.name,
        call.details() or "",
        topic=topic,
        rpc_id=_text(trailers.get("rpc-id")),
    )


def _text(value: Any) -> str | None:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


class PubSubConnection(OrgClient):
    """Endpoint, login and timers of a client of the Pub/Sub API, blocking or asyncio."""

    payload_encoding: PayloadEncoding = "avro"
    confirms_positions = True
    call_timeout: float
    """Seconds for a call other than a subscription."""

    def __init__(
        self,
        token_provider: TokenProvider,
        *,
        endpoint: str = DEFAULT_ENDPOINT,
        network: NetworkSettings = DEFAULT_NETWORK,
        timers: Timers | None = None,
    ) -> None:
        super().__init__(token_provider, network=network)
        self.endpoint = Endpoint.parse(endpoint, allow_insecure=network.allow_insecure)
        self._timers = timers or Timers()
        self.call_timeout = self._timers.call_timeout_seconds or CALL_TIMEOUT

    def _open_channel(self, library: Any) -> Any:
        """Return a channel of ``grpc`` or ``grpc.aio`` (for the running event loop), not connected yet."""
        check_grpc_proxy(urlsplit(self.endpoint.url).hostname or "")
        options = channel_options(self._timers)
        if self.endpoint.plaintext:
            return library.insecure_channel(self.endpoint.target, options=options)
        return library.secure_channel(self.endpoint.target, channel_credentials(self._network.tls_ca), options=options)
