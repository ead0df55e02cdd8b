"""Access tokens and refresh tokens of the local org, kept in SQLite so that they survive a restart.

Tokens look like Salesforce's (§4.1 of the protocol notes): the 15-character org id, ``!AR8`` and random text, 112
characters in all. They never expire by themselves; they end by being revoked, as an administrator, a password
change or the ``/admin`` API would do it.
"""

from __future__ import annotations

import secrets
import sqlite3
import string
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from sfstream_localorg.identifiers import derived, to_18

_ALPHABET = string.ascii_letters + string.digits + "._"
_TABLES = """
CREATE TABLE IF NOT EXISTS session (
    token TEXT PRIMARY KEY, username TEXT NOT NULL, client_id TEXT NOT NULL, issued_at REAL NOT NULL,
    refresh_token TEXT);
CREATE TABLE IF NOT EXISTS refresh_token (
    token TEXT PRIMARY KEY, username TEXT NOT NULL, client_id TEXT NOT NULL, issued_at REAL NOT NULL);
"""


@dataclass(frozen=True)
class Session:
    """Who a token speaks for. ``issued_at`` is in seconds since the epoch; the token itself stays out of the repr."""

    token: str = field(repr=False)
    username: str
    user_id: str
    org_id: str
    client_id: str
    issued_at: float
    refresh_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class RefreshToken:
    """A grant to issue further access tokens, as the OAuth web server flow would have left it with a client."""

    token: str = field(repr=False)
    username: str
    client_id: str


class Sessions:
    """All live tokens of one org. Safe to use from several threads; every change is durable when the call returns.

    :param database: path of the SQLite file, or an open connection (made with ``check_same_thread=False``).
    :param org_id: 15 or 18 characters.
    :param clock: seconds since the epoch.
    """

    def __init__(
        self, database: str | Path | sqlite3.Connection, org_id: str, *, clock: Callable[[], float] = time.time
    ) -> None:
        self.org_id = to_18(org_id)
        self._clock = clock
        self._lock = threading.Lock()
        self._owned = not isinstance(database, sqlite3.Connection)
        if isinstance(database, sqlite3.Connection):
            self._database = database
        else:
            self._database = sqlite3.connect(database, check_same_thread=False, timeout=30)
            self._database.execute("PRAGMA journal_mode=WAL")
        self._database.executescript(_TABLES)
        self._live: dict[str, Session] = {}
        for token, username, client_id, issued_at, refresh_token in self._database.execute(
            "SELECT token, username, client_id, issued_at, refresh_token FROM session"
        ):
            self._live[token] = Session(
                token, username, self.user_id(username), self.org_id, client_id, issued_at, refresh_token
            )

    def __len__(self) -> int:
        return len(self._live)

    def user_id(self, username: str) -> str:
        """Return the 18-character id of a user; names differ from each other by more than letter case."""
        return derived("005", f"{self.org_id}/{username.lower()}")

    def issue(self, username: str, *, client_id: str = "", refresh_token: str | None = None) -> str:
        """Return a new access token for a user; older ones stay valid, as at Salesforce."""
        token = self._new_token()
        session = Session(token, username, self.user_id(username), self.org_id, client_id, self._clock(), refresh_token)
        with self._lock, self._database:
            self._database.execute(
                "INSERT INTO session (token, username, client_id, issued_at, refresh_token) VALUES (?, ?, ?, ?, ?)",
                (token, username, client_id, session.issued_at, refresh_token),
            )
            self._live[token] = session
        return token

    def issue_refresh_token(self, username: str, *, client_id: str) -> str:
        """Return a refresh token, which at Salesforce a user would grant in the browser."""
        token = "5Aep861" + "".join(secrets.choice(_ALPHABET) for _ in range(80))
        with self._lock, self._database:
            self._database.execute(
                "INSERT INTO refresh_token (token, username, client_id, issued_at) VALUES (?, ?, ?, ?)",
                (token, username, client_id, self._clock()),
            )
        return token

    def check(self, token: str | None) -> Session | None:
        """Return the session of a token, ``None`` if it is blank, unknown or revoked. One dictionary look-up."""
        return self._live.get(token) if token else None

    def check_refresh_token(self, token: str) -> RefreshToken | None:
        """Return whom a refresh token speaks for, ``None`` if it is unknown or revoked."""
        with self._lock:
            row = self._database.execute(
                "SELECT token, username, client_id FROM refresh_token WHERE token = ?", (token,)
            ).fetchone()
        return RefreshToken(*row) if row else None

    def revoke(self, token: str) -> bool:
        """End one access token, or one refresh token with every access token it gave. Return whether it existed."""
        with self._lock, self._database:
            ended = [t for t, session in self._live.items() if token in (t, session.refresh_token)]
            self._database.executemany("DELETE FROM session WHERE token = ?", [(t,) for t in ended])
            refreshing = self._database.execute("DELETE FROM refresh_token WHERE token = ?", (token,)).rowcount
            for live in ended:
                del self._live[live]
        return bool(ended or refreshing)

    def revoke_all(self, *, refresh_tokens: bool = False) -> int:
        """End every access token (and every refresh token if asked); return how many access tokens that were."""
        with self._lock, self._database:
            self._database.execute("DELETE FROM session")
            if refresh_tokens:
                self._database.execute("DELETE FROM refresh_token")
            ended = len(self._live)
            self._live.clear()
        return ended

    def close(self) -> None:
        """Close the database, unless it was given as an open connection."""
        if self._owned:
            self._database.close()

    def _new_token(self) -> str:
        return f"{self.org_id[:15]}!AR8" + "".join(secrets.choice(_ALPHABET) for _ in range(93))


def bearer_token(authorization: str | None) -> str | None:
    """Return the token of an ``Authorization`` header; Salesforce takes ``Bearer`` and ``OAuth`` alike."""
    scheme, _, token = (authorization or "").partition(" ")
    return token.strip() or None if scheme.lower() in ("bearer", "oauth") else None
