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
from fastapi import Depends, FastAPI, HTTPException, Query, Request, Response
from starlette.middleware.base import RequestResponseEndpoint

from airflow_provider_sfstream._airflow.api_server import (
    AccessView,
    BaseUser,
    GetUserDep,
    SessionDep,
    authorized_connections,
    get_auth_manager,
    of_team,
    requires_access_view,
)
from airflow_provider_sfstream._airflow.database import connection_teams, dag_teams, existing_dags
from airflow_provider_sfstream.monitoring.status import Document, Status, connection_of
from airflow_provider_sfstream.plugins.page.loading import LoadedStatuses, Reader, all_dag_ids, read_statuses
from airflow_provider_sfstream.plugins.page.overview import overview
from airflow_provider_sfstream.plugins.page.stream import stream_details

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

log = logging.getLogger(__name__)

HEADERS = {
    # Only the page's own files, and no frame but Airflow's: a name from Salesforce that became markup of the page could
    # load and run nothing.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Default headers of every response."""

_MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


def build_app() -> FastAPI:
    """Return the application.

    Each route requires a login and the permission to view plugins in Airflow's UI. Mounted applications and Starlette's
    own routes would require neither, so this application has none.
    """
    app = FastAPI(
        title="Salesforce streams",
        dependencies=[Depends(requires_access_view(AccessView.PLUGINS))],
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    page_files = _read_files()

    @app.middleware("http")
    async def with_headers(request: Request, call_next: RequestResponseEndpoint) -> Response:
        """Add the headers to every response, also to errors."""
        response = await call_next(request)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    @app.get("/")
    def page(request: Request) -> Response:
        """Return the page."""
        return page_files["index.html"].response(request)

    @app.get("/files/{name}")
    def file(name: str, request: Request) -> Response:
        """Return a file of the page."""
        if name not in page_files:
            raise HTTPException(404, "The file does not exist")
        return page_files[name].response(request)

    @app.get("/api/streams")
    def streams(user: GetUserDep, session: SessionDep, dag: str | None = None) -> Response:
        """Return all streams, or those of a DAG."""
        loaded, readable = _readable(user, session)
        found = overview(readable, datetime.now(UTC), dag, existing_dags=_existing(readable, session))
        hidden = len(readable) < len(loaded.statuses)
        return _json(found | {"hidden": hidden, "unreadable": loaded.unreadable})

    @app.get("/api/stream")
    def stream(user: GetUserDep, session: SessionDep, uri: Annotated[str, Query()]) -> Response:
        """Return one stream."""
        _, readable = _readable(user, session, uri)
        try:
            details = stream_details(readable, uri, datetime.now(UTC), existing_dags=_existing(readable, session))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            log.exception("The status documents of %s are invalid", uri)
            raise HTTPException(500, "The status documents of this stream cannot be read") from error
        if details is None:
            raise HTTPException(404, "The stream does not exist, or you may not read it")
        return _json(details)

    return app


@dataclass(frozen=True)
class _File:
    content: bytes
    media_type: str

    def response(self, request: Request) -> Response:
        """Return the file; status 304 without it if the browser has this content."""
        tag = f'"{hashlib.sha256(self.content).hexdigest()[:32]}"'
        headers = {"ETag": tag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(self.content, media_type=self.media_type, headers=headers)


def _read_files() -> dict[str, _File]:
    """Return the files by name. They are read once, so that no requested name becomes a path."""
    folder = files("airflow_provider_sfstream.plugins.page") / "static"
    return {
        path.name: _File(path.read_bytes(), _MEDIA_TYPES[path.name.rpartition(".")[2]])
        for path in folder.iterdir()
        if path.name.rpartition(".")[2] in _MEDIA_TYPES
    }


def _readable(user: Any, session: Any, windows_of: str | None = None) -> tuple[LoadedStatuses, list[Status]]:
    """Return all documents, and those that the user may read."""
    try:
        loaded = read_statuses(session, windows_of)
    except Exception as error:  # a missing connection or database, or a network fault
        log.exception("The status of streams cannot be read")
        raise HTTPException(503, "The status of the streams cannot be read; see the log of the API server.") from error
    return loaded, reader_of(user, loaded.statuses, session).readable(loaded.statuses)


def _existing(statuses: Iterable[Status], session: Session) -> dict[str, bool]:
    return existing_dags(all_dag_ids(statuses), session)


def _json(document: Document) -> Response:
    # Encoded here, because FastAPI would first validate each value, which takes longer than the rest of a request.
    return Response(msgspec.json.encode(document), media_type="application/json")


def reader_of(user: BaseUser, statuses: Iterable[Status], session: Session) -> Reader:
    """Return the reader with those DAGs and connections of the documents that the user may read.

    Only these are checked, because an Airflow can have thousands of others. A deleted DAG, and a connection that is not
    in Airflow's database, have no team.
    """
    statuses = list(statuses)
    manager: Any = get_auth_manager()
    dag_ids = all_dag_ids(statuses)
    dags = _allowed(
        dag_ids,
        dag_teams(dag_ids, session),
        lambda ids, team: manager.filter_authorized_dag_ids(dag_ids=ids, user=user, **of_team(team)),
    )
    conn_ids = {conn_id for status in statuses if (conn_id := connection_of(status.subject)) is not None}
    connections = _allowed(
        conn_ids,
        connection_teams(conn_ids, session),
        lambda ids, team: authorized_connections(manager, ids, user, team),
    )
    return Reader(dags, connections)


def _allowed(
    names: set[str], teams: dict[str, str | None], authorized: Callable[[set[str], str | None], set[str]]
) -> frozenset[str]:
    by_team: dict[str | None, set[str]] = defaultdict(set)
    for name in names:
        by_team[teams.get(name)].add(name)
    return frozenset().union(*(authorized(members, team) for team, members in by_team.items()))
