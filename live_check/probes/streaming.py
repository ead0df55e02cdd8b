"""The Streaming API (CometD): sessions, events, refusals and their advice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx

from live_check.bayeux import BayeuxSession, refused
from live_check.events import published
from live_check.probe import probe
from live_check.run import SAMPLE_EVENT, ProbeRun, now


@probe("Which fields do the replies and the events of a session have?", events=6)
def cometd_session(run: ProbeRun) -> Any:
    run.topic(SAMPLE_EVENT)
    (replay_id,) = published(run, 1)
    counter = int.from_bytes(replay_id[:8], "big")
    with BayeuxSession(run) as session:
        handshake = session.handshake()
        began = now()
        connected = session.connect()[-1]
        first_connect = now() - began
        subscribed = session.subscribe(SAMPLE_EVENT, counter)
        (following,) = published(run, 1)
        until = now() + 30.0
        events: list[Any] = []
        while not events and now() < until:
            events = [message for message in session.connect(seconds=5.0) if "data" in message]
        unsubscribed = session.send("/meta/unsubscribe", subscription=SAMPLE_EVENT)[-1]
        disconnected = session.send("/meta/disconnect")[-1]
    return {
        "handshake": {**refused(run, handshake), "keys": sorted(handshake), "version": handshake.get("version")},
        "first_connect": {**refused(run, connected), "after": run.seconds("first_connect", first_connect, 10, 60)},
        "subscribe": {**refused(run, subscribed), "keys": sorted(subscribed)},
        "event": _event(events[0], following) if events else "none came",
        "unsubscribe": refused(run, unsubscribed),
        "disconnect": refused(run, disconnected),
    }


def _event(message: Any, replay_id: bytes) -> Any:
    data = message["data"]
    return {
        "keys": sorted(message),
        "data": sorted(data),
        "event": sorted(data["event"]),
        "schema_id": f"{len(data.get('schema', ''))} characters",
        "replay_id_is_first_8_bytes": data["event"]["replayId"] == int.from_bytes(replay_id[:8], "big"),
        "payload": sorted(data["payload"]),
        "created_date": "text" if isinstance(data["payload"].get("CreatedDate"), str) else "another type",
    }


@probe("How does the Streaming API refuse, and with what advice?")
def cometd_refusals(run: ProbeRun) -> Any:
    run.topic(SAMPLE_EVENT)
    answers: dict[str, Any] = {
        "version_36": _http(run, "36.0"),
        "no_version": _http(run, ""),
        "too_large": _too_large(run),
    }
    with BayeuxSession(run, token=f"{run.org.login.org_id[:15]}!AQ0AQwrong") as stranger:
        answers["handshake_with_unknown_token"] = refused(run, stranger.handshake())
    with BayeuxSession(run) as session:
        session.client_id = "0123456789abcdef0123456789abcdef"
        answers["connect_of_unknown_client"] = refused(run, session.connect(seconds=0.0)[-1])
    with BayeuxSession(run) as session:
        session.handshake()
        session.connect()
        asks: dict[str, Callable[[], Any]] = {
            "unknown_event": lambda: session.subscribe("/event/Airflow_No_Such_Event__e"),
            "unknown_topic": lambda: session.subscribe("/topic/AirflowNoSuchTopic"),
            "unknown_generic": lambda: session.subscribe("/u/AirflowNoSuchChannel"),
            "no_slash": lambda: session.subscribe("Airflow_Order__e"),
            "no_name": lambda: session.subscribe(""),
            "other_name_in_replay": lambda: session.subscribe(SAMPLE_EVENT, {"/event/Another__e": -1}),
            "replay_id_never_given": lambda: session.subscribe(SAMPLE_EVENT, 0x7FFFFFFFFFFFFF),
            "connection_type": lambda: session.send("/meta/connect", connectionType="websocket")[-1],
            "unknown_meta_channel": lambda: session.send("/meta/nothing")[-1],
            "publishing": lambda: session.send(SAMPLE_EVENT, data={})[-1],
        }
        answers |= {name: refused(run, ask()) for name, ask in asks.items()}
        session.http.cookies.clear()
        answers["no_cookie"] = refused(run, session.connect(seconds=0.0)[-1])
    return answers


def _http(run: ProbeRun, version: str) -> Any:
    with BayeuxSession(run, version=version) as session:
        return _answer(run, session.post([{"channel": "/meta/handshake", "version": "1.0"}]))


def _too_large(run: ProbeRun) -> Any:
    with BayeuxSession(run) as session:
        return _answer(run, session.post([{"channel": "/meta/handshake", "version": "1.0", "x": "x" * 40_000}]))


def _answer(run: ProbeRun, answer: httpx.Response) -> Any:
    try:
        replies = answer.json()
    except ValueError:
        return {"http_status": answer.status_code, "body": "no JSON"}
    return {"http_status": answer.status_code, "replies": [refused(run, reply) for reply in replies]}


@probe("How long is a connect without events held, and with what advice is it answered?", waits=130)
def cometd_hold(run: ProbeRun) -> Any:
    with BayeuxSession(run) as session:
        session.handshake()
        session.connect()
        session.subscribe(SAMPLE_EVENT, -1)
        began = now()
        reply = session.connect()[-1]
        return {**refused(run, reply), "held": run.seconds("held", now() - began, 5, 60, 100, 125)}


@probe("Is a session still valid if it does not connect again for 50 seconds?", waits=60)
def cometd_late_connect(run: ProbeRun) -> Any:
    with BayeuxSession(run) as session:
        session.handshake()
        session.connect()
        run.pause(50.0)
        return refused(run, session.connect(seconds=0.0)[-1])


PROBES = [cometd_session, cometd_refusals, cometd_hold, cometd_late_connect]
