"""Knobs, faults, allocations, endings, the request log and the identity."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from sfstream_localorg.admin.knobs import Knobs
from sfstream_localorg.bus.allocations import Allocation
from sfstream_localorg.identity import load_or_create
from sfstream_localorg.request_log import RequestLog
from sfstream_localorg.streams.endings import CallEnded
from sfstream_localorg.streams.faults import CallFailure, Faults, StreamDrop
from sfstream_localorg.tls import ensure_tls_files


def test_update_changes_all_knobs_or_none() -> None:
    knobs = Knobs()
    knobs.update({"keepalive_seconds": 0.1, "delivery_quota": 5, "clock_offset_seconds": -3})
    assert (knobs.keepalive_seconds, knobs.delivery_quota, knobs.clock_offset_seconds) == (0.1, 5, -3)
    knobs.update(
        {"delivery_quota": None, "cometd_batch_events": None, "cometd_clients": None, "diff_text_characters": None}
    )
    before = knobs.as_dict()
    with pytest.raises(ValueError, match="batch_events"):
        knobs.update({"credit_cap": 1, "batch_events": 0})
    assert knobs.as_dict() == before


@pytest.mark.parametrize(
    "changes",
    [
        {"nonsense": 1},
        {"credit_cap": 1.5},
        {"credit_cap": True},
        {"keepalive_seconds": 0},
        {"retention_seconds": float("inf")},
        {"client_idle_end": "no"},
        {"cometd_batch_events": 0},
        {"cometd_connect_seconds": None},
        {"overflow_changes": None},
        {"diff_text_characters": 0},
        {"http_date": 0},
        {"http_date": None},
        {"view_setup": "no"},
        {"bulk_hard_delete": 1},
        {"standard_volume_retention_seconds": 0},
    ],
)
def test_invalid_values_of_knobs_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Knobs().update(changes)


def test_stream_drops_count_down_and_end() -> None:
    faults = Faults()
    faults.add_drop(StreamDrop(10, CallEnded(), topic="/event/A__e", times=2))
    assert faults.events_until_drop("/event/B__e", 0) is None
    assert faults.events_until_drop("/event/A__e", 7) == 3
    for left in (1, 0):
        assert faults.events_until_drop("/event/A__e", 10) == 0
        assert faults.take_drop("/event/A__e", 10) == CallEnded()
        assert len(faults.drops) == left


def test_each_stream_drop_raises_a_new_exception() -> None:
    faults = Faults()
    faults.add_drop(StreamDrop(1, CallEnded()))
    assert faults.take_drop("/event/A__e", 1) is not faults.take_drop("/event/A__e", 1)


def test_call_failures_apply_to_one_rpc() -> None:
    faults = Faults()
    faults.add_failure(CallFailure("GetTopic", 1, CallEnded(code="topic.api.unavailable")))
    faults.check_call("Subscribe")
    with pytest.raises(CallEnded) as caught:
        faults.check_call("GetTopic")
    assert caught.value.code == "topic.api.unavailable"
    faults.check_call("GetTopic")


def test_silence_applies_to_one_topic_or_all_topics() -> None:
    faults = Faults()
    faults.silent.add("/event/A__e")
    assert (faults.is_silent("/event/A__e"), faults.is_silent("/event/B__e")) == (True, False)
    faults.silent.add("*")
    assert faults.is_silent("/event/B__e")
    faults.clear()
    assert not faults.is_silent("/event/A__e")


@pytest.mark.parametrize("bad", [{"how": "explode"}, {"status": "OK"}, {"status": "NONSENSE"}])
def test_invalid_call_endings_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        CallEnded(**bad)


def test_ending_codes_are_stored_without_their_prefix() -> None:
    ending = CallEnded(code="sfdc.platform.eventbus.grpc.service.auth.error")
    assert ending.outcome == ending.code == "service.auth.error"


def test_allocation_limits_the_use_in_a_time_window() -> None:
    now = 1000.0
    limit: int | None = 10
    allocation = Allocation(60, lambda: limit, lambda: now)
    allocation.use(4)
    assert allocation.left() == 6
    allocation.use(8)
    assert allocation.left() == 0
    now += 60
    assert allocation.left() == 10
    limit = None
    assert allocation.left() is None


def test_the_request_log_is_bounded() -> None:
    log = RequestLog(size=2)
    for number in range(3):
        log.begin("http", f"GET /{number}", number=number).outcome = "200"
    assert [(e["method"], e["outcome"], e["detail"]) for e in log.entries()] == [
        ("GET /1", "200", {"number": 1}),
        ("GET /2", "200", {"number": 2}),
    ]
    log.clear()
    assert log.entries() == []


def test_identity_is_created_once(tmp_path: Path) -> None:
    first = load_or_create(tmp_path)
    assert load_or_create(tmp_path) == first
    assert (first.org_id[:3], len(first.org_id)) == ("00D", 18)
    for secret in (first.client_secret, first.password, first.security_token):
        assert secret not in repr(first)


@pytest.mark.parametrize("content", ["{}", "[1]", '{"nonsense": 1}', "not json"])
def test_invalid_identity_file_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "identity.json").write_text(content)
    with pytest.raises(ValueError):
        load_or_create(tmp_path)


def test_connected_app_from_the_environment_is_not_stored(tmp_path: Path) -> None:
    kept = load_or_create(tmp_path, {})
    given = {"SFSTREAM_LOCALORG_CONSUMER_KEY": "deployed", "SFSTREAM_LOCALORG_CONSUMER_SECRET": "from .env"}
    deployed = load_or_create(tmp_path, given)
    assert (deployed.client_id, deployed.client_secret) == ("deployed", "from .env")
    assert (deployed.org_id, deployed.password) == (kept.org_id, kept.password)
    assert load_or_create(tmp_path, {"SFSTREAM_LOCALORG_CONSUMER_KEY": ""}) == kept


def test_server_certificate_has_the_given_host_name(tmp_path: Path) -> None:
    plain = ensure_tls_files(tmp_path).certificate.read_bytes()
    assert ensure_tls_files(tmp_path, "127.0.0.1").certificate.read_bytes() == plain, "it has that address already"
    named = ensure_tls_files(tmp_path, "salesforce-org").certificate.read_bytes()
    names = x509.load_pem_x509_certificate(named).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert names.value.get_values_for_type(x509.DNSName) == ["localhost", "salesforce-org"]
    assert [str(address) for address in names.value.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1"]
    assert ensure_tls_files(tmp_path, "salesforce-org").certificate.read_bytes() == named
    assert ensure_tls_files(tmp_path).certificate.read_bytes() == named
