"""Process of the local org: start, ready line, stored state, and end."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from airflow_provider_sfstream.salesforce import pubsub_api_pb2 as pb
from sfstream_localorg.pubsub import pubsub_api_pb2_grpc as pb_grpc
from tests.support.localorg import LocalOrg, wait_until
from tests.support.subscriber import Subscriber

ORDERS = {"platform_events": [{"name": "Order__e", "fields": [{"name": "Amount__c", "type": "double"}]}]}


def test_ready_line_has_the_ports_urls_and_credentials(org: LocalOrg) -> None:
    assert {
        *("http_port", "https_port", "grpc_port", "grpc_tls_port", "instance_url", "https_instance_url"),
        *("login_url", "org_id", "client_id", "client_secret", "username", "password", "ca_file", "admin_url"),
    } <= set(org.info)
    assert org.org_id.startswith("00D")
    assert len(org.org_id) == 18


def test_identity_topics_and_tokens_outlive_a_clean_restart(tmp_path: Path) -> None:
    with LocalOrg.running(tmp_path / "org", topics=ORDERS) as org:
        before, token = dict(org.info), org.token()
        assert org.stop() == 0
        org.start()
        assert org.info == before
        info = org.stub().GetTopic(pb.TopicRequest(topic_name="/event/Order__e"), metadata=org.metadata(token))
        assert info.can_publish


def test_every_acknowledged_event_outlives_kill_9(tmp_path: Path) -> None:
    with LocalOrg.running(tmp_path / "org", topics=ORDERS) as org:
        org.publish_many("/event/Order__e", 5_000, {"Amount__c": "{n}"})
        before = org.record("/event/Order__e")
        org.kill()
        org.start()
        assert org.record("/event/Order__e") == before
        later = org.publish("/event/Order__e", [{"Amount__c": -1.0}])
        with Subscriber(org).fetch(100, "/event/Order__e") as subscriber:
            read = [event.replay_id for event in subscriber.events(5_001)]
        assert read == [event["replay_id"] for event in before] + later
        assert read == sorted(set(read))


def test_kill_9_during_publishing_leaves_whole_transactions(tmp_path: Path) -> None:
    with LocalOrg.running(tmp_path / "org", topics=ORDERS) as org, ThreadPoolExecutor(1) as pool:
        publishing = pool.submit(org.publish_many, "/event/Order__e", 500_000, {"Amount__c": "{n}"})
        first_page = "/events?topic=/event/Order__e&limit=1"
        wait_until(lambda: org.admin("GET", first_page)["events"], what="a first transaction")
        org.kill()
        assert isinstance(publishing.exception(timeout=60), OSError)
        org.start()
        record = org.record("/event/Order__e")
        assert [event["fields"]["Amount__c"] for event in record] == list(range(len(record)))
        later = org.publish("/event/Order__e", [{"Amount__c": -1.0}])
        with Subscriber(org).fetch(100, "/event/Order__e", after=record[-1]["replay_id"]) as subscriber:
            assert [event.replay_id for event in subscriber.events(1)] == later


def test_stopping_ends_open_streams(tmp_path: Path) -> None:
    with LocalOrg.running(tmp_path / "org", topics=ORDERS) as org:
        subscriber = Subscriber(org).fetch(100, "/event/Order__e")
        wait_until(org.streams)
        assert org.stop() == 0
        assert subscriber.error().code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
        assert (org.data_dir / "localorg.log").read_text() == ""


def test_restarted_org_reuses_its_ports_if_they_are_free(tmp_path: Path) -> None:
    names = ("http_port", "https_port", "grpc_port", "grpc_tls_port")
    with LocalOrg.running(tmp_path / "org") as org:
        before = {name: org.info[name] for name in names}
    with LocalOrg.running(tmp_path / "org") as org:
        assert {name: org.info[name] for name in names} == before
    with (
        socket.create_server(("127.0.0.1", before["http_port"])),
        LocalOrg.running(tmp_path / "org") as org,
    ):
        assert org.info["http_port"] != before["http_port"]
        assert {name: org.info[name] for name in names[1:]} == {name: before[name] for name in names[1:]}


def test_second_process_on_the_same_data_directory_is_refused(org: LocalOrg) -> None:
    command = [sys.executable, "-m", "sfstream_localorg", "--data-dir", str(org.data_dir)]
    second = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert second.returncode == 1
    assert "another local org is running" in second.stderr
    assert second.stdout == ""


def test_a_port_in_use_is_an_error(org: LocalOrg, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sfstream_localorg", "--data-dir", str(tmp_path)]
    for option in ("--grpc-port", "--http-port"):
        taken = org.grpc_port if option == "--grpc-port" else org.http_port
        second = subprocess.run([*command, option, str(taken)], capture_output=True, text=True, timeout=60, check=False)
        assert second.returncode == 1
        assert second.stdout == ""


@pytest.mark.parametrize(
    "content",
    [
        "{",
        '{"platform_events": [{"name": "Order__c"}], "channels": [{"name": "X", "members": []}]}',
        pytest.param("[]", marks=pytest.mark.extended),
        pytest.param('{"a": 1}', marks=pytest.mark.extended),
    ],
)
def test_org_with_an_invalid_topics_file_does_not_start(tmp_path: Path, content: str) -> None:
    path = tmp_path / "topics.json"
    path.write_text(content)
    command = [sys.executable, "-m", "sfstream_localorg", "--data-dir", str(tmp_path / "org")]
    run = subprocess.run([*command, "--topics", str(path)], capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 1
    assert run.stderr.startswith("local org: ")


def test_topics_file_in_yaml(tmp_path: Path) -> None:
    path = tmp_path / "topics.yaml"
    path.write_text(
        "platform_events:\n- name: Order__e\n  fields:\n  - {name: Amount__c, type: double}\n"
        "channels:\n- name: Orders__chn\n  members: [Order__e]\n"
    )
    command = [sys.executable, "-m", "sfstream_localorg", "--data-dir", str(tmp_path / "org")]
    process = subprocess.Popen([*command, "--topics", str(path)], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        admin = json.loads(process.stdout.readline())["admin_url"]
        with urllib.request.urlopen(f"{admin}/topics", timeout=60) as response:
            names = [topic["name"] for topic in json.load(response)["topics"]]
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert {"/event/Order__e", "/event/Orders__chn"} <= set(names)


def test_both_tls_ports_use_a_certificate_of_the_authority_of_the_org(org: LocalOrg, topic: str) -> None:
    authority = Path(org.ca_file).read_bytes()
    for host in ("127.0.0.1", "localhost"):
        target = f"{host}:{org.grpc_tls_port}"
        with grpc.secure_channel(target, grpc.ssl_channel_credentials(authority)) as channel:
            stub = pb_grpc.PubSubStub(channel)
            request = pb.TopicRequest(topic_name=topic)
            assert stub.GetTopic(request, metadata=org.metadata(), timeout=60).topic_name == topic
    context = ssl.create_default_context(cafile=org.ca_file)
    with urllib.request.urlopen(f"{org.https_instance_url}/admin/org", context=context, timeout=60) as response:
        assert json.load(response)["org_id"] == org.org_id


def test_clients_that_do_not_trust_the_authority_cannot_connect(org: LocalOrg) -> None:
    with grpc.secure_channel(f"127.0.0.1:{org.grpc_tls_port}", grpc.ssl_channel_credentials()) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            pb_grpc.PubSubStub(channel).GetTopic(pb.TopicRequest(topic_name="/event/X__e"), timeout=60)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        urllib.request.urlopen(f"{org.https_instance_url}/admin/org", timeout=60)


def test_secrets_are_readable_by_their_owner_only_and_never_logged(org: LocalOrg, topic: str) -> None:
    token = org.token()
    org.stub().GetTopic(pb.TopicRequest(topic_name=topic), metadata=org.metadata(token))
    for name in ("identity.json", "jwt_private.pem", "server.key"):
        assert (org.data_dir / name).stat().st_mode & 0o077 == 0
    seen = json.dumps(org.requests()) + (org.data_dir / "localorg.log").read_text()
    for secret in (token, org.client_secret, org.password, org.security_token):
        assert secret not in seen
