"""Web application of the page, which Airflow's API server mounts. It has only GET requests, and changes nothing.
Airflow's auth manager decides which streams a user may read.
"""

from __future__ import annotations

import hashlib
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import AccessView
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_view
from fastapi import Depends, FastAPI, HTTPException, Query, Request, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from airflow_provider_sfstream._airflow import authorized_connections, connection_teams, dag_teams, of_team
from airflow_provider_sfstream.monitoring.status import Document, Status, connection_of
from airflow_provider_sfstream.plugins.page.loading import LoadedStatuses, Reader, all_dag_ids, read_statuses
from airflow_provider_sfstream.plugins.page.overview import overview
from airflow_provider_sfstream.plugins.page.stream import stream_details

if TYPE_CHECKING:
    from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
    from sqlalchemy.orm import Session

log = logging.getLogger(__name__)

HEADERS = {
    # Nothing but the page's own files, and in no frame but Airflow's: a name from Salesforce could do nothing if it got
    # into the page as markup.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}

_MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


def build_app() -> FastAPI:
    """Return the application.

    Each route requires a login and the permission to view plugins in Airflow's UI. Mounted applications and Starlette's
    own routes would require neither, so there are none.
    """
    app = FastAPI(
        title="Salesforce streams",
        dependencies=[Depends(requires_access_view(AccessView.PLUGINS))],
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    app.add_middleware(_Headers)
    page_files = _read_files()

    @app.get("/")
    def page(request: Request) -> Response:
        """Return the page."""
        return page_files["index.html"].answer(request)

    @app.get("/files/{name}")
    def file(name: str, request: Request) -> Response:
        """Return a file of the page."""
        if name not in page_files:
            raise HTTPException(404, "There is no such file")
        return page_files[name].answer(request)

    @app.get("/api/streams")
    def streams(user: GetUserDep, session: SessionDep, dag: str | None = None) -> Response:
        """Return all streams, or those of a DAG."""
        read, readable = _readable(user, session)
        hidden = len(readable) < len(read.statuses)
        return _json(overview(readable, datetime.now(UTC), dag) | {"hidden": hidden, "unreadable": read.unreadable})

    @app.get("/api/stream")
    def stream(user: GetUserDep, session: SessionDep, uri: Annotated[str, Query()]) -> Response:
        """Return one stream."""
        _, readable = _readable(user, session, uri)
        try:
            details = stream_details(readable, uri, datetime.now(UTC))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            log.exception("The status of %s cannot be read", uri)
            raise HTTPException(500, "Its status documents cannot be read") from error
        if details is None:
            raise HTTPException(404, "There is no such stream, or you may not read it")
        return _json(details)

    return app


@dataclass(frozen=True)
class _File:
    """Response with a file."""

    content: bytes
    media_type: str

    def answer(self, request: Request) -> Response:
        """Return the file; status 304 without it if the browser has this content."""
        tag = f'"{hashlib.sha256(self.content).hexdigest()[:32]}"'
        headers = {"ETag": tag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(self.content, media_type=self.media_type, headers=headers)


def _read_files() -> dict[str, _File]:
    """Return the files by their names, read once: a name that is not among them leads to no path."""
    folder = files("airflow_provider_sfstream.plugins.page") / "static"
    return {
        path.name: _File(path.read_bytes(), _MEDIA_TYPES[path.name.rpartition(".")[2]])
        for path in folder.iterdir()
        if path.name.rpartition(".")[2] in _MEDIA_TYPES
    }


def _readable(user: Any, session: Any, windows_of: str | None = None) -> tuple[LoadedStatuses, list[Status]]:
    """Return all documents, and those that the user may read."""
    try:
        read = read_statuses(session, windows_of)
    except Exception as error:  # a missing connection or database, or a network fault
        log.exception("The status of streams cannot be read")
        raise HTTPException(503, "The status of the streams cannot be read; see the log of the API server.") from error
    return read, reader_of(user, read.statuses, session).readable(read.statuses)


def _json(document: Document) -> Response:
    # FastAPI would look at each value of it first, which takes longer than all the rest.
    return Response(msgspec.json.encode(document), media_type="application/json")


class _Headers:
    """Add the headers to every answer, errors too."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name.lower() for name, _ in message["headers"]}
                more = {**HEADERS, "Cache-Control": "no-store"}
                pairs = [(name.lower().encode(), value.encode()) for name, value in more.items()]
                message["headers"] = [*message["headers"], *(pair for pair in pairs if pair[0] not in own)]
            await send(message)

        await self._app(scope, receive, send_with_headers)


def reader_of(user: BaseUser, statuses: Iterable[Status], session: Session) -> Reader:
    """Return which of the DAGs and connections that documents name a user may read.

    Only these are asked for: an Airflow can have thousands of others. Of a DAG that is gone, and of a connection that
    is kept elsewhere than in the database, Airflow knows no team.
    """
    statuses = list(statuses)
    manager: Any = get_auth_manager()
    dag_ids = all_dag_ids(statuses)
    teams = dag_teams(dag_ids, session)
    dags = _allowed(
        dag_ids, teams, lambda ids, team: manager.filter_authorized_dag_ids(dag_ids=ids, user=user, **of_team(team))
    )
    connections = {each for status in statuses if (each := connection_of(status.subject)) is not None}
    teams = connection_teams(connections, session)
    allowed = _allowed(
        connections,
        teams,
        lambda ids, team: authorized_connections(manager, ids, user, team),
    )
    return Reader(dags, allowed)


def _allowed(
    names: set[str], teams: dict[str, str | None], ask: Callable[[set[str], str | None], set[str]]
) -> frozenset[str]:
    by_team: dict[str | None, set[str]] = defaultdict(set)
    for name in names:
        by_team[teams.get(name)].add(name)
    return frozenset().union(*(ask(of_team, team) for team, of_team in by_team.items()))
