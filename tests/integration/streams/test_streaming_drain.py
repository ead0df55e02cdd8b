"""Drain on the Streaming API with every fault of a local org: drained rows are compared with the org's record."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from airflow_provider_sfstream.exceptions import (
    AccessDeniedError,
    QuotaExceededError,
    ReplayIdLostError,
    RequestRejectedError,
    SalesforceStreamError,
    SchemaError,
    ServiceUnavailableError,
    ThrottledError,
)
from airflow_provider_sfstream.salesforce.streaming.client import StreamingClient
from airflow_provider_sfstream.streams.drain.drain import Drain
from airflow_provider_sfstream.streams.drain.limits import DrainLimits, StopReason
from airflow_provider_sfstream.streams.drain.result import DrainResult
from airflow_provider_sfstream.streams.source import EventBatch, StartFrom
from tests.support.clients import streaming_client
from tests.support.cometd_log import count, sessions
from tests.support.localorg import LocalOrg, reset_org, wait_until

EVENTS = 600
IDLE = 0.4
_numbers = itertools.count()


@pytest.fixture(scope="module")
def running_org(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalOrg]:
    with LocalOrg.running(tmp_path_factory.mktemp("org")) as org:
        yield org


@pytest.fixture
def org(running_org: LocalOrg) -> Iterator[LocalOrg]:
    yield running_org
    reset_org(running_org)


@pytest.fixture
def client(org: LocalOrg) -> Iterator[StreamingClient]:
    with streaming_client(org, connection_timeout=30.0) as client:
        yield client


@pytest.fixture
def topic(org: LocalOrg) -> str:
    """Create a generic channel with 600 events, which the org delivers 100 at a time."""
    org.knobs(cometd_batch_events=100)
    name = str(org.generic_channel(f"/u/drain/{next(_numbers)}")["name"])
    org.publish(name, [{"payload": f"note {number}"} for number in range(EVENTS)])
    return name


class RowSink:
    """Sink that stores the rows and calls ``at[n]`` after n rows."""

    def __init__(self, at: dict[int, Any] | None = None) -> None:
        self.at = at or {}
        self.rows: list[tuple[bytes, str | None, str, bytes]] = []

    def append(self, batch: EventBatch) -> None:
        columns = (batch.replay_ids, batch.event_ids, batch.schema_ids, batch.payloads)
        self.rows += zip(*columns, strict=True)
        for number in [number for number in self.at if len(self.rows) >= number]:
            self.at.pop(number)()


def drain_until_idle(
    client: StreamingClient,
    topic: str,
    after: Any = StartFrom.EARLIEST,
    *,
    sink: RowSink | None = None,
    **arguments: Any,
) -> tuple[DrainResult, list[Any]]:
    """Drain until the stream is idle; return the result and the rows."""
    sink = sink or RowSink()
    limits = DrainLimits(**{"idle_timeout": IDLE, "max_seconds": 600, **arguments.pop("limits", {})})
    result = Drain(client, sink, topic, after, limits, sleep=lambda _: None, random=lambda: 0.0, **arguments).run()
    return result, sink.rows


def recorded(org: LocalOrg, topic: str) -> list[Any]:
    record = org.record(topic, api="streaming")
    return [(event["replay_id"], event["event_id"], event["schema_id"], event["payload"]) for event in record]


FAULTS: dict[str, dict[str, Any]] = {
    "none": {},
    "a poll dropped": {"fault": "cometd_drop", "every": 3},
    "an answer lost on the wire": {"fault": "cometd_lose", "every": 3},
    "an answer lost halfway": {"fault": "cometd_lose", "every": 3, "part": 0.5},
    "an answer cut short": {"fault": "cometd_truncate", "every": 3, "part": 0.7},
    "HTTP 500": {"fault": "cometd_http", "every": 3, "status": 500},
    "HTTP 503 with a page": {"fault": "cometd_http", "every": 3, "status": 503, "text": "<html>maintenance</html>"},
    "HTTP 429": {"fault": "cometd_http", "every": 3, "status": 429},
    "too busy": {
        "fault": "cometd_fail",
        "every": 3,
        "error": "403::Unknown",
        "failure_reason": "503::Server is too busy. Please try your request again later.",
    },
    "unknown client": {"fault": "cometd_fail", "every": 3, "error": "403::Unknown client"},
    "a handshake in three fails": {"fault": "cometd_http", "every": 3, "status": 503, "channel": "/meta/handshake"},
    "the first subscribe fails": {"fault": "cometd_http", "times": 1, "status": 503, "channel": "/meta/subscribe"},
    "events come with the subscribe answer": {"fault": "cometd_events_in_subscribe", "every": 1},
}


@pytest.mark.parametrize("given", FAULTS.values(), ids=FAULTS)
def test_every_event_is_drained_once_and_in_order_despite_faults(
    org: LocalOrg, client: StreamingClient, topic: str, given: dict[str, Any]
) -> None:
    arguments = {"times": None, **given}
    fault = arguments.pop("fault", None)
    if fault is not None:
        org.fault(fault, **arguments)
    result, rows = drain_until_idle(client, topic)
    assert rows == recorded(org, topic)
    assert (result.stop_reason, result.event_count) == (StopReason.IDLE, EVENTS)
    assert result.through == rows[-1][0]
    assert result.gap is None
    if fault not in (None, "cometd_events_in_subscribe") and given.get("channel") != "/meta/handshake":
        assert result.reconnects >= 1


@pytest.mark.parametrize("how", ["handshake", "no_advice", "disconnect"])
def test_a_killed_session_loses_no_event(org: LocalOrg, client: StreamingClient, topic: str, how: str) -> None:
    sink = RowSink({250: lambda: org.fault("cometd_kill_sessions", how=how)})
    result, rows = drain_until_idle(client, topic, sink=sink)
    assert rows == recorded(org, topic)
    assert result.reconnects == 1


def test_a_revoked_token_loses_no_event(org: LocalOrg, client: StreamingClient, topic: str) -> None:
    sink = RowSink({100: org.revoke, 400: org.revoke})
    _, rows = drain_until_idle(client, topic, sink=sink)
    assert rows == recorded(org, topic)


def test_a_restarted_server_loses_no_event(org: LocalOrg, client: StreamingClient, topic: str) -> None:
    def restart() -> None:
        org.kill()
        org.start()

    result, rows = drain_until_idle(client, topic, sink=RowSink({250: restart}))
    assert rows == recorded(org, topic)
    assert result.reconnects >= 1


def test_an_unanswered_request_loses_no_event(org: LocalOrg, topic: str) -> None:
    """The drain stops waiting after the connection timeout and loses no event."""
    org.fault("cometd_black_hole", channel="/meta/subscribe")
    with streaming_client(org, connection_timeout=2.0) as client:
        result, rows = drain_until_idle(client, topic)
    assert rows == recorded(org, topic)
    assert result.reconnects >= 1


def test_payloads_that_a_json_parser_rejects_are_read_byte_for_byte(
    org: LocalOrg, client: StreamingClient, topic: str
) -> None:
    values = ["NaN", "1e400", '"\\ud800"', "[" * 20_000 + "]" * 20_000, "{"]
    org.publish(topic, [{"payload_json": f'{{"replayId": 7, "value": {value}}}'} for value in values[:-1]])
    org.publish(topic, [{"payload": "sound"}])
    _, rows = drain_until_idle(client, topic)
    assert rows == recorded(org, topic)
    assert [row[3].count(value.encode()) for row, value in zip(rows[EVENTS:], values[:-1], strict=False)] == [1] * 4

    org.publish(topic, [{"payload_json": values[-1] + "}, 5"}])  # the end of this payload cannot be determined
    sink = RowSink()
    with pytest.raises(SchemaError, match=topic):
        drain_until_idle(client, topic, sink=sink)
    assert sink.rows == rows


@pytest.mark.parametrize("kind", ["json", "shape"])
def test_an_unreadable_message_raises_an_error_and_is_never_skipped(
    org: LocalOrg, client: StreamingClient, topic: str, kind: str
) -> None:
    org.fault("cometd_broken_message", times=None, kind=kind)
    sink = RowSink()
    with pytest.raises((SchemaError, ServiceUnavailableError)) as caught:
        drain_until_idle(client, topic, sink=sink, max_failures=3)
    assert topic in str(caught.value)
    assert sink.rows == recorded(org, topic)[: len(sink.rows)]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("403::Organization total events daily limit exceeded", QuotaExceededError),
        ("403::Restricted channel", AccessDeniedError),
        ("413::Maximum Request Size Exceeded", RequestRejectedError),
        ("400::The replayId for channel {/x} wasn't found using the provided replay ID map {}", RequestRejectedError),
    ],
)
def test_a_permanent_error_ends_the_drain_without_retry(
    org: LocalOrg, client: StreamingClient, topic: str, error: str, expected: type[SalesforceStreamError]
) -> None:
    org.fault("cometd_fail", times=None, channel="/meta/subscribe", error=error)
    before = count(org, "/meta/subscribe")
    with pytest.raises(expected, match=topic):
        drain_until_idle(client, topic, on_invalid_replay="earliest")
    assert count(org, "/meta/subscribe") == before + 1
    wait_until(lambda: not sessions(org, topic), what="the end of the sessions")


def test_the_concurrent_client_limit_is_retried_with_longer_pauses(
    org: LocalOrg, client: StreamingClient, topic: str
) -> None:
    pauses: list[float] = []
    org.fault(
        "cometd_fail", times=2, channel="/meta/handshake", error="403::Organization concurrent user limit exceeded"
    )
    Drain(client, RowSink(), topic, StartFrom.EARLIEST, DrainLimits(idle_timeout=IDLE), sleep=pauses.append).run()
    assert len(pauses) == 2
    assert min(pauses) >= 2.5, "the pause is longer than after other faults"
    org.fault(
        "cometd_fail", times=None, channel="/meta/handshake", error="403::Organization concurrent user limit exceeded"
    )
    with pytest.raises(ServiceUnavailableError) as caught:
        drain_until_idle(client, topic, max_failures=2)
    assert isinstance(caught.value.__cause__, ThrottledError)


def test_max_events_is_exact_and_the_next_streaming_window_continues_after_it(
    org: LocalOrg, client: StreamingClient, topic: str
) -> None:
    rows: list[Any] = []
    after: Any = StartFrom.EARLIEST
    for _ in range(4):
        result, more = drain_until_idle(client, topic, after, limits={"max_events": 137})
        assert result.stop_reason is StopReason.MAX_EVENTS
        after, rows = result.through, rows + more
    result, more = drain_until_idle(client, topic, after)
    assert rows + more == recorded(org, topic)
    assert result.stop_reason is StopReason.IDLE
    result, more = drain_until_idle(client, topic, result.through)
    assert (result.stop_reason, result.through, more) == (StopReason.IDLE, None, [])


def test_max_seconds_ends_a_drain_of_a_quiet_topic(org: LocalOrg, client: StreamingClient, topic: str) -> None:
    ahead = [0.0]
    # After the last event, move the clock to one second before max_seconds.
    sink = RowSink({EVENTS: lambda: ahead.__setitem__(0, 24.0)})
    limits = {"max_seconds": 25, "idle_timeout": 300}
    result, _ = drain_until_idle(client, topic, sink=sink, limits=limits, clock=lambda: time.monotonic() + ahead[0])
    assert result.stop_reason is StopReason.MAX_SECONDS
    assert result.event_count == EVENTS


def test_a_lost_replay_id_applies_on_invalid_replay(org: LocalOrg, client: StreamingClient, topic: str) -> None:
    record = recorded(org, topic)
    position = record[99][0]
    org.fault("expire_before", topic=topic, replay_id=record[200][0].hex())
    sink = RowSink()
    with pytest.raises(ReplayIdLostError, match=f'{position.hex()}.*on_invalid_replay="earliest"'):
        drain_until_idle(client, topic, position, sink=sink)
    assert sink.rows == []
    result, rows = drain_until_idle(client, topic, position, on_invalid_replay="earliest")
    assert result.gap is not None
    assert (result.gap.after, result.gap.resumed_at) == (position, rows[0][0])
    assert rows == record[-len(rows) :]
    assert len(rows) >= EVENTS - 201


class TestLatest:
    def test_starts_with_the_first_new_event_and_skips_none_after_a_fault(
        self, org: LocalOrg, client: StreamingClient, topic: str
    ) -> None:
        before = len(recorded(org, topic))
        began = threading.Event()

        def publish() -> None:
            wait_until(lambda: sessions(org, topic), what="the subscription")
            org.publish(topic, [{"payload": "first"}])
            began.wait(60)
            org.publish(topic, [{"payload": f"later {number}"} for number in range(50)])

        def fault() -> None:
            org.fault("cometd_lose", times=1)
            began.set()

        publisher = threading.Thread(target=publish)
        publisher.start()
        limits = {"max_events": 51, "idle_timeout": 20}
        result, rows = drain_until_idle(client, topic, StartFrom.LATEST, sink=RowSink({1: fault}), limits=limits)
        publisher.join(60)
        assert rows == recorded(org, topic)[before:]
        assert len(rows) == 51
        assert result.pinned == rows[0][0]
        assert result.reconnects == 1

    def test_the_error_without_an_event_suggests_another_start(
        self, org: LocalOrg, client: StreamingClient, topic: str
    ) -> None:
        with pytest.raises(ServiceUnavailableError, match=r"start from 'earliest' or a replay ID"):
            drain_until_idle(client, topic, StartFrom.LATEST, limits={"max_seconds": 1.0})


def test_a_filtered_topic_delivers_only_matching_events(org: LocalOrg, client: StreamingClient) -> None:
    channel = org.push_topic("Filtered", "SELECT Id, Name, Industry FROM Account", NotifyForFields="All")["name"]
    for number in range(20):
        industry = ("Banking", "Energy")[number % 2]
        org.rest("POST", "/sobjects/Account", {"Name": f"filtered {number}", "Industry": industry})
    topic = f"{channel}?Industry='Energy'"
    energy = [row for row in recorded(org, channel) if b"Energy" in row[3]]
    result, rows = drain_until_idle(client, topic, limits={"max_events": 4})
    assert rows == energy[:4]
    result, rows = drain_until_idle(client, topic, result.through)
    assert rows == energy[4:]
    assert {row[2] for row in rows} == {channel}
