"""Settings for small windows: the same tables, with an archive of Java's that the first job leaves to the next."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from airflow_provider_sfstream.operators.spark_submit_event_log import SparkSubmitEventLogOperator
from tests.support.landing_files import LandedEvent, encode, land_window
from tests.support.tasks import context_for

pytestmark = pytest.mark.extended
SCHEMA = {
    "type": "record",
    "name": "Order__e",
    "fields": [{"name": "CreatedDate", "type": "long", "doc": "CreatedDate:DateTime"}, {"name": "N__c", "type": "int"}],
}


def test_the_first_job_leaves_what_the_next_begins_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    events = [LandedEvent(n, "one", encode(SCHEMA, {"CreatedDate": n * 1000, "N__c": n})) for n in range(100)]
    for number in (1, 2):
        manifest = land_window(tmp_path / "landing", f"w{number}", events, {"one": SCHEMA})
        operator = SparkSubmitEventLogOperator(
            task_id="event_log",
            windows=[manifest],
            output_url=str(tmp_path / f"tables{number}"),
            small_window_options=True,
            conf={"spark.ui.showConsoleProgress": "false", "spark.driver.extraJavaOptions": "-Dmine=1"},
        )
        metrics = operator.execute(context_for("event_log"))
        assert metrics is not None
        assert metrics["rows_written"] == 100
        (archive,) = (tmp_path / "home" / "sfstream").iterdir()
        assert archive.suffix == ".jsa"
        assert operator._hook._conf["spark.driver.extraJavaOptions"].endswith("-Dmine=1")
        assert ("SharedArchiveFile" in operator._hook._conf["spark.driver.extraJavaOptions"]) == (number == 2)
    found = [DeltaTable(str(tmp_path / f"tables{n}" / "Order__e")).to_pyarrow_table(columns=["N__c"]) for n in (1, 2)]
    assert [sorted(table["N__c"].to_pylist()) for table in found] == [list(range(100))] * 2


def test_a_worker_that_keeps_nothing_runs_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home").write_text("not a folder")
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "home"))
    operator = SparkSubmitEventLogOperator(
        task_id="event_log", windows=[], output_url=str(tmp_path), small_window_options=True
    )
    options = operator._get_hook()._conf["spark.driver.extraJavaOptions"]
    assert "TieredStopAtLevel=1" in options
    assert "jsa" not in options
