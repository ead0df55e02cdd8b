from __future__ import annotations

import pytest

from sfstream_localorg.cometd.sessions import CometdSessions, CometdSubscription


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sessions(clock: Clock) -> CometdSessions:
    return CometdSessions(lambda: 40.0, clock)


def test_session_ends_40_seconds_after_its_handshake(sessions: CometdSessions, clock: Clock) -> None:
    session = sessions.begin()
    clock.now += 40
    assert sessions.get(session.client_id) is session
    clock.now += 0.1
    assert sessions.get(session.client_id) is None
    assert (len(sessions), session.ended) == (0, "handshake")


def test_held_connect_keeps_the_session_and_its_reply_restarts_the_deadline(
    sessions: CometdSessions, clock: Clock
) -> None:
    session = sessions.begin()
    number = sessions.hold(session)
    clock.now += 1_000
    assert list(sessions) == [session]
    sessions.release(session, number)
    clock.now += 39
    assert list(sessions) == [session]
    clock.now += 2
    assert list(sessions) == []


def test_reply_to_an_older_connect_does_not_start_the_deadline(sessions: CometdSessions, clock: Clock) -> None:
    session = sessions.begin()
    first = sessions.hold(session)
    session.wake.clear()
    sessions.hold(session)
    assert session.wake.is_set()  # the older request must end
    sessions.release(session, first)
    clock.now += 1_000
    assert session.is_held
    assert list(sessions) == [session]


def test_ending_of_a_session_is_stored(sessions: CometdSessions) -> None:
    session = sessions.begin()
    sessions.end(session, "disconnect")
    assert sessions.ending(session.client_id) == "disconnect"
    assert sessions.ending("never was") == "handshake"
    assert sessions.ending(7) == "handshake"


def test_only_held_sessions_of_the_channel_lose_their_connection(sessions: CometdSessions) -> None:
    held, idle, other = sessions.begin(), sessions.begin(), sessions.begin()
    for session, channel in ((held, "/u/a"), (idle, "/u/a"), (other, "/u/b")):
        session.subscriptions[channel] = CometdSubscription(channel, channel, 0)
    sessions.hold(held)
    sessions.hold(other)
    sessions.drop_held("/u/a")
    assert [session.drop_held for session in (held, idle, other)] == [True, False, False]
    sessions.drop_held(None)
    assert other.drop_held
    assert sessions.listeners("/u/a") == 2


def test_client_ids_and_cookies_are_unique_and_not_in_the_repr(sessions: CometdSessions) -> None:
    made = [sessions.begin() for _ in range(50)]
    assert len({session.client_id for session in made} | {session.cookie for session in made}) == 100
    assert made[0].cookie not in repr(made[0])
