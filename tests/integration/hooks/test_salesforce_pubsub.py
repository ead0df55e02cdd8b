"""Pub/Sub hook against a local org: its endpoint, and users without access to change events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from scripts.airflow_stack import free_port
from tests.support.event_hooks import PUBSUB, EventHook
from tests.support.localorg import LocalOrg


@pytest.fixture
def kind() -> EventHook:
    return PUBSUB


def test_failing_pubsub_endpoint_is_named_in_the_message(org: LocalOrg, make_hook: Callable[..., Any]) -> None:
    ok, message = make_hook().test_connection()
    assert ok
    assert org.grpc_target in message
    for endpoint, part in [
        (f"http://127.0.0.1:{free_port()}", "does not answer"),
        (f"localhost:{org.grpc_tls_port}", "tls_ca"),
        (f"localhost:{org.grpc_port}", "TLS"),
        (f"http://127.0.0.1:{org.http_port}", "does not serve"),
    ]:
        ok, message = make_hook(pubsub_endpoint=endpoint).test_connection()
        assert not ok
        assert message.startswith("Pub/Sub endpoint: "), message
        assert part in message


@pytest.mark.parametrize("tls", [False, True], ids=["plaintext", "tls"])
def test_port_that_answers_in_place_of_the_configured_one_is_named(
    org: LocalOrg, make_hook: Callable[..., Any], tls: bool
) -> None:
    closed, open_port = free_port(), org.grpc_tls_port if tls else org.grpc_port
    endpoint = "localhost:{}" if tls else "http://127.0.0.1:{}"
    extra = (PUBSUB.extra_over_tls(org) if tls else {}) | {"pubsub_endpoint": endpoint.format(closed)}
    remedy = f"set Pub/Sub API Endpoint (pubsub_endpoint) to {endpoint.format(open_port)}."
    for ports, is_named in [((closed, open_port), True), ((open_port,), False), ((closed, free_port()), False)]:
        ok, message = make_hook(**extra).test_connection(PUBSUB.topic, ports)
        assert not ok
        assert message.startswith("Pub/Sub endpoint: ")
        assert (remedy in message) == is_named, message


def test_connection_test_passes_for_a_user_without_change_events(org: LocalOrg, make_hook: Callable[..., Any]) -> None:
    PUBSUB.deny(org)
    ok, message = make_hook().test_connection()
    assert ok, message
