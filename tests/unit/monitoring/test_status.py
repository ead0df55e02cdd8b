"""Status documents of drains: their facts, their bounded size, and the retention headroom."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_provider_sfstream.landing.manifest import Manifest, WindowFile
from airflow_provider_sfstream.monitoring.headroom import Headroom
from airflow_provider_sfstream.monitoring.status import (
    GAPS,
    HOURS,
    WINDOWS,
    certainty_of,
    drain_document,
    event_log_document,
    windows_document,
)
from airflow_provider_sfstream.salesforce.streams import Gap, ReplayWindow, RunIdentity, Stream

NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)
STREAM = Stream("00D000000000001EAA", "pubsub", "/event/Order__e")
HOUR = timedelta(hours=1)


def manifest(number: int, **window: Any) -> Manifest:
    """Return the manifest of the window that a run drained ``number`` hours before now."""
    at = NOW - number * HOUR
    run = RunIdentity("orders", "drain", f"run-{number}", at)
    facts: dict[str, Any] = {"event_count": 0, "covered_until": at, "contact_at": at, **window}
    replay_window = ReplayWindow(
        window_id=f"w{number:05d}",
        kind=facts.pop("kind", "live"),
        after=b"\x01",
        through=b"\x02",
        first_event_time=None,
        last_event_time=facts.pop("last_event_time", None),
        manifest_url=f"s3://lake/{number}/manifest.json",
        run=run,
        **{**facts, "event_count": 0},
    )
    return Manifest(STREAM, replay_window, 0, (), {}, 10, "caught_up", at, at, "test")


def after(*manifests: Manifest, before: dict[str, Any] | None = None, at: datetime = NOW) -> dict[str, Any]:
    """Return the section ``drain`` after one drain for each manifest."""
    for each in manifests:
        before = drain_document(before, STREAM, [each], run=each.window.run, at=at)
    assert before is not None
    return before


def test_status_has_the_facts_of_the_last_live_window() -> None:
    document = after(manifest(2, last_event_time=NOW - 2 * HOUR), manifest(1), manifest(9, kind="backfill"))
    assert document["position"] == "02"
    assert document["confirmed_at"] == document["contact_at"] == (NOW - HOUR).isoformat()
    assert document["last_event_time"] == (NOW - 2 * HOUR).isoformat(), "an empty window stored no event"
    assert document["window"]["window_id"] == "w00001"
    assert document["task"]["run_id"] == "run-9"


def test_unconfirmed_drain_preserves_the_last_confirmation() -> None:
    document = after(manifest(5), manifest(1, covered_until=None))
    assert (document["confirmed_at"], document["contact_at"]) == (
        (NOW - 5 * HOUR).isoformat(),
        (NOW - HOUR).isoformat(),
    )
    assert document["certainty"]["confirmed_at"] == "proven", "the earlier moment remains proven"


def test_contact_is_estimated_without_a_measured_server_time() -> None:
    document = after(manifest(5), manifest(1, covered_until=None, contact_at=None))
    assert document["contact_at"] == (NOW - HOUR).isoformat(), "a finished drain received a response"
    assert certainty_of(document)["contact_at"] == "estimated"
    assert certainty_of(after(manifest(1), before=document))["contact_at"] == "proven"


def backfilled(number: int, after_id: bytes | None, through: bytes, events: int) -> Manifest:
    """Return the manifest of a backfill window that was drained ``number`` hours before now."""
    one = manifest(number, kind="backfill", last_event_time=NOW - (number + 1) * HOUR)
    return with_events(one, events, after=after_id, through=through)


def with_events(one: Manifest, events: int, **window: Any) -> Manifest:
    part = WindowFile("part-00000.parquet", events, 100, "0" * 64)
    return replace(one, files=(part,), window=replace(one.window, event_count=events, **window))


def test_status_of_a_stream_with_backfill_windows_only_counts_each_event_once() -> None:
    """Each run of a backfill may read the same events from the earliest retained one on."""
    document = after(*(backfilled(1, None, b"\x04", 4) for _ in range(4)))
    assert sum(document["hours"].values()) == 4
    assert document["contact_at"] == (NOW - HOUR).isoformat()
    assert document["last_event_time"] == (NOW - 2 * HOUR).isoformat()
    assert "position" not in document
    longer = after(backfilled(1, None, b"\x06", 6), backfilled(5, b"\x04", b"\x06", 2), before=document)
    assert sum(longer["hours"].values()) == 6
    assert longer["last_event_time"] == (NOW - 2 * HOUR).isoformat(), "the hours are backfilled in any order"


def test_backfill_windows_do_not_count_beside_live_windows() -> None:
    live = with_events(manifest(1), 5)
    document = after(backfilled(2, None, b"\x04", 4), live, backfilled(0, None, b"\x04", 4))
    assert sum(document["hours"].values()) == 5
    assert document["contact_at"] == (NOW - HOUR).isoformat(), "a backfill shows nothing about the live windows"
    assert "last_event_time" not in document


def test_each_fact_has_a_certainty() -> None:
    nothing = after(manifest(1, covered_until=None, contact_at=None))
    assert nothing["certainty"] == certainty_of(nothing)
    assert nothing["certainty"] == {
        "confirmed_at": "unknown",
        "contact_at": "estimated",
        "last_event_time": "unknown",
        "retention": "estimated",
    }
    window = manifest(1, last_event_time=NOW - 2 * HOUR)
    assert after(replace(window, retention=72 * HOUR))["certainty"] == {
        "confirmed_at": "proven",
        "contact_at": "proven",
        "last_event_time": "estimated",
        "retention": "proven",
    }


def test_confirmation_of_an_earlier_version_is_an_estimate_until_a_proven_end() -> None:
    """Earlier versions treated an empty response as the end of the stream, and used the worker's clock."""
    before = {name: value for name, value in after(manifest(5)).items() if name != "certainty"}
    assert certainty_of(before)["confirmed_at"] == "estimated"
    document = after(replace(manifest(1, covered_until=None), stop_reason="max_events"), before=before)
    assert certainty_of(document)["confirmed_at"] == "estimated"
    assert Headroom.from_drain(document, NOW).known is None
    assert Headroom.from_drain(document, NOW).assumed == timedelta(seconds=document["retention"]) - 5 * HOUR
    assert certainty_of(after(manifest(1), before=document))["confirmed_at"] == "proven"


