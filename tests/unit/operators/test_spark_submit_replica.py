from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_sfstream._airflow import AirflowSkipException
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.operators.spark_submit_replica import SparkSubmitReplicaOperator
from airflow_provider_sfstream.tables.replica.config import ReplicaConfig
from airflow_provider_sfstream.tables.replica.snapshots import AppliedWindow, Snapshot, StreamState

MANIFEST = "file:///lake/windows/2026/01/10/w/manifest.json"
LANDED = {"manifest_url": MANIFEST, "event_count": 3}
EMPTY = {"manifest_url": MANIFEST, "event_count": 0}


def write_snapshot(output: Path, held: int) -> None:
    place = AppliedWindow("w", MANIFEST, 1, 3)
    state = StreamState("00D", "pubsub", "/data/ChangeEvents", "airflow", place, None, held=(place,) * held)
    folder = output / "_sfstream/replica/snapshots"
    folder.mkdir(parents=True)
    text = Snapshot().next({"s": state}, {}, datetime(2026, 1, 1, tzinfo=UTC)).to_json({})
    (folder / "000000000001.json").write_text(text)


def submitted(monkeypatch: pytest.MonkeyPatch, **arguments: Any) -> ReplicaConfig:
    """Return the config that an operator submits."""
    configs: list[ReplicaConfig] = []
    operator = SparkSubmitReplicaOperator(task_id="replica", **arguments)
    monkeypatch.setattr(operator, "run_job", lambda _, config: configs.append(config))
    operator.execute({})  # type: ignore[typeddict-item]
    return configs[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"deletes": "never"}, "deletes='never' must be one of 'soft', 'hard'"),
        ({"target_file_bytes": 0}, "target_file_bytes=0 must be a whole number above zero"),
        ({"keep_snapshots": True}, "keep_snapshots=True must be"),
        ({"application": "x"}, "This operator sets application and application_args"),
    ],
)
def test_bad_arguments_are_refused_when_the_dag_is_parsed(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        SparkSubmitReplicaOperator(task_id="replica", windows=[], output_url="s3://lake", **arguments)


def test_the_job_gets_all_windows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    empty = {"manifest_url": MANIFEST.replace("/w/", "/empty/"), "event_count": 0}
    config = submitted(
        monkeypatch,
        windows=[LANDED, empty],
        output_url=str(tmp_path),
        deletes="hard",
        history=True,
    )
    manifests = (MANIFEST, empty["manifest_url"])
    assert config == ReplicaConfig(output_url="", manifests=manifests, deletes="hard", history=True)


def test_interval_passes_its_windows_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    interval = {"mode": "interval", "windows": [LANDED], "event_time_from": "x", "event_time_to": "y"}
    assert submitted(monkeypatch, windows=interval, output_url=str(tmp_path)).manifests == (MANIFEST,)


@pytest.mark.parametrize("held", [None, 0])
def test_task_without_events_to_apply_is_skipped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, held: int | None
) -> None:
    if held is not None:
        write_snapshot(tmp_path, held)
    for windows in ([], None, EMPTY):
        with pytest.raises(AirflowSkipException):
            submitted(monkeypatch, windows=windows, output_url=str(tmp_path))


def test_empty_window_is_applied_while_events_are_held(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write_snapshot(tmp_path, held=1)
    assert submitted(monkeypatch, windows=EMPTY, output_url=str(tmp_path)).manifests == (MANIFEST,)


def test_unreadable_replica_state_is_left_to_the_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write_snapshot(tmp_path, held=0)
    (tmp_path / "_sfstream/replica/snapshots/000000000002.json").write_text("broken")
    assert submitted(monkeypatch, windows=EMPTY, output_url=str(tmp_path)).manifests == (MANIFEST,)


def test_invalid_windows_of_a_replica_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for windows in ("not a manifest", {"event_count": 1}, 5):
        with pytest.raises(Exception, match="windows"):
            submitted(monkeypatch, windows=windows, output_url="s3://lake")
