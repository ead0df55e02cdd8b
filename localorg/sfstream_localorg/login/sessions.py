"""Access tokens and refresh tokens of the local org, stored in SQLite so that they survive a restart.

Tokens have the form of Salesforce's tokens (§4.1 of the protocol notes): the 15-character org id, ``!AR8`` and random
text, 112 characters in total. They do not expire; they end when they are revoked, as an administrator, a password
change or the ``/admin`` API would do it.
"""

from __future__ import annotations

import secrets
import sqlite3
import string
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from sfstream_localorg.identifiers import derived, to_18

_ALPHABET = string.ascii_letters + string.digits + "._"
_TABLES = """
CREATE TABLE IF NOT EXISTS session (
    token TEXT PRIMARY KEY, username TEXT NOT NULL, client_id TEXT NOT NULL, issued_at REAL NOT NULL,
    refresh_token TEXT);
CREATE TABLE IF NOT EXISTS refresh_token (
    token TEXT PRIMARY KEY, username TEXT NOT NULL, client_id TEXT NOT NULL, issued_at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS spent_refresh_token (token TEXT PRIMARY KEY, current TEXT NOT NULL);
"""


@dataclass(frozen=True)
class Session:
    """An access token and its user. ``issued_at`` is in seconds since the epoch. The repr omits the token."""

    token: str = field(repr=False)
    username: str
    user_id: str
    org_id: str
    client_id: str
    issued_at: float
    refresh_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class RefreshToken:
    """A refresh token, as a client receives it from the OAuth web server flow."""

    token: str = field(repr=False)
    username: str
    client_id: str


class Sessions:
    """All valid tokens of one org. Thread-safe; every change is durable when the call returns.

    :param database: path of the SQLite file, or an open connection (created with ``check_same_thread=False``).
    :param org_id: 15 or 18 characters.
    :param clock: returns the time in seconds since the epoch.
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
        """Return the 18-character id of a user; user names are case-insensitive."""
        return derived("005", f"{self.org_id}/{username.lower()}")

    def issue(self, username: str, *, client_id: str = "", refresh_token: str | None = None) -> str:
        """Issue an access token for a user. Older tokens stay valid, as at Salesforce."""
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
        """Issue a refresh token, which at Salesforce a user would grant in the browser."""
        token = "5Aep861" + "".join(secrets.choice(_ALPHABET) for _ in range(80))
        with self._lock, self._database:
            self._database.execute(
                "INSERT INTO refresh_token (token, username, client_id, issued_at) VALUES (?, ?, ?, ?)",
                (token, username, client_id, self._clock()),
            )
        return token

    def check(self, token: str | None) -> Session | None:
        """Return the session of a token, ``None`` if it is empty, unknown or revoked."""
        return self._live.get(token) if token else None

    def check_refresh_token(self, token: str) -> RefreshToken | None:
        """Return a refresh token with its user and client, ``None`` if it is unknown or revoked.

        A spent one revokes the token that replaced it, and the access tokens of both, as at Salesforce.
        """
        with self._lock:
            spent = self._database.execute(
                "SELECT current FROM spent_refresh_token WHERE token = ?", (token,)
            ).fetchone()
        if spent:
            self.revoke(spent[0])
        with self._lock:
            row = self._database.execute(
                "SELECT token, username, client_id FROM refresh_token WHERE token = ?", (token,)
            ).fetchone()
        return RefreshToken(*row) if row else None

    def rotate_refresh_token(self, granted: RefreshToken) -> str:
        """Replace a refresh token by a new one, which also takes over its access tokens."""
        current = self.issue_refresh_token(granted.username, client_id=granted.client_id)
        change = (current, granted.token)
        with self._lock, self._database:
            self._database.execute("DELETE FROM refresh_token WHERE token = ?", (granted.token,))
            self._database.execute("UPDATE spent_refresh_token SET current = ? WHERE current = ?", change)
            self._database.execute("INSERT INTO spent_refresh_token (current, token) VALUES (?, ?)", change)
            self._database.execute("UPDATE session SET refresh_token = ? WHERE refresh_token = ?", change)
            for value, session in self._live.items():
                if session.refresh_token == granted.token:
                    self._live[value] = replace(session, refresh_token=current)
        return current

    def revoke(self, token: str) -> bool:
        """Revoke an access token, or a refresh token and its access tokens. Return whether it existed."""
        with self._lock, self._database:
            ended = [t for t, session in self._live.items() if token in (t, session.refresh_token)]
            self._database.executemany("DELETE FROM session WHERE token = ?", [(t,) for t in ended])
            refreshing = self._database.execute("DELETE FROM refresh_token WHERE token = ?", (token,)).rowcount
            for live in ended:
                del self._live[live]
        return bool(ended or refreshing)

    def revoke_all(self, *, refresh_tokens: bool = False) -> int:
        """Revoke all access tokens, optionally also all refresh tokens; return the number of access tokens."""
        with self._lock, self._database:
            self._database.execute("DELETE FROM session")
            if refresh_tokens:
                self._database.execute("DELETE FROM refresh_token")
            ended = len(self._live)
            self._live.clear()
        return ended

    def close(self) -> None:
        """Close the database, unless the caller opened it."""
        if self._owned:
            self._database.close()

    def _new_token(self) -> str:
        return f"{self.org_id[:15]}!AR8" + "".join(secrets.choice(_ALPHABET) for _ in range(93))


def bearer_token(authorization: str | None) -> str | None:
    """Return the token of an ``Authorization`` header with the scheme ``Bearer`` or ``OAuth``, as Salesforce does."""
    scheme, _, token = (authorization or "").partition(" ")
    return token.strip() or None if scheme.lower() in ("bearer", "oauth") else None