def test_confirmation_of_an_earlier_version_on_the_streaming_api_is_dropped() -> None:
    stream = replace(STREAM, api="streaming")
    window = manifest(1, covered_until=None)
    document = drain_document(after(manifest(5)), stream, [window], run=window.window.run, at=NOW)
    assert "confirmed_at" not in document
    assert document["certainty"]["confirmed_at"] == "unknown"


def test_unknown_certainty_value_is_refused() -> None:
    document = after(manifest(1)) | {"certainty": {"confirmed_at": "sure"}}
    with pytest.raises(ValueError, match="certainty='sure' of confirmed_at must be one of proven, estimated, unknown"):
        certainty_of(document)


def test_a_gap_is_listed_once_with_the_task_that_recorded_it() -> None:
    gap = Gap(b"\x01", None, None, NOW - HOUR, "accepted by somebody")
    lost = replace(manifest(1), window=replace(manifest(1).window, gap=gap))
    gaps = after(lost, lost)["gaps"]
    assert [(each["reason"], each["task"]["run_id"]) for each in gaps] == [("accepted by somebody", "run-1")]


@pytest.mark.parametrize(
    ("after_replay_id", "since", "shown"),
    [(b"\x01", 75, 5), (b"\x01", None, 5), (b"\x01", 2, 2), (None, 75, 75)],
)
def test_a_loss_is_shown_since_the_last_stored_event(
    after_replay_id: bytes | None, since: int | None, shown: int
) -> None:
    """The gap itself begins at a proven time: for the first windows, the retention before the stream existed."""
    began = None if since is None else NOW - since * HOUR
    gap = Gap(after_replay_id, None, began, NOW - HOUR, "accepted by somebody")
    lost = replace(manifest(1), window=replace(manifest(1).window, gap=gap))
    [line] = after(manifest(4, last_event_time=NOW - 5 * HOUR), lost)["gaps"]
    assert line["since"] == (NOW - shown * HOUR).isoformat()


def test_status_documents_are_bounded() -> None:
    """The documents stay bounded after 1,000 drains with a gap each."""
    document, windows = None, None
    for number in range(1000, 0, -1):
        gap = Gap(b"\x01", None, None, NOW - number * HOUR, "x")
        each = replace(manifest(number), window=replace(manifest(number).window, gap=gap))
        document = after(each, before=document, at=NOW - number * HOUR)
        windows = windows_document(windows, [each])
    assert document is not None
    assert windows is not None
    assert (len(document["gaps"]), len(document["hours"])) == (GAPS, HOURS)
    assert [line["window_id"] for line in windows["windows"]] == [f"w{n:05d}" for n in range(WINDOWS, 0, -1)]
    assert json.loads(json.dumps([document, windows])) == [document, windows]


