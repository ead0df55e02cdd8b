"""The HTTP half of a local org, served by an aiohttp test server without the gRPC half."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from airflow_provider_sfstream.localorg.sessions import Sessions


@dataclass
class HttpOrg:
    """The attributes of ``localorg.org.Org`` that the HTTP routes read."""

    data_dir: Path
    org_id: str = "00D000000000001EAA"
    instance_url: str = "http://acme.localhost:8080"
    https_instance_url: str = "https://acme.localhost:8443"
    login_url: str = "http://login.localhost:8080"
    client_id: str = "3MVG9consumer"
    client_secret: str = "the-secret"
    username: str = "integration@example.com"
    password: str = "the-password"
    security_token: str = "TOKEN"
    sessions: Sessions = field(init=False)

    def __post_init__(self) -> None:
        self.sessions = Sessions(self.data_dir / "sessions.sqlite", self.org_id)


async def serve(org: Any, *routes: Callable[[Any], Iterable[web.RouteDef]]) -> TestClient[web.Request, web.Application]:
    """Return a started client of a server with these routes; the caller closes it."""
    app = web.Application()
    for of in routes:
        app.add_routes(list(of(org)))
    client = TestClient(TestServer(app))
    await client.start_server()
    return client
