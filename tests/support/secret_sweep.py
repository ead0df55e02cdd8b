"""Search for secrets in the files and the database that a run wrote, and in the command lines of processes.

The search covers the plain secret and its URL, JSON and base64 encodings. It does not decompress data.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, quote_plus

import psutil
from sqlalchemy import MetaData, Table, create_engine, select

from tests.support.localorg import LocalOrg

EXCLUDED_TABLES = ("connection", "variable")
"""Tables of Airflow's database in which users store secrets, encrypted if a key is configured."""


def secrets_of(org: LocalOrg) -> dict[str, str]:
    """Return the secrets of an org by name: secrets of connections, and the common prefix of its access tokens."""
    key = Path(org.jwt_private_key_file).read_text().splitlines()
    return {
        "consumer secret": org.client_secret,
        "password": org.password,
        "security token": org.security_token,
        "first line of the private key": key[1],
        "last line of the private key": key[-2],
        "access token": f"{org.org_id[:15]}!",
    }


def forms(secret: str) -> set[bytes]:
    """Return all encodings of a secret that the search covers."""
    texts = {secret, quote(secret, safe=""), quote_plus(secret), json.dumps(secret)[1:-1]}
    encoded: set[bytes] = set()
    for before in range(3):  # base64 depends on the number of preceding bytes, modulo 3
        text = base64.b64encode(bytes(before) + secret.encode())
        whole = text[(before * 8 + 5) // 6 : (before + len(secret.encode())) * 8 // 6]
        encoded |= {whole, whole.replace(b"+", b"-").replace(b"/", b"_")}
    return {text.encode() for text in texts} | encoded


@dataclass
class SecretSweep:
    """Search for secrets. ``found`` contains the findings, as ``name: location``.

    :param secrets: secrets by name.
    """

    secrets: Mapping[str, str]
    found: list[str] = field(default_factory=list)
    text_count: int = 0

    def __post_init__(self) -> None:
        self._forms = [(name, form) for name, secret in self.secrets.items() for form in forms(secret)]

    def search(self, where: str, data: bytes) -> None:
        """Search one text."""
        self.text_count += 1
        self.found += sorted({f"{name}: {where}" for name, form in self._forms if form in data})

    def files(self, *folders: Path) -> None:
        """Search all files below folders, and their paths."""
        for folder in folders:
            for path in folder.rglob("*"):
                self.search(f"the name of {path}", str(path).encode())
                if path.is_file():
                    with suppress(FileNotFoundError):  # a running process may delete its files
                        self.search(str(path), path.read_bytes())

    def database(self, url: str) -> None:
        """Search all rows of all tables, except the tables in which users store secrets."""
        engine = create_engine(url)
        try:
            metadata = MetaData()
            metadata.reflect(engine)
            with engine.connect() as connection:
                for table in metadata.sorted_tables:
                    if table.name not in EXCLUDED_TABLES:
                        self._table(table, connection.execute(select(table)).all())
        finally:
            engine.dispose()

    def _table(self, table: Table, rows: Iterable[tuple[object, ...]]) -> None:
        for row in rows:
            for column, value in zip(table.columns, row, strict=True):
                if isinstance(value, bytes | memoryview):
                    self.search(f"{table.name}.{column.name}", bytes(value))
                elif value is not None:
                    text = value if isinstance(value, str) else json.dumps(value, default=str)
                    self.search(f"{table.name}.{column.name}", text.encode())

    @contextmanager
    def command_lines(self, every: float = 0.3) -> Iterator[None]:
        """Search the command lines of all processes during a ``with`` block, each command line once."""
        ended, seen = threading.Event(), set[bytes]()

        def watch() -> None:
            while True:
                for process in psutil.process_iter(["cmdline"]):
                    line = " ".join(process.info["cmdline"] or ()).encode()
                    if line not in seen:
                        seen.add(line)
                        self.search(f"the command line of process {process.pid}", line)
                if ended.wait(every):
                    return

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
