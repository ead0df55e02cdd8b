"""MariaDB server for tests, run from the installed binaries."""

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

import pymysql
import pytest
from sqlalchemy import URL

from scripts.airflow_stack import free_port
from sfstream_localorg.tls import ensure_tls_files
from tests.support.database_servers import DEADLINE, stop, unprivileged, wait_until_ready
from tests.support.packages import MARIADB, need

# A store must also work on a server whose settings truncate long values, store one byte per character, compare without
# case, and create tables without transactions.
_UNFRIENDLY = {
    "character-set-server": "latin1",
    "collation-server": "latin1_swedish_ci",
    "default-storage-engine": "MyISAM",
    "default-time-zone": "+05:45",
    "sql-mode": "",
    "transaction-isolation": "REPEATABLE-READ",
}


@dataclass(frozen=True)
class MariaDBServer:
    """A running server. ``password`` belongs to the user ``sfstream``, who has all privileges; ``ca`` is the PEM file
    of the certificate authority that signed the server's certificate."""

    host: str
    port: int
    password: str = field(repr=False)
    ca: Path

    def url(self, database: str = "mysql", **changes: object) -> URL:
        """Return the URL of ``database``, with some parts replaced by ``changes``."""
        options = {"charset": "utf8mb4"}
        url = URL.create("mysql+pymysql", "sfstream", self.password, self.host, self.port, database, options)
        return url.set(**changes)  # type: ignore[arg-type]

    def new_database(self) -> URL:
        """Create an empty database and return its URL."""
        name = f"test_{uuid4().hex}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def execute(self, statement: str, *values: object) -> None:
        """Run one statement."""
        connection = self.connect()
        with connection.cursor() as cursor:
            cursor.execute(statement, values)
        connection.commit()
        connection.close()

    def connect(self) -> pymysql.Connection:
        """Return a connection without a selected database."""
        return pymysql.connect(
            host=self.host, port=self.port, user="sfstream", password=self.password, charset="utf8mb4"
        )


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MariaDBServer]:
    """Run a MariaDB server on an ephemeral loopback port."""
    with running_mariadb(need(MARIADB)) as server:
        yield server


@contextmanager
def running_mariadb(binary: Path) -> Iterator[MariaDBServer]:
    """Run a server in a temporary folder; stop it by its process ID."""
    prefix, owner = unprivileged("mysql")
    root = Path(tempfile.mkdtemp(prefix="sfstream-mariadb-"))
    tls = ensure_tls_files(root)
    server = MariaDBServer("127.0.0.1", free_port(), uuid4().hex, tls.ca)
    first_statements = root / "init.sql"
    first_statements.write_text(
        f"CREATE USER sfstream@'127.0.0.1' IDENTIFIED BY '{server.password}';\n"
        "GRANT ALL ON *.* TO sfstream@'127.0.0.1' WITH GRANT OPTION;\n"
        "DROP USER root@localhost;\n"
    )
    data = root / "data"
    temporary = root / "tmp"
    for folder in (data, temporary):
        folder.mkdir()
    for path in (root, first_statements, data, temporary, tls.key):
        os.chown(path, owner.pw_uid, owner.pw_gid)
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": str(root)}
    install = ["mariadb-install-db", "--no-defaults", f"--datadir={data}", "--auth-root-authentication-method=normal"]
    process: subprocess.Popen[bytes] | None = None
    try:
        subprocess.run(
            [*prefix, *install, "--skip-test-db"],
            check=True,
            capture_output=True,
            cwd=root,
            env=environment,
            timeout=DEADLINE,
        )
        options = {
            "datadir": data,
            # At its start, a server removes every temporary table from this folder. In /tmp it would remove those of
            # other servers, which then crash.
            "tmpdir": temporary,
            "bind-address": server.host,
            "port": server.port,
            "socket": root / "socket",
            "pid-file": root / "pid",
            "init-file": first_statements,
            "ssl-cert": tls.certificate,
            "ssl-key": tls.key,
            "innodb-flush-log-at-trx-commit": 0,
            "innodb-buffer-pool-size": "32M",
            **_UNFRIENDLY,
        }
        settings = [f"--{name}={value}" for name, value in options.items()]
        with (root / "log").open("wb") as log:
            process = subprocess.Popen(
                [*prefix, binary, "--no-defaults", *settings], stdout=log, stderr=log, cwd=root, env=environment
            )
        wait_until_ready(server.connect, pymysql.OperationalError, process, root / "log")
        yield server
    finally:
        if process is not None:
            # The process ID is the server's: setpriv replaced itself by it. SIGKILL is safe: the data is deleted.
            stop(process, signal.SIGKILL, DEADLINE)
        shutil.rmtree(root, ignore_errors=True)