def test_quarantined_rows_are_reported_until_they_are_replayed() -> None:
    def after(before: dict[str, Any] | None, rows: int, run: int, *windows: str, **bounds: Any) -> dict[str, Any]:
        facts = {"quarantined": rows, "windows": windows, "at": f"{run}", "task": {"run_id": f"run-{run}"}}
        return event_log_document(before, facts, **bounds)

    first = after(None, 3, 1, "a", "b")
    assert first["set_aside"] == {"rows": 3, "parts": ["a", "b"], "at": "1", "task": {"run_id": "run-1"}}
    second = after(first, 0, 2, "c")
    assert (second["set_aside"], second["quarantined"]) == (first["set_aside"], 0)
    assert after(second, 0, 3, "a", "b")["set_aside"] is None
    assert after(second, 0, 3, "b")["set_aside"] == {**first["set_aside"], "parts": ["a"]}
    assert after(second, 1, 3, "a", "b")["set_aside"]["rows"] == 1
    more = after(second, 2, 3, "d")["set_aside"]
    assert (more["rows"], more["parts"], more["at"]) == (5, ["a", "b", "d"], "3")
    assert after({"set_aside": more}, 0, 4, "d")["set_aside"]["parts"] == ["a", "b"]


def test_quarantined_rows_of_an_interval_are_reported_until_that_interval_is_processed_again() -> None:
    facts = {"windows": ["a"], "at": "1", "task": {"run_id": "run-1"}}
    first = event_log_document(None, {**facts, "quarantined": 3}, ("10:00", "11:00"))
    for other in (("11:00", "12:00"), None):
        assert event_log_document(first, {**facts, "quarantined": 0}, other)["set_aside"] == first["set_aside"]
    assert event_log_document(first, {**facts, "quarantined": 0}, ("10:00", "11:00"))["set_aside"] is None


def test_a_run_without_readable_metrics_ends_no_quarantine() -> None:
    facts: dict[str, Any] = {"at": "1", "task": {"run_id": "run-1"}}
    first = event_log_document(None, {**facts, "quarantined": 3, "windows": ["a"]})
    assert event_log_document(first, facts)["set_aside"] == first["set_aside"]
    assert event_log_document(None, facts)["set_aside"] is None


@pytest.mark.parametrize(
    ("confirmed", "stored", "known", "assumed"),
    [
        (2, None, 70, None),
        (2, 5, 70, None),
        (5, 2, 67, 70),
        (None, 2, None, 70),
        (None, None, None, None),
        (80, None, -8, None),
        (5, -3, 67, None),  # an event time in the future is no evidence
    ],
)
def test_headroom_separates_known_from_assumed_hours(
    confirmed: float | None, stored: float | None, known: float | None, assumed: float | None
) -> None:
    def ago(hours: float | None) -> str | None:
        return None if hours is None else (NOW - timedelta(hours=hours)).isoformat()

    drain: dict[str, Any] = {"retention": 72 * 3600.0, "confirmed_at": ago(confirmed), "last_event_time": ago(stored)}
    drain["certainty"] = {"confirmed_at": "proven"}
    headroom = Headroom.from_drain(drain, NOW)
    assert (headroom.known, headroom.assumed) == tuple(
        None if hours is None else timedelta(hours=hours) for hours in (known, assumed)
    )


def test_headroom_does_not_exceed_the_last_contact() -> None:
    """A received event was published before Salesforce answered, even if its publisher set a later time."""
    document = after(manifest(2, covered_until=None, last_event_time=NOW - HOUR))
    assert Headroom.from_drain(document, NOW).until == NOW - 2 * HOUR


@pytest.mark.parametrize(
    ("stop_reason", "covered_until", "until", "certainty"),
    [
        ("idle", None, 1, "estimated"),
        ("caught_up", None, 1, "estimated"),
        ("max_events", None, None, "unknown"),
        ("idle", NOW - 6 * HOUR, 1, "estimated"),  # of an earlier drain
        ("idle", NOW - HOUR, 1, "proven"),
    ],
)
def test_an_idle_drain_estimates_the_end_and_replaces_no_proof(
    stop_reason: str, covered_until: datetime | None, until: int | None, certainty: str
) -> None:
    """Salesforce may be silent while it still seeks, so an idle end is an estimate."""
    window = replace(manifest(1, covered_until=covered_until), stop_reason=stop_reason, retention=72 * HOUR)
    headroom = Headroom.from_drain(after(window), NOW)
    assert headroom.until == (None if until is None else NOW - until * HOUR)
    assert headroom.certainty == certainty


def test_certainty_of_headroom_is_the_lowest_of_its_facts() -> None:
    found = {
        "proven": after(replace(manifest(1), retention=72 * HOUR)),
        "estimated": after(manifest(1)),  # of a custom platform event, whose retention is not recorded
        "unknown": after(replace(manifest(1, covered_until=None), stop_reason="max_events")),
    }
    assert {each: Headroom.from_drain(document, NOW).certainty for each, document in found.items()} == {
        each: each for each in found
    }
