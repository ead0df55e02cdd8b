"""A local org behind simulated networks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from tests.support.localorg import LocalOrg
from tests.support.network import Network


class OrgBehindNetwork:
    """A local org whose addresses lead through simulated networks. All other attributes are the org's own.

    It can replace a :class:`LocalOrg` wherever a client, a login or an Airflow connection is created. A login through
    ``http`` returns an instance URL that also leads through ``http``: the org builds it from the request's host.

    ``http``, ``https``, ``grpc`` and ``grpc_tls`` are the networks, one for each of the org's ports.
    """

    def __init__(self, org: LocalOrg, networks: dict[str, Network]) -> None:
        self._org = org
        self.http, self.https = networks["http_port"], networks["https_port"]
        self.grpc, self.grpc_tls = networks["grpc_port"], networks["grpc_tls_port"]
        self.login_url = self.instance_url = f"http://localhost:{self.http.port}"
        self.https_instance_url = f"https://localhost:{self.https.port}"
        self.grpc_target = self.grpc.target
        self.http_port, self.https_port = self.http.port, self.https.port
        self.grpc_port, self.grpc_tls_port = self.grpc.port, self.grpc_tls.port

    @classmethod
    @contextmanager
    def of(cls, org: LocalOrg) -> Iterator[OrgBehindNetwork]:
        """Start one network for each port of ``org``."""
        with ExitStack() as opened:
            ports = ("http_port", "https_port", "grpc_port", "grpc_tls_port")
            yield cls(org, {port: opened.enter_context(Network(getattr(org, port))) for port in ports})

    def delay(self, seconds: float) -> None:
        """Delay all networks by ``seconds`` in each direction."""
        for network in (self.http, self.https, self.grpc, self.grpc_tls):
            network.delay(seconds)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._org, name)

    def airflow_connection(self, **extra: Any) -> dict[str, Any]:
        """Return the fields of :meth:`LocalOrg.airflow_connection`, with addresses of the networks."""
        addresses = {"login_url": self.https_instance_url, "pubsub_endpoint": f"localhost:{self.grpc_tls_port}"}
        return self._org.airflow_connection(**{**addresses, **extra})


@pytest.fixture
def behind_network(org: LocalOrg) -> Iterator[OrgBehindNetwork]:
    """Yield the org of the test behind simulated networks."""
    with OrgBehindNetwork.of(org) as behind:
        yield behind
