"""Table operators that run in the worker's process: without pyspark, in bounded memory, consistent after kill -9.

The contract suite in ``tests/integration/tables`` compares the table contents of both engines.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_provider_sfstream._airflow import AirflowFailException, AirflowSkipException
from airflow_provider_sfstream.actions.object_storage_files import ObjectStorageFiles
from airflow_provider_sfstream.operators.event_log import EventLogOperator
from airflow_provider_sfstream.operators.replica import ReplicaOperator
from airflow_provider_sfstream.tables.replica.snapshot_store import SnapshotStore
from tests.support.change_lake import SCHEMAS, START, TOPIC, change
from tests.support.datasets import SentDataset
from tests.support.landing_files import LandedEvent, encode, land_window
from tests.support.tasks import context_for, error_text

ORDER = {
    "type": "record",
    "name": "Order__e",
    "fields": [{"name": "CreatedDate", "type": "long"}, {"name": "Note__c", "type": ["null", "string"]}],
}
RUN = """
import json, sys
from datetime import UTC, datetime
from types import SimpleNamespace
sys.modules["pyspark"] = sys.modules["py4j"] = None
from airflow_provider_sfstream.operators.{module} import {operator}
import deltalake, numpy, pyarrow.parquet, pyarrow.compute, airflow.sdk.io, fastavro, pyruhvro
task = dict(dag_id="orders", task_id="task", run_id="run", map_index=-1, try_number=1)
run = dict(run_id="run", run_type="scheduled", run_after=datetime(2026, 1, 20, tzinfo=UTC), data_interval_start=None,
           data_interval_end=None, partition_date=None)
