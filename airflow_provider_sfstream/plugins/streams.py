"""The page *Salesforce streams* in Airflow's UI. Every component of Airflow imports this module."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from airflow.plugins_manager import AirflowPlugin

log = logging.getLogger(__name__)

URL_PREFIX = "/sfstream"
_Message = MutableMapping[str, Any]


class StreamsPage:
    """Application of the page, created by the first request.

    If it cannot be created, the API server serves all other pages, and this page refers to the log.
    """

    def __init__(self) -> None:
        self._app: Any = None

    async def __call__(
        self, scope: _Message, receive: Callable[[], Awaitable[_Message]], send: Callable[[_Message], Awaitable[None]]
    ) -> None:
        """Answer a request."""
        if self._app is None:
            try:
                from airflow_provider_sfstream.plugins.page.app import build_app

                self._app = build_app()
            except Exception:
                log.exception("The page of Salesforce streams cannot be created")
                from starlette.responses import PlainTextResponse

                text = "The page of Salesforce streams cannot be shown. See the log of the API server."
                await PlainTextResponse(text, 503)(scope, receive, send)
                return
        await self._app(scope, receive, send)


class SalesforceStreamsPlugin(AirflowPlugin):
    """Plugin with the page *Browse → Salesforce streams* and a tab of each DAG."""

    name = "sfstream"
    fastapi_apps = [{"app": StreamsPage(), "url_prefix": URL_PREFIX, "name": "Salesforce streams"}]
    # Without a slash at the beginning: the UI resolves them against its own base, which may have a path.
    external_views = [
        {
            "name": "Salesforce streams",
            "href": "sfstream/",
            "destination": "nav",
            "category": "browse",
            "url_route": "salesforce-streams",
            "icon": "sfstream/files/icon.svg",
        },
        {
            "name": "Salesforce streams",
            "href": "sfstream/?dag={DAG_ID}",
            "destination": "dag",
            "url_route": "dag-salesforce-streams",
            "icon": "sfstream/files/icon.svg",
        },
    ]
