"""Metrics from status documents, emitted through Airflow's module. Every documented metric is emitted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk._shared.observability.metrics.base_stats_logger import NoStatsLogger
from airflow.sdk.observability import stats

from airflow_provider_sfstream.monitoring.metrics import emit_metrics

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"
STREAM = "sfstream://salesforce_default/event/Order__e?subscription=airflow"
REPLICA = "s3://lake/replica"


class GaugeRecorder:
    """Stats logger that records the gauges that Airflow sends to StatsD and OpenTelemetry."""

    def __init__(self) -> None:
        self.gauges: dict[str, tuple[float, dict[str, str]]] = {}

    def gauge(self, stat: str, value: float, *_: Any, tags: dict[str, str] | None = None, **__: Any) -> None:
        self.gauges[stat.removeprefix("sfstream.")] = (value, tags or {})


@pytest.fixture
def emitted() -> Iterator[GaugeRecorder]:
    here = GaugeRecorder()
    stats.initialize(factory=lambda: here, export_legacy_names=False)  # type: ignore[arg-type,return-value]
    yield here
    stats.initialize(factory=NoStatsLogger, export_legacy_names=False)


def ago(hours: float) -> str:
    return (datetime.now(UTC) - timedelta(hours=hours)).isoformat()


def documents() -> tuple[tuple[str, str, dict[str, Any]], ...]:
    """Return a document of each section, with ages as of now."""
    return (
        (
            STREAM,
            "drain",
            {
                "retention": 72 * 3600.0,
                "confirmed_at": ago(2),
                "contact_at": ago(1),
                "certainty": {"confirmed_at": "proven"},
                "last_event_time": ago(3),
                "gaps": [{}],
                "window": {"event_count": 5, "payload_bytes": 500},
            },
        ),
        (STREAM, "wait", {"event_count": 2}),
        (STREAM, "event_log.1", {"rows_written": 4, "duplicates": 1, "quarantined": 3, "seconds": 9.5}),
        (REPLICA, "replica", {"quarantined": 1, "seconds": 2.5}),
        (REPLICA, "refresh", {"seconds": 1.5}),
        (REPLICA, "tables", {"tables": {"Account": {"dirty": 7, "flag": "gap"}}}),
        ("salesforce_default", "allocation.DailyApiRequests", {"remaining": 10, "max": 100}),
    )


def test_each_documented_metric_is_emitted_with_its_tags(emitted: GaugeRecorder) -> None:
    for subject, section, document in documents():
        emit_metrics(subject, section, document)
    lines = [line.split("|")[1] for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert emitted.gauges.keys() == {name for line in lines for name in re.findall(r"`(\w+)`", line)}
    stream = {"salesforce_conn_id": "salesforce_default", "topic": "/event/Order__e", "subscription": "airflow"}
    assert emitted.gauges["headroom"][0] == pytest.approx(70 * 3600, abs=60)
    assert emitted.gauges["confirmed_age"] == (pytest.approx(2 * 3600, abs=60), stream)
    assert emitted.gauges["event_log_quarantined"] == (3, stream)
    assert emitted.gauges["dirty_rows"] == (7, {"tables": REPLICA, "table": "Account"})
    assert emitted.gauges["flagged_tables"][0] == 1
    assert emitted.gauges["allocation_remaining"] == (10, {"salesforce_conn_id": "salesforce_default"})


def test_a_check_does_not_emit_the_numbers_of_an_earlier_run_again(emitted: GaugeRecorder) -> None:
    for subject, section, document in documents():
        emit_metrics(subject, section, document, is_new=False)
    state = ("headroom", "confirmed_age", "contact_age", "last_event_age", "gaps", "dirty_rows", "flagged_tables")
    assert emitted.gauges.keys() == set(state)


def test_unknown_values_are_not_emitted(emitted: GaugeRecorder) -> None:
    emit_metrics(STREAM, "drain", {"retention": 1.0, "gaps": []})
    assert emitted.gauges.keys() == {"gaps"}
