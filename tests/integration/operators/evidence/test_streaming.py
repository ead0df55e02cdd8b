"""Streaming API sessions that receive empty responses although Salesforce has stored events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sfstream._airflow import AirflowFailException
from airflow_provider_sfstream.operators.accept_replay_loss import AcceptReplayLossOperator
from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from airflow_provider_sfstream.replay_stores.table.store import TableReplayStore
from airflow_provider_sfstream.salesforce.streams import Stream
from tests.support.hours import hours_ago
from tests.support.interval_runs import delivered
from tests.support.landed import replay_ids_of
from tests.support.localorg import LocalOrg
from tests.support.tasks import context_for, set_connection

PLATFORM, GENERIC = "/event/Order__e", "/u/notes/Orders"
HOUR = timedelta(hours=1)
Drain = Callable[..., dict[str, Any]]


@pytest.fixture
def org(tmp_path: Path) -> Iterator[LocalOrg]:
    with LocalOrg.running(tmp_path / "org") as local_org:
        local_org.define("Order__e", Number__c="double")
        local_org.generic_channel(GENERIC)
        yield local_org


@pytest.fixture
def store(org: LocalOrg, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TableReplayStore]:
    set_connection(monkeypatch, "salesforce_default", **org.airflow_connection())
    set_connection(monkeypatch, "sfstream_replay_store", conn_type="sqlite", host=str(tmp_path / "replay.db"))
    table = TableReplayStore(f"sqlite:///{tmp_path / 'replay.db'}")
    yield table
    table.close()


@pytest.fixture
def drain(store: TableReplayStore, tmp_path: Path) -> Drain:
    """Return a function that runs a drain; with ``ago``, for the hour that began ``ago`` hours ago."""

    def run(topic: str, run_id: str, *, ago: int = 0, run_type: str = "scheduled", **arguments: Any) -> dict[str, Any]:
        operator = DrainReplayWindowOperator(
            task_id="drain",
            topic=topic,
            api="streaming",
            landing_url=str(tmp_path / "landing"),
            replay_store="table",
            idle_timeout=1.0,
            **arguments,
        )
        begin = hours_ago(ago)
        bounds = {"data_interval_start": begin, "data_interval_end": begin + HOUR} if ago else {}
        return operator.execute(context_for("drain", run_id=run_id, run_type=run_type, **bounds))

    return run


def publish(org: LocalOrg, topic: str, count: int, ago: int = 0) -> None:
    """Publish events, dated in the middle of the hour that began ``ago`` hours ago."""
    time = (hours_ago(ago) + HOUR / 2).isoformat() if ago else None
    field, dated = ("Number__c", "CreatedDate") if topic == PLATFORM else ("payload", "createdDate")
    values = (float(n) if topic == PLATFORM else f"note {n}" for n in range(count))
    org.publish(topic, [{field: value, **({} if time is None else {dated: time})} for value in values])


def landed(results: list[dict[str, Any]]) -> list[bytes]:
    """Return the replay IDs of the windows of these results, each window once."""
    urls = {url: None for result in results for url in _urls(result)}
    return [replay_id for url in urls for replay_id in replay_ids_of(url)]


def _urls(result: dict[str, Any]) -> list[str]:
    return [each["manifest_url"] for each in result["windows"]] if "windows" in result else [result["manifest_url"]]


def published(org: LocalOrg, topic: str) -> list[bytes]:
    return [event["replay_id"] for event in org.record(topic, api="streaming")]


@pytest.mark.parametrize("topic", [PLATFORM, GENERIC])
def test_runs_without_delivered_events_confirm_no_end_and_a_later_run_lands_them(
    org: LocalOrg, store: TableReplayStore, drain: Drain, topic: str
) -> None:
    publish(org, topic, 2)
    results = [drain(topic, "run-1")]
    org.fault("stall_delivery", topic=topic)
    publish(org, topic, 5)
    results += [drain(topic, "run-2"), drain(topic, "run-3")]
    assert [result["event_count"] for result in results] == [2, 0, 0]
    assert landed(results) == published(org, topic)[:2]
    assert {(result["stop_reason"], result["confirmed_at"]) for result in results} == {("idle", None)}
    stream = Stream(org.org_id, "streaming", topic)
    assert store.read(stream).confirmed_at is None
    windows = store.windows_overlapping(stream, hours_ago(1), hours_ago(-2))
    assert {window.covered_until for window in windows} == {None}
    org.admin("DELETE", "/faults")
    results.append(drain(topic, "run-4"))
    assert landed(results) == published(org, topic)
    assert store.gaps(stream) == []


@pytest.mark.parametrize("topic", [PLATFORM, GENERIC])
def test_an_hour_without_delivered_events_is_read_again_when_cleared_or_backfilled(
    org: LocalOrg, store: TableReplayStore, drain: Drain, topic: str
) -> None:
    publish(org, topic, 2, ago=3)
    first = drain(topic, "hour-1", ago=3, mode="interval")
    org.fault("stall_delivery", topic=topic)
    publish(org, topic, 2, ago=2)
    second = drain(topic, "hour-2", ago=2, mode="interval")
    assert (landed([first]), first["confirmed_at"]) == (published(org, topic)[:2], None)
    assert (landed([second]), second["confirmed_at"], second["drained"]) == ([], None, True)
    backfill = drain(topic, "backfill-2", ago=2, run_type="backfill")
    assert (backfill["event_count"], backfill["confirmed_at"]) == (0, None)
    org.admin("DELETE", "/faults")
    calls = len(org.requests())
    backfill = drain(topic, "backfill-2", ago=2, run_type="backfill")
    assert len(org.requests()) > calls, "a repeated backfill reads again after an empty, unconfirmed window"
    assert set(published(org, topic)[2:]) <= set(landed([backfill]))
    assert backfill["confirmed_at"] is None
    calls = len(org.requests())
    cleared = drain(topic, "hour-2", ago=2, mode="interval")
    assert len(org.requests()) > calls, "a cleared live run reads again after an empty, unconfirmed window"
    assert set(published(org, topic)[2:]) <= set(landed([cleared]))


def test_hours_of_a_backfill_deliver_each_event_once(org: LocalOrg, store: TableReplayStore, drain: Drain) -> None:
    hours = (3, 2, 1)
    for ago in hours:
        publish(org, PLATFORM, 30, ago=ago)
    results = [drain(PLATFORM, f"backfill-{ago}", ago=ago, run_type="backfill") for ago in hours]
    assert landed(results) == published(org, PLATFORM)
    for number, result in enumerate(results):
        assert set(published(org, PLATFORM)[number * 30 : number * 30 + 30]) <= set(landed([result]))
    assert delivered(org) == len(published(org, PLATFORM))


def test_an_hour_older_than_the_retention_is_not_complete(org: LocalOrg, store: TableReplayStore, drain: Drain) -> None:
    publish(org, GENERIC, 1)
    for expected in (True, True):
        result = drain(GENERIC, "backfill", ago=40, run_type="backfill", on_expired="partial")
        assert (result["event_count"], result["confirmed_at"], result["drained"]) == (0, None, expected)
        assert result["missing"] == [{"from": hours_ago(40).isoformat(), "to": hours_ago(39).isoformat()}]


@pytest.mark.parametrize("topic", [PLATFORM, GENERIC])
def test_a_position_that_aged_out_is_a_possible_loss(
    org: LocalOrg, store: TableReplayStore, drain: Drain, tmp_path: Path, topic: str
) -> None:
    publish(org, topic, 2)
    drain(topic, "run-1")
    stream = Stream(org.org_id, "streaming", topic)
    before = store.read(stream)
    org.fault("stall_delivery", topic=topic)
    publish(org, topic, 5)
    drain(topic, "run-2")
    org.admin("DELETE", "/faults")
    org.knobs(clock_offset_seconds=80 * 3600)
    with pytest.raises(
        AirflowFailException, match=r"PositionAgedOutError: .*nothing is known to be lost; 80 hours"
    ) as e:
        drain(topic, "run-3")
    notes = "\n".join(e.value.__notes__)
    assert "Events that Salesforce stored and did not deliver may be lost" in notes
    assert "accept_quiet_aging=True" in notes
    assert ("Pub/Sub API" in notes) == (topic == PLATFORM)
    assert store.read(stream).replay_id == before.replay_id
    with pytest.raises(AirflowFailException, match=r"EventsLostError: .*possible loss, nothing is known to be lost"):
        drain(topic, "run-4", on_invalid_replay="earliest", fail_on=["gap"])
    publish(org, topic, 1)
    result = drain(topic, "run-5", accept_quiet_aging=True, fail_on=["gap"])
    assert landed([result]) == published(org, topic)[-1:]


def test_accept_quiet_aging_continues_from_the_earliest_event_with_an_uncertain_gap(
    org: LocalOrg, store: TableReplayStore, drain: Drain, tmp_path: Path
) -> None:
    publish(org, GENERIC, 2)
    first = drain(GENERIC, "run-1")
    org.knobs(clock_offset_seconds=30 * 3600)
    publish(org, GENERIC, 3)
    result = drain(GENERIC, "run-2", accept_quiet_aging=True, fail_on=["gap"])
    assert landed([result]) == published(org, GENERIC)[-3:]
    gap = result["gap"]
    assert (gap["after"], gap["uncertain"]) == (first["through"], True)
    assert gap["resumed_at"] == published(org, GENERIC)[-3].hex()
    assert "nothing is known to be lost; 30 hours without an event" in gap["reason"]
    (recorded,) = store.gaps(Stream(org.org_id, "streaming", GENERIC))
    assert recorded.uncertain
    assert drain(GENERIC, "run-3", accept_quiet_aging=True)["gap"] is None


def test_accept_replay_loss_operator_accepts_an_aged_out_position_once(
    org: LocalOrg, store: TableReplayStore, drain: Drain, tmp_path: Path
) -> None:
    publish(org, GENERIC, 1)
    drain(GENERIC, "run-1")
    org.knobs(clock_offset_seconds=30 * 3600)
    accept = AcceptReplayLossOperator(
        task_id="accept", topic=GENERIC, landing_url=str(tmp_path / "landing"), replay_store="table", reason="a test"
    )
    assert accept.execute(context_for("accept"))["uncertain"] is True
    result = drain(GENERIC, "run-2")
    assert (result["event_count"], result["gap"]["uncertain"]) == (0, True)


def test_an_interval_in_an_uncertain_gap_returns_its_retained_events(
    org: LocalOrg, store: TableReplayStore, drain: Drain
) -> None:
    org.knobs(clock_offset_seconds=-30 * 3600)
    publish(org, GENERIC, 1)
    drain(GENERIC, "run-1")
    org.knobs(clock_offset_seconds=0)
    publish(org, GENERIC, 2, ago=1)
    result = drain(GENERIC, "hour-2", ago=1, mode="interval", accept_quiet_aging=True)
    (gap,) = store.gaps(Stream(org.org_id, "streaming", GENERIC))
    assert (gap.uncertain, gap.since < hours_ago(0) < gap.detected_at) == (True, True)
    assert (result["missing"], result["confirmed_at"]) == ([], None)
    assert set(landed([result])) == set(published(org, GENERIC)[-2:])
