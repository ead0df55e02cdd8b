"""API server without a scheduler, whose users have roles and teams, for tests of page permissions."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from airflow_provider_sfstream.monitoring.status import Status
from airflow_provider_sfstream.monitoring.table_status import TableStatusStore
from scripts.airflow_stack import BIN, AirflowStack, wait_for

PASSWORD = "for-a-server-on-loopback"
ROWS = """
import json, sys
from airflow.models import Connection, Variable
from airflow.models.dag import DagModel
from airflow.models.dagbundle import DagBundleModel
from airflow.models.team import Team
from airflow.utils.session import create_session

rows = json.load(sys.stdin)
with create_session() as session:
    for name in rows["teams"]:
        bundle = DagBundleModel(name=name)
        bundle.teams.append(Team(name=name))
        session.add(bundle)
    session.flush()
    for dag_id, team in rows["dags"].items():
        session.add(DagModel(dag_id=dag_id, bundle_name=team, fileloc="x", is_stale=False))
    for conn_id, team in rows["connections"].items():
        session.add(Connection(conn_id=conn_id, conn_type="salesforce", team_name=team))
    for key, value in rows["variables"].items():
        session.add(Variable(key=key, val=value))
"""


class PageServer:
    """A running API server.

    :param users: role by user name; a team may follow the role, such as ``op:red``.
    """

    def __init__(self, home: Path, prefix: str = "", users: Mapping[str, str] | None = None, **settings: str) -> None:
        (home / "dags").mkdir(parents=True)
        passwords = home / "passwords.json"
        passwords.write_text(json.dumps(dict.fromkeys(users or {}, PASSWORD)))
        self._stack = AirflowStack(home, home / "dags", {"AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "False"})
        self.url = f"{self._stack.url}{prefix}"
        self._status_database = home / "status.db"
        status = {"conn_type": "sqlite", "host": str(self._status_database)}
        self._stack.environment |= {
            "AIRFLOW__API__BASE_URL": self.url,
            "AIRFLOW__CORE__MULTI_TEAM": "True",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(
                f"{name}:{role}" for name, role in (users or {}).items()
            ),
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
            "AIRFLOW_CONN_SFSTREAM_STATUS": json.dumps(status),
            "AIRFLOW__SFSTREAM__STATUS_CONN_ID": "sfstream_status",
            **settings,
        }

    def start(
        self,
        *,
        teams: Iterable[str] = (),
        dags: Mapping[str, str],
        connections: Mapping[str, str],
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """Create the database with these rows, and start the server.

        :param dags: team by DAG ID.
        :param connections: team by connection ID.
        :param variables: value by key.
        """
        rows = {
            "teams": list(teams),
            "dags": dict(dags),
            "connections": dict(connections),
            "variables": dict(variables or {}),
        }
        with (self._stack.home / "migrate.log").open("ab") as log:
            self._run([BIN / "airflow", "db", "migrate"], stdout=log, stderr=log)
        self._run([BIN / "python", "-c", ROWS], input=json.dumps(rows).encode())
        self._stack.start_component("api-server")
        wait_for(self._answers, 300, f"the API server (logs in {self._stack.home})")

    def _run(self, command: list[Any], **arguments: Any) -> None:
        subprocess.run(command, env=self._stack.environment, check=True, timeout=600, **arguments)

    def _answers(self) -> bool:
        if self._stack.processes["api-server"].poll() is not None:
            raise RuntimeError(f"the API server ended: see {self._stack.home}/api-server.log")
        try:
            return httpx.get(f"{self.url}/api/v2/version", timeout=5).is_success
        except httpx.HTTPError:
            return False

    def stop(self) -> None:
        """Stop the server."""
        self._stack.stop()

    def store_statuses(self, statuses: Iterable[Status]) -> None:
        """Store status documents in the status table, as tasks do."""
        store = TableStatusStore(f"sqlite:///{self._status_database}")
        for status in statuses:
            store.change(status.subject, status.section, lambda _, document=status.document: document)  # type: ignore[misc]
        store.close()

    @contextmanager
    def corrupt_status_database(self) -> Iterator[None]:
        """Corrupt the database of the status table for a ``with`` block."""
        content = self._status_database.read_bytes()
        self._status_database.write_bytes(b"x" * len(content))
        try:
            yield
        finally:
            self._status_database.write_bytes(content)

    def token(self, user: str) -> str:
        """Log in, and return the token."""
        answer = httpx.post(f"{self.url}/auth/token", json={"username": user, "password": PASSWORD}, timeout=30)
        return str(answer.raise_for_status().json()["access_token"])

    def get(self, path: str, user: str | None = None, etag: str | None = None, **parameters: str) -> httpx.Response:
        """Request a path below the page, with the cookie of a logged-in browser."""
        cookies = {} if user is None else {"_token": self.token(user)}
        headers = {} if etag is None else {"If-None-Match": etag}
        url = f"{self.url}/sfstream/{path}"
        return httpx.get(url, params=parameters, cookies=cookies, headers=headers, timeout=30)


@contextmanager
def running_page(server: PageServer, **rows: Any) -> Iterator[PageServer]:
    """Run a server for a ``with`` block; stop it even after an error."""
    try:
        server.start(**rows)
        yield server
    finally:
        server.stop()
