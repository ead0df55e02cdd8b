"""Local org in the test's own process, on an aiohttp test server, for tests that access its objects."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from aiohttp.test_utils import TestClient, TestServer

from sfstream_localorg.app import make_app
from sfstream_localorg.org import Org

Client = TestClient[Any, Any]


@cache
def _new_org() -> TemporaryDirectory[str]:
    """Return the folder of an unused org, cached because generating its keys and certificates takes 0.25 seconds."""
    folder = TemporaryDirectory(prefix="sfstream-org-")
    Org(Path(folder.name)).close()
    return folder


@asynccontextmanager
async def serving(data_dir: Path) -> AsyncIterator[tuple[Org, Client]]:
    """Yield an org and a client of its HTTP API, and close both afterwards. All of these orgs share one identity."""
    shutil.copytree(_new_org().name, data_dir, dirs_exist_ok=True)
    org = Org(data_dir)
    client: Client = TestClient(TestServer(make_app(org)))
    try:
        await client.start_server()
        org.listening(str(client.make_url("")).rstrip("/"), "https://acme.localhost:8443")
        yield org, client
    finally:
        await client.close()
        org.close()
