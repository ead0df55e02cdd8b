"""CometD endpoint of the local org, compared with Salesforce's Streaming API."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.bayeux_client import BayeuxClient, replay_ids
from tests.support.localorg import LocalOrg, wait_until
from tests.support.subscriber import Subscriber

UNKNOWN_CLIENT = "403::Unknown client"
INVALID_REPLAY_ID = (
    "400::The replayId {%s} you provided was invalid.  Please provide a valid ID, -2 to replay all events, or -1 to "
    "replay only new events."
)


def integers(replay_ids: list[bytes]) -> list[int]:
    return [int.from_bytes(replay_id[:8], "big") for replay_id in replay_ids]


@pytest.mark.parametrize("scheme", ["Bearer", "OAuth"])
@pytest.mark.parametrize("path", ["37.0", "62.0/", "66.0"])
def test_a_session_from_handshake_to_disconnect(org: LocalOrg, topic: str, scheme: str, path: str) -> None:
    with BayeuxClient(org, scheme=scheme, path=path) as client:
        handshake_reply = client.handshake(id="7")
        assert handshake_reply == {
            "channel": "/meta/handshake",
            "id": "7",
            "successful": True,
            "version": "1.0",
            "minimumVersion": "1.0",
            "clientId": client.client_id,
            "supportedConnectionTypes": ["long-polling"],
            "ext": {"replay": True, "payload.format": True},
        }
        (first,) = client.connect()  # the first connect gets an immediate reply, even without events
        assert first == {
            "channel": "/meta/connect",
            "clientId": client.client_id,
            "successful": True,
            "advice": {"reconnect": "retry", "interval": 0, "timeout": 110_000},
        }
        assert client.subscribe(topic)["successful"]
        (number,) = integers(org.publish(topic, [{"Number__c": 1}]))
        assert replay_ids(client.poll()) == [number]
        (unsubscribe_reply,) = client.send({"channel": "/meta/unsubscribe", "subscription": topic, "id": 9})
        assert (unsubscribe_reply["successful"], unsubscribe_reply["subscription"], unsubscribe_reply["id"]) == (
            True,
            topic,
            9,
        )
        org.publish(topic, [{"Number__c": 2}])
        assert client.poll() == []
        (disconnect_reply,) = client.send({"channel": "/meta/disconnect"})
        assert disconnect_reply["successful"]
        (refused,) = client.connect()
        assert (refused["error"], refused["advice"]) == (UNKNOWN_CLIENT, {"reconnect": "handshake", "interval": 0})


def test_message_type_in_the_url_and_a_single_message_without_an_array_are_accepted(org: LocalOrg) -> None:
    with BayeuxClient(org) as client:
        handshake = {"channel": "/meta/handshake", "version": "1.0", "supportedConnectionTypes": ["long-polling"]}
        (handshake_reply,) = client.http.post("/cometd/62.0/handshake", json=handshake).json()
        client.client_id = handshake_reply["clientId"]
        assert client.send({"channel": "/meta/connect", "connectionType": "long-polling"}, path="/connect")[0][
            "successful"
        ]


def test_platform_events_have_their_envelope_and_iso_dates(org: LocalOrg) -> None:
    org.define("Shaped__e", Text__c="text", At__c="datetime", On__c="date", Number__c="double", Flag__c="boolean")
    values = {"Text__c": 'a "\u20ac"', "At__c": "2026-01-02T03:04:05.678Z", "On__c": "2026-01-02", "Flag__c": False}
    given = {"CreatedDate": "2026-11-21T08:00:00.050Z", **values}
    (replay_id,) = integers(org.publish("/event/Shaped__e", [given]))
    (recorded,) = org.record("/event/Shaped__e")
    with BayeuxClient(org).opened("/event/Shaped__e", -2) as client:
        (message,) = client.poll()
    assert message == {
        "channel": "/event/Shaped__e",
        "data": {
            "schema": recorded["schema_id"],
            "payload": {**given, "CreatedById": recorded["fields"]["CreatedById"], "Number__c": None},
            "event": {"EventUuid": recorded["event_id"], "replayId": replay_id, "EventApiName": "Shaped__e"},
        },
    }


def test_change_events_have_their_changed_fields_only(org: LocalOrg) -> None:
    with BayeuxClient(org).opened("/data/AccountChangeEvent") as client:
        account = org.rest("POST", "/sobjects/Account", {"LastName": "Lee", "BillingCity": "Rome", "Phone": "1"})["id"]
        change = {"LastName": "Li", "BillingCity": None, "Phone": None, "SLAExpirationDate__c": "2026-02-03"}
        org.rest("PATCH", f"/sobjects/Account/{account}", change)
        org.rest("DELETE", f"/sobjects/Account/{account}")
        created, updated, deleted = (message["data"] for message in client.poll())
    header = updated["payload"].pop("ChangeEventHeader")
    assert header["recordIds"] == [account]
    assert header["changeType"] == "UPDATE"
    assert isinstance(header["commitTimestamp"], int)
    assert not {"nulledFields", "diffFields"} & set(header)
    modified = updated["payload"].pop("LastModifiedDate")
    assert modified.endswith(".000Z")
    assert updated["payload"] == {
        "Name": {"LastName": "Li"},
        "BillingAddress": {"City": None},
        "Phone": None,
        "SLAExpirationDate__c": "2026-02-03",
    }
    assert set(header["changedFields"]) == {
        *("Name.LastName", "BillingAddress.City", "Phone", "SLAExpirationDate__c", "LastModifiedDate")
    }
    assert created["payload"]["Name"] == {"LastName": "Lee"}
    assert None not in created["payload"].values()
    assert list(deleted["payload"]) == ["ChangeEventHeader"]
    assert set(deleted["event"]) == {"replayId"}


def test_subscription_starts_at_the_requested_replay_id(org: LocalOrg, topic: str) -> None:
    numbers = integers(org.publish(topic, [{"Number__c": n} for n in range(5)]))
    for replay, expected in ((-1, []), (-2, numbers), (numbers[2], numbers[3:]), (numbers[4], [])):
        with BayeuxClient(org).opened(topic, replay) as client:
            assert replay_ids(client.poll()) == expected, replay
    with BayeuxClient(org) as client:  # without a replay option, only new events are delivered
        client.handshake()
        client.subscribe(topic)
        assert client.poll() == []


def test_event_has_the_same_replay_id_in_both_apis(org: LocalOrg, topic: str) -> None:
    org.channel(f"{topic.removeprefix('/event/')[:-3]}__chn", [topic])
    org.publish(topic, [{"Number__c": n} for n in range(3)])
    with Subscriber(org).fetch(3, topic) as subscriber:
        expected = integers([event.replay_id for event in subscriber.events(3)])
    for name in (topic, topic[:-3] + "__chn"):
        with BayeuxClient(org).opened(name, -2) as client:
            assert replay_ids(client.poll()) == expected


@pytest.mark.parametrize("replay", [0, 5, 2**70, -3, "7", None, 1.5])
def test_replay_ids_that_were_never_issued_are_refused_with_the_text_of_salesforce(
    org: LocalOrg, topic: str, replay: Any
) -> None:
    org.publish(topic, [{"Number__c": 1}])
    with BayeuxClient(org) as client:
        client.handshake()
        refused = client.subscribe(topic, ext={"replay": {topic: replay}}, id="3")
        assert (refused["successful"], refused["error"]) == (False, INVALID_REPLAY_ID % replay)
        assert (refused["subscription"], refused["id"]) == (topic, "3")
        assert client.poll() == []


def test_expired_replay_ids_are_refused(org: LocalOrg, topic: str) -> None:
    ids = org.publish(topic, [{"Number__c": n} for n in range(3)])
    org.fault("expire_before", topic=topic, replay_id=ids[1].hex())
    with BayeuxClient(org) as client:
        client.handshake()
        number = integers(ids)[0]
        assert client.subscribe(topic, number)["error"] == INVALID_REPLAY_ID % number
        assert client.subscribe(topic, -2)["successful"]
        assert replay_ids(client.poll()) == integers(ids)[1:]


def test_a_replay_map_without_the_channel_is_refused(org: LocalOrg, topic: str) -> None:
    with BayeuxClient(org) as client:
        client.handshake()
        refused = client.subscribe(topic, ext={"replay": {"/event/Other__e": -2}})
    assert refused["error"] == (
        f"400::The replayId for channel {{{topic}}} wasn't found using the provided replay ID map "
        "{{/event/Other__e=-2}}. Ensure that the channel name you provided in the replay map is valid and matches the "
        "channel name used for subscribing."
    )


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("/event/Nowhere__e", "403:denied_by_security_policy:create_denied"),
        ("/data/NowhereChangeEvent", "403:denied_by_security_policy:create_denied"),
        ("/event/*", "403:denied_by_security_policy:create_denied"),
        ("/data/changeevents", "403:denied_by_security_policy:create_denied"),
        ("/topic/Nowhere", "400::The channel you requested to subscribe to does not exist {/topic/Nowhere}"),
        ("/u/nowhere", "400::The channel you requested to subscribe to does not exist {/u/nowhere}"),
        ("Order__e", "400::Channel subscriptions must start with a leading '/'"),
        ("", "400::Channel name not specified"),
    ],
)
def test_subscribing_to_an_unknown_channel_is_refused(org: LocalOrg, name: str, error: str) -> None:
    with BayeuxClient(org) as client:
        client.handshake()
        refused = client.subscribe(name, -2)
    assert (refused["successful"], refused["error"]) == (False, error)


def test_publishing_and_unknown_meta_channels_are_refused(org: LocalOrg, topic: str) -> None:
    with BayeuxClient(org) as client:
        client.handshake()
        published, unknown = client.send({"channel": topic, "data": {}}, {"channel": "/meta/nothing"})
    assert published["error"] == "403:denied_by_security_policy:publish_denied"
    assert unknown["error"] == "404::Unknown channel"


def test_connect_is_held_until_an_event_is_published(org: LocalOrg, topic: str) -> None:
    with BayeuxClient(org).opened(topic) as client, ThreadPoolExecutor(1) as thread:
        client.connect()
        held = thread.submit(client.connect)
        wait_until(lambda: _open_connects(org, client))
        (number,) = integers(org.publish(topic, [{"Number__c": 1}]))
        event, reply = held.result(60)
        assert (event["data"]["event"]["replayId"], reply["channel"]) == (number, "/meta/connect")


def test_held_connect_gets_a_reply_after_its_timeout(org: LocalOrg, topic: str) -> None:
    org.knobs(cometd_connect_seconds=0.2)
    with BayeuxClient(org).opened(topic) as client:
        client.connect()
        (reply,) = client.connect()
        assert reply["advice"]["timeout"] == 200


def test_session_without_a_connect_in_time_ends(org: LocalOrg, topic: str) -> None:
    with BayeuxClient(org).opened(topic, -2) as client:
        org.knobs(cometd_reconnect_seconds=0.05)
        client.connect()  # the deadline starts with the reply to this connect
        wait_until(lambda: not _sessions(org, client))
        (refused,) = client.connect()
        assert (refused["error"], refused["advice"]["reconnect"]) == (UNKNOWN_CLIENT, "handshake")


def test_a_second_connect_ends_the_first(org: LocalOrg, topic: str) -> None:
    with BayeuxClient(org).opened(topic) as client, ThreadPoolExecutor(1) as thread:
        client.connect()
        held = thread.submit(client.connect)
        wait_until(lambda: _open_connects(org, client))
        client.connect(advice={"timeout": 0})
        assert [message["channel"] for message in held.result(60)] == ["/meta/connect"]


def test_events_of_several_subscriptions_of_a_session_are_in_bus_order(org: LocalOrg, topic: str) -> None:
    org.define("Second__e", Number__c="int")
    org.channel("Both__chn", ["Second__e"])
    with BayeuxClient(org).opened(topic) as client:
        client.subscribe("/event/Second__e")
        client.subscribe("/event/Both__chn")
        published = [org.publish(name, [{"Number__c": 1}]) for name in (topic, "/event/Second__e", topic)]
        a, b, c = (integers(ids)[0] for ids in published)
        got = [(message["channel"], message["data"]["event"]["replayId"]) for message in client.poll()]
    assert got[0] == (topic, a)
    assert set(got[1:3]) == {("/event/Second__e", b), ("/event/Both__chn", b)}
    assert got[3:] == [(topic, c)]


def test_many_events_are_delivered_in_order_for_every_batch_size(org: LocalOrg, topic: str) -> None:
    org.publish_many(topic, 1_700, {"Number__c": "{n}"})
    expected = integers([event["replay_id"] for event in org.record(topic)])
    for batch in (None, 600, 1):
        org.knobs(cometd_batch_events=batch)
        with BayeuxClient(org).opened(topic, -2) as client:
            got = client.poll()
            if batch is None:
                assert replay_ids(got) == expected
                continue
            assert len(got) == batch
            while batch > 1 and (more := client.poll()):
                got += more
            assert replay_ids(got) == expected[: len(got)]


def test_event_record_equals_the_cometd_message_byte_for_byte(org: LocalOrg, topic: str) -> None:
    org.publish(topic, [{"Number__c": n} for n in range(3)])
    with BayeuxClient(org).opened(topic, -2) as client:
        poll = {"channel": "/meta/connect", "connectionType": "long-polling", "clientId": client.client_id}
        body = client.http.post(client.path, json=[poll]).content
    for event in org.record(topic, api="streaming"):
        assert len(event["replay_id"]) == 8
        assert b'{"data":' + event["payload"] + b',"channel":"%b"}' % topic.encode() in body
        assert json.loads(event["payload"])["event"]["replayId"] == int.from_bytes(event["replay_id"], "big")


def test_a_missing_cookie_is_refused(org: LocalOrg) -> None:
    with BayeuxClient(org) as client:
        client.handshake()
        client.http.cookies.clear()
        (refused,) = client.connect()
        expected = f"400::Client {client.client_id} has established a session, but no BAYEUX_BROWSER cookie present"
        assert refused["error"] == expected


def test_revoked_token_ends_a_held_connect_and_a_new_token_continues_the_session(org: LocalOrg, topic: str) -> None:
    with BayeuxClient(org).opened(topic) as client, ThreadPoolExecutor(1) as thread:
        client.connect()
        held = thread.submit(client.connect)
        wait_until(lambda: _open_connects(org, client))
        org.revoke(client.token)
        (refused,) = held.result(60)
        assert refused["error"] == "401::Authentication invalid"
        assert refused["advice"] == {"reconnect": "none", "interval": 0}
        denied = BayeuxClient(org, token=client.token).handshake()
        assert (denied["error"], denied["advice"]) == ("403::Handshake denied", {"reconnect": "none"})
        assert denied["ext"]["sfdc"]["failureReason"] == "401::Authentication invalid"
        client.http.headers["Authorization"] = f"Bearer {org.token()}"
        (number,) = integers(org.publish(topic, [{"Number__c": 1}]))
        assert replay_ids(client.poll()) == [number]


def test_cometd_request_without_a_token_is_refused(org: LocalOrg) -> None:
    with BayeuxClient(org) as client:
        client.handshake()
        del client.http.headers["Authorization"]
        assert client.connect()[0]["error"] == "401::Request requires authentication"
        assert client.handshake()["ext"]["sfdc"]["failureReason"] == "401::Request requires authentication"


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("36.0", "Only API versions '37.0' and later"),
        ("62", "Unsupported"),
        ("", "API version in the URI is mandatory"),
    ],
)
def test_unsupported_cometd_api_versions_are_refused(org: LocalOrg, path: str, words: str) -> None:
    with BayeuxClient(org, path=path) as client:
        response = client.http.post(client.path, json=[{"channel": "/meta/handshake"}])
        assert response.status_code == 400
        assert words in response.json()[0]["error"]


@pytest.mark.parametrize(("size", "status"), [(32_768, 200), (32_769, 413)])
@pytest.mark.parametrize("chunked", [False, True])
def test_cometd_requests_above_the_maximum_size_are_refused(
    org: LocalOrg, size: int, status: int, chunked: bool
) -> None:
    with BayeuxClient(org) as client:
        body = json.dumps([{"channel": "/meta/handshake", "ext": {"": ""}}]).encode()
        body = body.ljust(size)
        response = client.http.post(client.path, content=iter([body[:9], body[9:]]) if chunked else body)
        assert response.status_code == status
        assert (status == 200) == response.json()[0]["successful"]


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"[1]", b'[{"channel":"/meta/handshake","ext":7}]', b'{"advice":[1]}']
)
def test_requests_without_valid_bayeux_messages_are_refused(org: LocalOrg, body: bytes) -> None:
    with BayeuxClient(org) as client:
        assert client.http.post(client.path, content=body).status_code == 400


def test_connection_types_other_than_long_polling_are_refused(org: LocalOrg) -> None:
    with BayeuxClient(org) as client:
        client.handshake()
        assert client.connect(connectionType="websocket")[0]["error"] == "400::Invalid connection type websocket"


def test_limits_of_clients_and_deliveries_are_enforced(tmp_path: Path) -> None:
    """Use a separate org, because sessions of other tests would count as clients until they end."""
    topic = "/event/Limited__e"
    with LocalOrg.running(tmp_path / "org") as org:
        org.define("Limited__e", Number__c="int")
        org.knobs(cometd_clients=1)
        org.publish(topic, [{"Number__c": n} for n in range(5)])
        with BayeuxClient(org).opened(topic, -2) as client, BayeuxClient(org) as second:
            denied = second.handshake()
            assert denied["ext"]["sfdc"]["failureReason"] == "403::Organization concurrent user limit exceeded"
            org.knobs(cometd_clients=None, delivery_quota=3)
            assert len(client.poll()) == 3
            assert client.connect()[0]["error"] == "403::Organization total events daily limit exceeded"
            denied = second.handshake()
            assert denied["ext"]["sfdc"]["failureReason"] == "403::Organization total events daily limit exceeded"


def test_request_log_contains_every_bayeux_message(org: LocalOrg, topic: str) -> None:
    org.admin("DELETE", "/requests")
    (number,) = integers(org.publish(topic, [{"Number__c": 1}]))
    with BayeuxClient(org).opened(topic, -2) as client:
        client.poll()
        client.subscribe("/topic/Nowhere")
    handshake, subscribe, connect, refused = org.requests("cometd")
    assert (handshake["method"], handshake["outcome"]) == ("/meta/handshake", "OK")
    assert subscribe["detail"] == {"client_id": client.client_id, "subscription": topic, "replay": {topic: -2}}
    assert (connect["method"], connect["outcome"], connect["detail"]["events"]) == ("/meta/connect", "OK", 1)
    assert refused["outcome"].startswith("400::The channel you requested")
    assert number
    assert client.token not in json.dumps(org.requests())


def test_instance_url_of_a_login_has_the_host_name_of_the_request(org: LocalOrg) -> None:
    """Log in with a host name and with an IP address, because some clients drop cookies of IP addresses."""
    form = {"grant_type": "client_credentials", "client_id": org.client_id, "client_secret": org.client_secret}
    for host in ("localhost", "127.0.0.1"):
        url = f"http://{host}:{org.http_port}"
        answer = httpx.post(f"{url}/services/oauth2/token", data=form, trust_env=False).json()
        assert answer["instance_url"] == url


def test_events_survive_a_killed_process_and_cometd_sessions_do_not(tmp_path: Path) -> None:
    with LocalOrg.running(tmp_path / "org") as org:
        org.define("Kept__e", Number__c="int")
        org.push_topic("Kept", "SELECT Id, Name FROM Account")
        org.generic_channel("/u/kept")
        numbers = integers(org.publish("/event/Kept__e", [{"Number__c": n} for n in range(3)]))
        org.rest("POST", "/sobjects/Account", {"Name": "before"})
        org.publish("/u/kept", [{"payload": "before"}])
        with BayeuxClient(org).opened("/event/Kept__e", -2) as client:
            org.kill()
            org.start()
            assert client.connect()[0]["error"] == UNKNOWN_CLIENT
            client.opened("/event/Kept__e", numbers[0])
            assert replay_ids(client.poll()) == numbers[1:]
            org.rest("POST", "/sobjects/Account", {"Name": "after"})
            org.publish("/u/kept", [{"payload": "after"}])
            client.subscribe("/topic/Kept", -2)
            client.subscribe("/u/kept", -2)
            data = [message["data"] for message in client.poll()]
            assert [one["sobject"]["Name"] for one in data if "sobject" in one] == ["before", "after"]
            assert [one["payload"] for one in data if "sobject" not in one] == ["before", "after"]


def _sessions(org: LocalOrg, client: BayeuxClient) -> list[Any]:
    return [one for one in org.admin("GET", "/org")["cometd_sessions"] if one["client_id"] == client.client_id]


def _open_connects(org: LocalOrg, client: BayeuxClient) -> list[Any]:
    connects = org.requests("cometd", "/meta/connect")
    return [one for one in connects if one["outcome"] == "open" and one["detail"]["client_id"] == client.client_id]
