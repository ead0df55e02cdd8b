"""Logins and clients for a local org."""

from __future__ import annotations

from typing import Any

from airflow_provider_sfstream.salesforce.auth.credentials import credentials_from
from airflow_provider_sfstream.salesforce.auth.token_provider import OAuthTokenProvider
from airflow_provider_sfstream.salesforce.pubsub.async_client import AsyncPubSubClient
from airflow_provider_sfstream.salesforce.pubsub.client import PubSubClient
from airflow_provider_sfstream.salesforce.streaming.async_client import AsyncStreamingClient
from airflow_provider_sfstream.salesforce.streaming.client import StreamingClient
from tests.support.localorg import LocalOrg


def app_fields(org: LocalOrg) -> dict[str, str | None]:
    """Return the connection fields for a client credentials login with the org's external client app."""
    return {"login_url": org.login_url, "consumer_key": org.client_id, "consumer_secret": org.client_secret}


def token_provider(org: LocalOrg, **options: Any) -> OAuthTokenProvider:
    """Return a token provider that logs in to the org with client credentials."""
    return OAuthTokenProvider(credentials_from(app_fields(org)), **options)


def pubsub_client(org: LocalOrg, **options: Any) -> PubSubClient:
    """Return a Pub/Sub API client of the org's plaintext port."""
    provider = options.pop("provider", None) or token_provider(org)
    return PubSubClient(provider, endpoint=f"http://{org.grpc_target}", **options)


def async_pubsub_client(org: LocalOrg, **options: Any) -> AsyncPubSubClient:
    """Return an asyncio Pub/Sub API client of the org's plaintext port."""
    provider = options.pop("provider", None) or token_provider(org)
    return AsyncPubSubClient(provider, endpoint=f"http://{org.grpc_target}", **options)


def streaming_client(org: LocalOrg, **options: Any) -> StreamingClient:
    """Return a Streaming API client of the org over plain HTTP."""
    return StreamingClient(options.pop("provider", None) or token_provider(org), **options)


def async_streaming_client(org: LocalOrg, **options: Any) -> AsyncStreamingClient:
    """Return an asyncio Streaming API client of the org over plain HTTP."""
    return AsyncStreamingClient(options.pop("provider", None) or token_provider(org), **options)
