"""Landed windows read without Spark, as in a notebook.

``tests/support/event_log.py`` compares the tables with those of the Spark job, after the first job of each test there.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pandas
import pytest

from airflow_provider_sfstream.exceptions import ConfigurationError, ManifestError
from airflow_provider_sfstream.operators.drain_replay_window import DrainReplayWindowOperator
from airflow_provider_sfstream.windows import manifest_urls, read_windows
from tests.support.shared_org import SharedOrg, org, shared_org
from tests.support.tasks import context_for, set_connection

__all__ = ["org", "shared_org"]

DAY = date(2026, 11, 20)


@pytest.fixture
def drain(org: SharedOrg, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    set_connection(monkeypatch, "salesforce_default", **org.airflow_connection())
    set_connection(monkeypatch, "sfstream_replay_store", conn_type="sqlite", host=str(tmp_path / "replay.db"))
    org.knobs(keepalive_seconds=0.2)
    runs = iter(range(1, 24))

    def run() -> dict[str, Any]:
        operator = DrainReplayWindowOperator(
            task_id="drain", topic=org.topic, landing_url=str(tmp_path / "lake"), replay_store="table"
        )
        number = next(runs)
        return operator.execute(context_for("drain", run_id=f"run-{number}", hour=number))

    return run


def test_result_of_a_drain_is_read_as_a_data_frame(org: SharedOrg, drain: Any) -> None:
    org.publish(org.topic, [{"Number__c": float(number)} for number in range(30)])
    tables = read_windows(drain())
    name = org.topic.removeprefix("/event/")
    assert list(tables) == [name]
    frame = tables[name].to_pandas(types_mapper=pandas.ArrowDtype)
    assert frame["Number__c"].tolist() == [float(number) for number in range(30)]
    assert [bytes(each) for each in frame["_replay_id"]] == [event["replay_id"] for event in org.record(org.topic)]
    assert str(frame["_event_time"].dtype) == "timestamp[us, tz=UTC][pyarrow]"


def test_manifest_urls_selects_windows_by_day(org: SharedOrg, drain: Any, tmp_path: Path) -> None:
    results = []
    for count in (3, 0, 4):
        org.publish(org.topic, [{"Number__c": float(number)} for number in range(count)] or [{}])
        results.append(drain())
    urls = manifest_urls(str(tmp_path / "lake"), org.topic, first_day=DAY, last_day=DAY)
    assert sorted(urls) == sorted(result["manifest_url"] for result in results)
    assert manifest_urls(str(tmp_path / "lake"), org.topic, first_day=date(2026, 11, 21)) == []
    assert manifest_urls(str(tmp_path / "lake"), org.topic, first_day=DAY, subscription="other") == []
    (table,) = read_windows(urls).values()
    assert len(table) == 8
    (part,) = read_windows(
        urls, event_time_from=results[2]["first_event_time"], event_time_to=datetime(2100, 1, 1, tzinfo=UTC).isoformat()
    ).values()
    assert len(part) == 4


def test_changed_or_missing_files_are_refused(org: SharedOrg, drain: Any, tmp_path: Path) -> None:
    org.publish(org.topic, [{"Number__c": 1.0}])
    result = drain()
    (part,) = tmp_path.rglob("*.parquet")
    part.write_bytes(part.read_bytes() + b" ")
    with pytest.raises(ConfigurationError, match="SHA-256"):
        read_windows(result)
    with pytest.raises(ManifestError, match="no manifest"):
        read_windows(str(result["manifest_url"]).replace("manifest.json", "other.json"))
    with pytest.raises(ConfigurationError, match="not a manifest URL"):
        read_windows(str(tmp_path))