context = dict(ti=SimpleNamespace(**task), dag_run=SimpleNamespace(**run))
operator = {operator}(task_id="task", **json.loads(sys.argv[1]))
def most():  # ru_maxrss has the parent's too
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(status["VmHWM"].split()[0])
idle = most()
print("begun", flush=True)
metrics = operator.execute(context)
slow = "airflow.providers.apache.spark.operators", "grpc.", "pandas."
loaded = sorted(name for name in sys.modules if name.startswith(slow))
frame_rows = len(pyarrow.table({{"column": [1, 2]}}).to_pandas())
print(json.dumps(dict(metrics=metrics, loaded=loaded, frame_rows=frame_rows, mebibytes=(most() - idle) // 1024)))
"""


def order(number: int, payload: bytes | None = None) -> LandedEvent:
    created = int(START.timestamp() * 1000) + number
    return LandedEvent(number, "one", payload or encode(ORDER, {"CreatedDate": created, "Note__c": str(number)}))


def land(folder: Path, events: list[LandedEvent], window_id: str = "20260110T000000Z-a") -> str:
    return land_window(folder / "landing", window_id, events, {"one": ORDER}, event_times=(START, START))


def land_changes(folder: Path) -> str:
    events = [change(1, "CREATE", ["a0W000000000001AAA"], "t1", Name="one"), LandedEvent(2, "Widget__c", b"\xff")]
    return land_window(folder / "landing", "20260110T000000Z-c", events, SCHEMAS, topic=TOPIC)


def start_operator(operator: str, **arguments: Any) -> subprocess.Popen[str]:
    """Start an operator in a separate process without pyspark."""
    module = {"EventLogOperator": "event_log", "ReplicaOperator": "replica"}[operator]
    program = RUN.format(module=module, operator=operator)
    command = [sys.executable, "-c", program, json.dumps(arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def run_operator(operator: str, **arguments: Any) -> dict[str, Any]:
    """Run an operator in a separate process; return the result that it prints."""
    output, _ = start_operator(operator, **arguments).communicate(timeout=300)
    outcome: dict[str, Any] = json.loads(output.splitlines()[-1])
    return outcome


def rows(folder: Path, table: str = "Order__e") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DeltaTable(folder / "tables" / table).to_pyarrow_table().to_pylist()
    return found


def test_worker_operators_import_neither_pyspark_nor_pandas_and_data_frames_work_afterwards(tmp_path: Path) -> None:
    output = str(tmp_path / "tables")
    manifest = land(tmp_path, [*map(order, range(20)), order(20, b"\xff")])
    outcome = run_operator("EventLogOperator", windows=manifest, output_url=output)
    assert (outcome["loaded"], outcome["frame_rows"]) == ([], 2)
    assert outcome["metrics"]["tables"] == {"Order__e": 20}
    assert outcome["metrics"]["quarantined"] == 1
    assert sorted(row["Note__c"] for row in rows(tmp_path)) == sorted(map(str, range(20)))
    outcome = run_operator("ReplicaOperator", windows=land_changes(tmp_path), output_url=output)
    assert (outcome["loaded"], outcome["frame_rows"]) == ([], 2)
    assert outcome["metrics"]["quarantined"] == 1
    (row,) = rows(tmp_path, "Widget__c")
    assert row["Name"] == "one"
    assert outcome["metrics"]["tables"]["Widget__c"]["rows"] == 1


def test_the_event_log_operator_reports_metrics_lineage_and_commit_details(tmp_path: Path) -> None:
    operator = EventLogOperator(
        task_id="event_log", windows=land(tmp_path, [*map(order, range(3))]), output_url=str(tmp_path / "tables")
    )
    metrics = operator.execute(context_for("event_log"))
    stored = json.loads((tmp_path / "tables/_sfstream/metrics/orders.event_log.json").read_text())
    assert stored == {**metrics, "job": "orders.event_log run run-1 try 1"}
    assert metrics["rows_written"] == 3
    (table,) = operator.lineage(has_ended=True).outputs
    assert SentDataset(table).rows == 3
    (commit,) = DeltaTable(tmp_path / "tables/Order__e").history()
    assert "orders" in commit["sfstream"]["job"]
    assert operator.execute(context_for("event_log"))["rows_written"] == 3
    assert len(rows(tmp_path)) == 3
    with pytest.raises(AirflowSkipException):
        EventLogOperator(task_id="event_log", windows=[], output_url=str(tmp_path)).execute(context_for("event_log"))


@pytest.mark.parametrize("operator", [EventLogOperator, ReplicaOperator])
def test_windows_above_max_events_fail_and_name_the_spark_operator(tmp_path: Path, operator: Any) -> None:
    manifest = land_changes(tmp_path)
    task = operator(task_id="small", windows=manifest, output_url=str(tmp_path / "tables"), max_events=1)
    with pytest.raises(AirflowFailException, match="max_events=1") as caught:
        task.execute(context_for("small"))
    message = "\n".join([str(caught.value), *caught.value.__notes__])
    assert f"SparkSubmit{operator.__name__}" in message
    assert "one window is too large: increase max_events" in message
    assert "no event is lost" in message
    assert not (tmp_path / "tables").exists()


@pytest.mark.parametrize("character", ["#", "?", "%"])
@pytest.mark.parametrize("operator", [EventLogOperator, ReplicaOperator])
def test_an_output_url_invalid_for_delta_tables_is_refused_before_any_write(
    tmp_path: Path, operator: Any, character: str
) -> None:
    output = tmp_path / f"a{character}b"
    task = operator(task_id="task", windows=land_changes(tmp_path), output_url=str(output))
    with pytest.raises(AirflowFailException) as caught:
        task.execute(context_for("task"))
    assert f"output_url contains the character {character!r}" in error_text(caught.value)
    assert not output.exists()


@pytest.mark.parametrize(("environment", "used"), [(None, "system"), ("mimalloc", "mimalloc")])
def test_jobs_use_the_system_memory_pool_unless_the_environment_sets_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: str | None, used: str
) -> None:
    pools = []

    class Job(EventLogOperator):
        def run_on(self, engine: Any, config: Any) -> Any:
            pools.append(pa.default_memory_pool().backend_name)
            return super().run_on(engine, config)

    monkeypatch.delenv("ARROW_DEFAULT_MEMORY_POOL", raising=False)
    if environment:
        monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", environment)
    before = pa.default_memory_pool()
    pa.set_memory_pool(pa.mimalloc_memory_pool())
    try:
        Job(task_id="job", windows=land_changes(tmp_path), output_url=str(tmp_path / "tables")).execute(
            context_for("job")
        )
        pools.append(pa.default_memory_pool().backend_name)
    finally:
        pa.set_memory_pool(before)
    assert pools == [used, "mimalloc"]


@pytest.mark.extended
def test_memory_does_not_grow_with_the_window(tmp_path: Path) -> None:
    note = encode(ORDER, {"CreatedDate": int(START.timestamp() * 1000), "Note__c": "note " * 200})
    peaks = {}
    for count in (20_000, 300_000):
        folder = tmp_path / str(count)
        manifest = land(folder, [order(number, note) for number in range(count)])
        outcome = run_operator("EventLogOperator", windows=manifest, output_url=str(folder / "tables"))
        assert outcome["metrics"]["rows_written"] == count
        peaks[count] = outcome["mebibytes"]
    assert peaks[300_000] < min(512, peaks[20_000] + 200), peaks


def test_kill_9_leaves_an_event_log_at_its_old_or_new_version(tmp_path: Path) -> None:
    first = land(tmp_path, [*map(order, range(10))])
    run_operator("EventLogOperator", windows=first, output_url=str(tmp_path / "tables"))
    manifest = land(tmp_path, [*map(order, range(10, 60_010))], "20260110T010000Z-b")
    lengths = []
    for part in range(4):
        process = start_operator("EventLogOperator", windows=manifest, output_url=str(tmp_path / "tables"))
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        time.sleep(0.12 * part)  # each attempt kills the job at another, unknown step
        process.send_signal(signal.SIGKILL)
        process.communicate()
        lengths.append(len(rows(tmp_path)))
        assert lengths[-1] in (10, 60_010)
    assert lengths[0] == 10, "the first process is killed before its commit"
    outcome = run_operator("EventLogOperator", windows=[first, manifest], output_url=str(tmp_path / "tables"))
    assert outcome["metrics"]["rows_written"] == 60_010
    assert sorted(int(row["Note__c"]) for row in rows(tmp_path)) == list(range(60_010))


@pytest.mark.extended
def test_kill_9_leaves_a_replica_at_its_old_or_new_snapshot(tmp_path: Path) -> None:
    ids = [f"a0W{number:012d}AAA" for number in range(4_000)]
    created = [change(number, "CREATE", [id_], f"t{number}", Name="new") for number, id_ in enumerate(ids, 1)]
    manifest = land_window(tmp_path / "landing", "20260110T000000Z-c", created, SCHEMAS, topic=TOPIC)
    output = str(tmp_path / "tables")
    for part in range(3):
        process = start_operator("ReplicaOperator", windows=manifest, output_url=output)
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        time.sleep(0.12 * part)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        snapshot = SnapshotStore(ObjectStorageFiles(None), output).current()
        if snapshot.number:
            version = snapshot.tables["Widget__c"].version
            assert DeltaTable(f"{output}/Widget__c", version=version).to_pyarrow_table().num_rows == len(ids)
    run_operator("ReplicaOperator", windows=manifest, output_url=output)
    assert sorted(row["Id"] for row in rows(tmp_path, "Widget__c")) == ids
