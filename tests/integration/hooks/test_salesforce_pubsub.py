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


def test_connection_test_passes_for_a_user_without_change_events(org: LocalOrg, make_hook: Callable[..., Any]) -> None:
    PUBSUB.deny(org)
    ok, message = make_hook().test_connection()
    assert ok, message
