"""PostgreSQL server for tests, run from the installed binaries."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import psycopg2
import pytest
from sqlalchemy import URL

from scripts.airflow_stack import free_port
from tests.support.database_servers import DEADLINE, stop, unprivileged, wait_until_ready
from tests.support.packages import POSTGRES, need


@dataclass(frozen=True)
class PostgresServer:
    """A running server. Connections over sockets and TCP both require the ``password`` of superuser ``sfstream``."""

    host: str
    port: int
    password: str = field(repr=False)

    def url(self, database: str = "postgres", **changes: object) -> URL:
        """Return the URL of ``database``, with some parts replaced by ``changes``."""
        url = URL.create("postgresql+psycopg2", "sfstream", self.password, self.host, self.port, database)
        return url.set(**changes)  # type: ignore[arg-type]

    def new_database(self) -> URL:
        """Create an empty database and return its URL."""
        name = f"test_{uuid4().hex}"
        connection = self._connect()
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {name}")
        connection.close()
        return self.url(name)

    def _connect(self) -> psycopg2.extensions.connection:
        return psycopg2.connect(
            host=self.host, port=self.port, user="sfstream", password=self.password, dbname="postgres"
        )


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """Run a PostgreSQL server on an ephemeral loopback port."""
    with running_postgres(need(POSTGRES)) as server:
        yield server


@contextmanager
def running_postgres(binaries: Path) -> Iterator[PostgresServer]:
    """Run a server from ``binaries`` in a temporary folder; stop it by its process ID."""
    prefix, owner = unprivileged("postgres")
    root = Path(tempfile.mkdtemp(prefix="sfstream-pg-"))
    server = PostgresServer("127.0.0.1", free_port(), uuid4().hex)
    password_file = root / "password"
    password_file.write_text(server.password)
    for path in (root, password_file):
        os.chown(path, owner.pw_uid, owner.pw_gid)
    data = root / "data"
    initdb = [*prefix, binaries / "initdb", "-D", data, "-U", "sfstream", "-A", "scram-sha-256", "-E", "UTF8"]
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": str(root)}
    process: subprocess.Popen[bytes] | None = None
    try:
        subprocess.run(
            [*initdb, "--pwfile", password_file, "--no-sync"],
            check=True,
            capture_output=True,
            cwd=root,
            env=environment,
            timeout=DEADLINE,
        )
        options = {
            "listen_addresses": server.host,
            "port": server.port,
            "unix_socket_directories": root,
            "fsync": "off",
        }
        settings = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        with (root / "log").open("wb") as log:
            process = subprocess.Popen(
                [*prefix, binaries / "postgres", "-D", data, *settings],
                stdout=log,
                stderr=log,
                cwd=root,
                env=environment,
            )
        wait_until_ready(server._connect, psycopg2.OperationalError, process, root / "log")
        yield server
    finally:
        if process is not None:
            # The process ID is the server's: setpriv replaced itself by it. SIGQUIT skips the checkpoint.
            stop(process, signal.SIGQUIT, DEADLINE)
        shutil.rmtree(root, ignore_errors=True)
