"""Looks for secrets in all that a run leaves behind: files, a database, and the command lines of processes.

Each secret is looked for as it is, and as URLs, JSON and base64 have it. What is compressed is not unpacked.
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

KEPT_ON_PURPOSE = ("connection", "variable")
"""Tables of Airflow's database that hold what users store in them, encrypted where they gave a key."""


def secrets_of(org: LocalOrg) -> dict[str, str]:
    """Return what may be nowhere, by name: what connections to an org hold, and how all tokens that it gave begin."""
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
    """Return a secret in every form that it is looked for."""
    texts = {secret, quote(secret, safe=""), quote_plus(secret), json.dumps(secret)[1:-1]}
    encoded: set[bytes] = set()
    for before in range(3):  # bytes before it in what was encoded, beside whole threes of them
        text = base64.b64encode(bytes(before) + secret.encode())
        whole = text[(before * 8 + 5) // 6 : (before + len(secret.encode())) * 8 // 6]
        encoded |= {whole, whole.replace(b"+", b"-").replace(b"/", b"_")}
    return {text.encode() for text in texts} | encoded


@dataclass
class SecretSweep:
    """Collects where secrets were found, as ``name: where``.

    :param secrets: by name.
    """

    secrets: Mapping[str, str]
    found: list[str] = field(default_factory=list)
    looked_at: int = 0

    def __post_init__(self) -> None:
        self._forms = [(name, form) for name, secret in self.secrets.items() for form in forms(secret)]

    def look(self, where: str, data: bytes) -> None:
        """Look at a text."""
        self.looked_at += 1
        self.found += sorted({f"{name}: {where}" for name, form in self._forms if form in data})

    def files(self, *folders: Path) -> None:
        """Look at all files below folders, and at their names."""
        for folder in folders:
            for path in folder.rglob("*"):
                self.look(f"the name of {path}", str(path).encode())
                if path.is_file():
                    with suppress(FileNotFoundError):  # what still runs removes its own
                        self.look(str(path), path.read_bytes())

    def database(self, url: str) -> None:
        """Look at every row of every table but those that are there to keep secrets."""
        engine = create_engine(url)
        try:
            metadata = MetaData()
            metadata.reflect(engine)
            with engine.connect() as connection:
                for table in metadata.sorted_tables:
                    if table.name not in KEPT_ON_PURPOSE:
                        self._table(table, connection.execute(select(table)).all())
        finally:
            engine.dispose()

    def _table(self, table: Table, rows: Iterable[tuple[object, ...]]) -> None:
        for row in rows:
            for column, value in zip(table.columns, row, strict=True):
                if isinstance(value, bytes | memoryview):
                    self.look(f"{table.name}.{column.name}", bytes(value))
                elif value is not None:
                    text = value if isinstance(value, str) else json.dumps(value, default=str)
                    self.look(f"{table.name}.{column.name}", text.encode())

    @contextmanager
    def command_lines(self, every: float = 0.3) -> Iterator[None]:
        """Look at the command lines of all processes meanwhile, each once."""
        ended, seen = threading.Event(), set[bytes]()

        def watch() -> None:
            while True:
                for process in psutil.process_iter(["cmdline"]):
                    line = " ".join(process.info["cmdline"] or ()).encode()
                    if line not in seen:
                        seen.add(line)
                        self.look(f"the command line of process {process.pid}", line)
                if ended.wait(every):
                    return

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
