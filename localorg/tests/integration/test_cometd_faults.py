"""CometD faults: their effects, and how often they apply."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.support.bayeux_client import BayeuxClient, replay_ids
from tests.support.localorg import AdminError, LocalOrg, wait_until


@pytest.fixture
def client(org: LocalOrg, topic: str) -> Iterator[BayeuxClient]:
    """Open a session with three undelivered events."""
    with BayeuxClient(org).opened(topic) as client:
        client.connect()
        org.publish(topic, [{"Number__c": n} for n in range(3)])
        yield client


@pytest.fixture
def numbers(org: LocalOrg, topic: str, client: BayeuxClient) -> list[int]:
    return [int.from_bytes(event["replay_id"], "big") for event in org.record(topic, api="streaming")]


def poll_response(client: BayeuxClient) -> httpx.Response:
    message = {"channel": "/meta/connect", "connectionType": "long-polling", "advice": {"timeout": 0}}
    return client.http.post(client.path, json=[{**message, "clientId": client.client_id}])


def test_dropped_connect_loses_no_event(org: LocalOrg, client: BayeuxClient, numbers: list[int]) -> None:
    org.fault("cometd_drop", times=2)
    for _ in range(2):
        with pytest.raises(httpx.RemoteProtocolError):
            client.poll()
    assert replay_ids(client.poll()) == numbers


@pytest.mark.parametrize("part", [0, 0.5])
def test_events_of_a_lost_response_are_not_sent_again_in_the_session(
    org: LocalOrg, client: BayeuxClient, topic: str, numbers: list[int], part: float
) -> None:
    org.fault("cometd_lose", part=part)
    with pytest.raises(httpx.RemoteProtocolError):
        client.poll()
    assert client.poll() == []
    assert client.subscribe(topic, numbers[0])["successful"]  # a new subscription receives the events again
    assert replay_ids(client.poll()) == numbers[1:]


def test_fault_cometd_lose_waits_for_a_response_with_events(org: LocalOrg, client: BayeuxClient) -> None:
    client.poll()
    org.fault("cometd_lose")
    assert client.poll() == []
    assert len(org.admin("GET", "/faults")["cometd"]) == 1


def test_truncated_response_has_status_200_and_half_of_its_body(org: LocalOrg, client: BayeuxClient) -> None:
    org.fault("cometd_truncate")
    response = poll_response(client)
    assert response.status_code == 200
    with pytest.raises(json.JSONDecodeError):
        response.json()


def test_fault_cometd_broken_message_breaks_one_message(
    org: LocalOrg, client: BayeuxClient, numbers: list[int]
) -> None:
    org.fault("cometd_broken_message", kind="shape")
    got = client.poll()
    assert replay_ids([got[0], got[2]]) == [numbers[0], numbers[2]]
    assert "event" not in got[1]
    org.publish(got[0]["channel"], [{"Number__c": 1}])
    org.fault("cometd_broken_message")
    with pytest.raises(json.JSONDecodeError):
        client.poll()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, (500, "text/plain")),
        ({"status": 503}, (503, "text/html")),
        ({"status": 429, "text": "slow down"}, (429, "text/plain")),
    ],
)
def test_fault_cometd_http_returns_an_http_error(
    org: LocalOrg, client: BayeuxClient, numbers: list[int], arguments: dict[str, Any], expected: tuple[int, str]
) -> None:
    org.fault("cometd_http", **arguments)
    response = poll_response(client)
    assert (response.status_code, response.headers["content-type"].partition(";")[0]) == expected
    assert replay_ids(client.poll()) == numbers


def test_fault_cometd_fail_imitates_an_overloaded_server_by_default(
    org: LocalOrg, client: BayeuxClient, topic: str
) -> None:
    org.fault("cometd_fail", channel="*", times=3)
    refused = (client.handshake(), client.subscribe(topic), client.connect()[0])
    reason = "503::Server is too busy. Please try your request again later."
    assert [one["ext"]["sfdc"]["failureReason"] for one in refused] == [reason] * 3
    assert refused[0]["error"] == "403::Handshake denied"


def test_fault_cometd_fail_refuses_a_message_with_the_given_error(
    org: LocalOrg, client: BayeuxClient, topic: str
) -> None:
    words = "403::User not allowed to subscribe CDC without View All Data"
    org.fault("cometd_fail", channel="/meta/subscribe", topic="/data/AccountChangeEvent", error=words)
    assert client.subscribe(topic)["successful"]
    refused = client.subscribe("/data/AccountChangeEvent", -2)
    assert refused["error"] == words
    assert not {"advice", "ext"} & set(refused)
    assert client.subscribe("/data/AccountChangeEvent", -2)["successful"]
    org.fault("cometd_fail", error="402::Unknown client", advice={"reconnect": "retry", "interval": 3})
    assert client.connect()[0]["advice"] == {"reconnect": "retry", "interval": 3}


def test_fault_cometd_advice_changes_the_advice(org: LocalOrg, client: BayeuxClient) -> None:
    org.fault("cometd_advice", advice={"interval": 500})
    assert client.handshake()["advice"] == {"interval": 500}
    org.fault("cometd_advice", channel="/meta/connect", advice={"interval": 250})
    assert client.connect()[0]["advice"] == {"interval": 250, "reconnect": "retry", "timeout": 110_000}


@pytest.mark.parametrize(
    ("how", "before", "advice"),
    [
        ("handshake", [], {"reconnect": "handshake", "interval": 0}),
        ("no_advice", [], None),
        ("disconnect", [{"channel": "/meta/disconnect"}], {"reconnect": "none", "interval": 0}),
    ],
)
def test_fault_cometd_kill_sessions_ends_the_sessions_of_a_topic(
    org: LocalOrg, client: BayeuxClient, topic: str, how: str, before: list[Any], advice: Any
) -> None:
    client.poll()
    with ThreadPoolExecutor(1) as thread, BayeuxClient(org).opened("/data/ChangeEvents") as other:
        held = thread.submit(client.connect)
        wait_until(lambda: org.requests("cometd", "/meta/connect")[-1]["outcome"] == "open")
        org.fault("cometd_kill_sessions", how=how, topic=topic)
        for answer in (held.result(60), client.connect()):
            assert answer[:-1] == before
            assert (answer[-1]["error"], answer[-1].get("advice")) == ("403::Unknown client", advice)
        assert other.poll() == []


def test_fault_cometd_drop_held_closes_the_connection_of_a_held_connect(
    org: LocalOrg, client: BayeuxClient, topic: str
) -> None:
    client.poll()
    with ThreadPoolExecutor(1) as thread:
        held = thread.submit(client.connect)
        wait_until(lambda: org.requests("cometd", "/meta/connect")[-1]["outcome"] == "open")
        org.fault("cometd_drop_held", topic=topic)
        with pytest.raises(httpx.RemoteProtocolError):
            held.result(60)
    assert client.poll() == []


def test_fault_cometd_revoke_revokes_the_token_of_a_message(
    org: LocalOrg, client: BayeuxClient, numbers: list[int]
) -> None:
    org.fault("cometd_revoke")
    assert client.connect()[0]["error"] == "401::Authentication invalid"
    client.http.headers["Authorization"] = f"Bearer {org.token()}"
    assert replay_ids(client.poll()) == numbers


def test_fault_cometd_black_hole_sends_no_response(org: LocalOrg, client: BayeuxClient, numbers: list[int]) -> None:
    org.fault("cometd_black_hole", channel="*")
    client.http.timeout = httpx.Timeout(30, read=3)
    with pytest.raises(httpx.ReadTimeout):
        client.poll()
    client.http.timeout = httpx.Timeout(30)
    assert replay_ids(client.poll()) == numbers


def test_fault_cometd_events_in_subscribe_adds_events_to_the_reply(org: LocalOrg, topic: str) -> None:
    org.publish(topic, [{"Number__c": n} for n in range(3)])
    org.fault("cometd_events_in_subscribe")
    with BayeuxClient(org) as client:
        client.handshake()
        message = {"channel": "/meta/subscribe", "subscription": topic, "ext": {"replay": {topic: -2}}}
        assert [one["channel"] for one in client.send(message)] == ["/meta/subscribe", topic, topic, topic]
        assert client.poll() == []


def test_fault_silence_applies_to_cometd_sessions_until_it_is_cleared(
    org: LocalOrg, client: BayeuxClient, topic: str, numbers: list[int]
) -> None:
    org.fault("silence", topic=topic)
    assert client.poll() == []
    org.clear_faults()
    assert replay_ids(client.poll()) == numbers


def test_cometd_faults_apply_every_nth_time_or_by_probability_and_are_listed(
    org: LocalOrg, client: BayeuxClient
) -> None:
    org.fault("cometd_fail", every=3, times=None)
    assert [poll["successful"] for poll in (client.connect(advice={"timeout": 0})[-1] for _ in range(6))] == [
        *(True, True, False, True, True, False)
    ]
    org.clear_faults()
    outcomes = []
    for _ in range(2):
        org.fault("cometd_fail", probability=0.5, seed=7, times=None)
        outcomes.append([client.connect(advice={"timeout": 0})[-1]["successful"] for _ in range(20)])
        assert org.admin("GET", "/faults")["cometd"][0]["probability"] == 0.5
        org.clear_faults()
    assert outcomes[0] == outcomes[1]
    assert 0 < sum(outcomes[0]) < 20
    assert org.admin("GET", "/faults")["cometd"] == []


@pytest.mark.parametrize(
    ("fault", "arguments"),
    [
        ("cometd_lose", {"part": 1}),
        ("cometd_lose", {"times": 0}),
        ("cometd_lose", {"every": 1.5}),
        ("cometd_lose", {"probability": 0}),
        ("cometd_lose", {"channel": "/meta/nothing"}),
        ("cometd_lose", {"status": 500}),
        ("cometd_http", {"status": 200}),
        ("cometd_broken_message", {"kind": "other"}),
        ("cometd_advice", {"advice": 5}),
        ("cometd_kill_sessions", {"how": "gently"}),
        ("cometd_drop", {"topic": "/topic/Nowhere"}),
    ],
)
def test_invalid_cometd_faults_are_refused(org: LocalOrg, fault: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(AdminError):
        org.fault(fault, **arguments)
    assert org.admin("GET", "/faults")["cometd"] == []


def test_client_that_disconnects_during_a_response_causes_no_traceback(org: LocalOrg, topic: str) -> None:
    log = org.data_dir / "localorg.log"
    before = len(log.read_text())
    with BayeuxClient(org).opened(topic) as client:
        client.connect()
        org.publish_many(topic, 40_000, {"Number__c": "{n}"})
        message = {"channel": "/meta/connect", "connectionType": "long-polling", "clientId": client.client_id}
        with client.http.stream("POST", client.path, json=[message]) as response:
            next(response.iter_raw(1_000))

        def left() -> bool:
            return any(each["outcome"] == "CANCELLED" for each in org.requests("http"))

        wait_until(left, what="the org to detect the closed connection")
    with BayeuxClient(org).opened(topic):  # other clients are not affected
        pass
    assert log.read_text()[before:] == ""
