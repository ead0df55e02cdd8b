"""Registration of the page with Airflow. Errors of the page do not stop the API server."""

from __future__ import annotations

import asyncio
import sys
from importlib.metadata import entry_points
from typing import Any

import httpx
import pytest
from airflow.api_fastapi.app import RESERVED_URL_PREFIXES
from airflow.api_fastapi.core_api.datamodels.plugins import ExternalViewResponse
from fastapi.routing import APIRoute

from airflow_provider_sfstream.plugins.page.app import build_app
from airflow_provider_sfstream.plugins.streams import URL_PREFIX, SalesforceStreamsPlugin, StreamsPage
from tests.support.airflow_names import is_valid_plugin

APP = "airflow_provider_sfstream.plugins.page.app"


def test_airflow_finds_the_plugin() -> None:
    [found] = [each for each in entry_points(group="airflow.plugins") if each.name == "sfstream"]
    assert found.load() is SalesforceStreamsPlugin
    assert is_valid_plugin(SalesforceStreamsPlugin)
    assert not any(URL_PREFIX.startswith(prefix) for prefix in RESERVED_URL_PREFIXES)


def test_views_have_valid_destinations_in_airflow() -> None:
    views = [ExternalViewResponse.model_validate(view) for view in SalesforceStreamsPlugin.external_views]
    assert [view.destination for view in views] == ["nav", "dag"]
    assert len({view.url_route for view in views}) == 2, "of two views with one route, Airflow drops the second"
    for view in views:
        assert view.href.startswith(f"{URL_PREFIX[1:]}/"), "a leading slash would skip the prefix of [api] base_url"


def requested(page: StreamsPage) -> list[dict[str, Any]]:
    """Request the page without a login, and return the messages that it sends."""
    sent: list[dict[str, Any]] = []
    scope = {"type": "http", "method": "GET", "path": "/", "raw_path": b"/", "query_string": b"", "headers": []}

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(dict(message))

    asyncio.run(page({**scope, "root_path": "", "app": None}, receive, send))
    return sent


def test_page_that_cannot_be_loaded_responds_with_503(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    page = StreamsPage()
    with monkeypatch.context() as broken:
        broken.setitem(sys.modules, APP, None)
        sent = requested(page)
    assert sent[0]["status"] == 503
    assert b"log of the API server" in sent[1]["body"]
    assert "cannot be created" in caplog.text
    assert requested(page)[0]["status"] == 401, "the next request tries again"


async def test_every_route_requires_a_login() -> None:
    """The test covers all routes, so routes that are added later too."""
    app = build_app()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://airflow") as client:
        for route in app.routes:
            assert isinstance(route, APIRoute), "a mounted application would skip the login check"
            answer = await client.get(
                route.path.replace("{name}", "page.css"), params={"uri": "sfstream://a/event/B__e"}
            )
            assert answer.status_code == 401, route.path
            assert "frame-ancestors 'self'" in answer.headers["content-security-policy"]
