from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest

from sfstream_localorg.login.sessions import Sessions, bearer_token

ORG_ID = "00Dx0000000BV7zEAG"


@pytest.fixture
def sessions(tmp_path: Path) -> Sessions:
    return Sessions(tmp_path / "org.sqlite", ORG_ID, clock=lambda: 1_700_000_000.5)


def test_access_token_has_the_form_of_salesforce(sessions: Sessions) -> None:
    token = sessions.issue("ann@example.com")
    assert re.fullmatch(r"00Dx0000000BV7z!AR8[A-Za-z0-9._]{93}", token)
    assert len(token) == 112


def test_session_has_the_user_the_client_and_the_time(sessions: Sessions) -> None:
    session = sessions.check(sessions.issue("ann@example.com", client_id="app"))
    assert session is not None
    assert (session.username, session.client_id, session.org_id) == ("ann@example.com", "app", ORG_ID)
    assert session.issued_at == 1_700_000_000.5
    assert session.user_id.startswith("005")
    assert session.token not in repr(session)


@pytest.mark.parametrize("token", ["", None, "00Dx0000000BV7z!AR8unknown"])
def test_an_unknown_token_has_no_session(sessions: Sessions, token: str | None) -> None:
    assert sessions.check(token) is None


def test_tokens_and_revocations_survive_a_restart(tmp_path: Path) -> None:
    first = Sessions(tmp_path / "org.sqlite", ORG_ID)
    kept, revoked = first.issue("ann@example.com"), first.issue("ann@example.com")
    refresh = first.issue_refresh_token("ann@example.com", client_id="app")
    assert first.revoke(revoked)
    second = Sessions(tmp_path / "org.sqlite", ORG_ID)  # the first object was not closed, as after kill -9
    assert second.check(kept) == first.check(kept) is not None
    assert second.check(revoked) is None
    granted = second.check_refresh_token(refresh)
    assert granted is not None
    assert granted.username == "ann@example.com"
    assert refresh not in repr(granted)


def test_revoking_one_token_leaves_the_others_valid(sessions: Sessions) -> None:
    one, other = sessions.issue("ann@example.com"), sessions.issue("ann@example.com")
    assert sessions.revoke(one)
    assert not sessions.revoke(one)
    assert sessions.check(one) is None
    assert sessions.check(other) is not None


def test_revoking_a_refresh_token_ends_its_access_tokens(sessions: Sessions) -> None:
    refresh = sessions.issue_refresh_token("ann@example.com", client_id="app")
    derived, other = sessions.issue("ann@example.com", refresh_token=refresh), sessions.issue("ann@example.com")
    assert sessions.revoke(refresh)
    assert sessions.check_refresh_token(refresh) is None
    assert sessions.check(derived) is None
    assert sessions.check(other) is not None


def test_revoke_all_keeps_refresh_tokens_by_default(sessions: Sessions) -> None:
    refresh = sessions.issue_refresh_token("ann@example.com", client_id="app")
    tokens = [sessions.issue("ann@example.com") for _ in range(3)]
    assert sessions.revoke_all() == 3
    assert [sessions.check(token) for token in tokens] == [None] * 3
    assert sessions.check_refresh_token(refresh) is not None
    sessions.revoke_all(refresh_tokens=True)
    assert sessions.check_refresh_token(refresh) is None


def test_an_open_connection_is_used_and_not_closed() -> None:
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    sessions = Sessions(connection, ORG_ID)
    sessions.issue("ann@example.com")
    sessions.close()
    assert connection.execute("SELECT count(*) FROM session").fetchone() == (1,)


@pytest.mark.parametrize(
    ("header", "token"),
    [
        ("Bearer abc", "abc"),
        ("OAuth abc", "abc"),
        ("bearer  abc ", "abc"),
        ("Basic abc", None),
        ("", None),
        (None, None),
    ],
)
def test_bearer_token(header: str | None, token: str | None) -> None:
    assert bearer_token(header) == token
