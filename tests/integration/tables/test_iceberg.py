"""Delta tables in an Iceberg catalog: readers of both formats see equal rows, whatever earlier mirrors missed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, Field
from pyiceberg.catalog import load_catalog

from airflow_provider_sfstream._airflow import AirflowFailException
from airflow_provider_sfstream.hooks.replay_store import open_status_store
from airflow_provider_sfstream.operators.check_streams import CheckSalesforceStreamsOperator
from airflow_provider_sfstream.tables.iceberg import mirror
from airflow_provider_sfstream.tables.replica.snapshot_store import SnapshotStore
from tests.support.iceberg_lake import IcebergLake
from tests.support.iceberg_rest import rest_catalog
from tests.support.tasks import context_for, error_text, set_connection

TOKEN = "a-secret-token-of-the-catalog"
Make = Callable[..., IcebergLake]


@pytest.fixture
def make_lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")

    def make(**properties: str) -> IcebergLake:
        return IcebergLake(tmp_path, monkeypatch, **properties or sql(tmp_path))

    return make


@pytest.fixture(params=["sql", "rest"])
def properties(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Properties of a catalog of each type."""
    if request.param == "sql":
        yield sql(tmp_path)
        return
    with rest_catalog(load_catalog("behind", **sql(tmp_path)), TOKEN) as uri:
        yield {"type": "rest", "uri": uri, "token": TOKEN}


def sql(folder: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db"}


def outdated_since() -> str | None:
    with closing(open_status_store()) as store:
        [since] = [each.document["outdated_since"] for each in store.statuses() if each.section == "catalog"]
    return since


class Killed(BaseException):
    """End of the process."""


def killed(*_: Any) -> None:
    raise Killed


def test_readers_of_the_catalog_see_the_rows_of_delta_after_random_runs(
    make_lake: Make, properties: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    check_random_runs(make_lake(**properties), 10 if properties["type"] == "sql" else 4, monkeypatch)


@pytest.mark.extended
def test_readers_of_the_catalog_see_the_rows_of_delta_after_50_random_runs(
    make_lake: Make, properties: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    check_random_runs(make_lake(**properties), 50, monkeypatch)


def check_random_runs(lake: IcebergLake, runs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let jobs write tables, some without a mirror or killed while they mirror; compare the readers' rows."""
    chosen = random.Random(1)
    for number in range(runs):
        lake.fields = 1 + number // 6
        run = lake.events if number % 2 else lake.changes
        step = chosen.choice(["", "missed", "_commit", "_expire"])
        if step.startswith("_"):
            with monkeypatch.context() as patch:
                patch.setattr(mirror, step, killed)
                with pytest.raises(Killed):
                    run()
        else:
            run(**{"catalog_conn_id": None} if step else {})
        if number % 6 == 3:
            lake.compact()
            lake.check()
    lake.sync()
    lake.check()
    tables = [lake.table(name) for _, name in lake.catalog.list_tables("lake")]
    assert any(len(table.snapshots()) > 1 for table in tables)
    for table in tables:
        for snapshot in table.snapshots():  # none names a removed file
            assert len(table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()), table


def test_each_kind_of_change_is_mirrored_and_manifests_stay_few(
    make_lake: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "_MANIFESTS", 3)
    lake = make_lake()
    for _ in range(5):
        lake.events()
        assert len(lake.table("order__e").inspect.manifests()) <= 3
    lake.check()
    DeltaTable(f"{lake.output}/Order__e").alter.add_columns([Field("New__c", "string")])
    lake.sync()
    assert "New__c" in lake.table("order__e").schema().column_names
    DeltaTable(f"{lake.output}/Order__e").delete()
    lake.sync()
    lake.check()


def test_a_commit_of_another_program_is_compared_again(make_lake: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = make_lake()
    lake.events()
    lake.events(catalog_conn_id=None)
    commit, others = mirror._commit, iter([lake.sync])

    def commit_second(*arguments: Any) -> None:
        next(others, lambda: None)()
        commit(*arguments)

    monkeypatch.setattr(mirror, "_commit", commit_second)
    lake.sync()
    lake.check()
    assert len(lake.table("order__e").snapshots()) == 2


def test_commits_of_a_killed_replica_job_are_not_visible(make_lake: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = make_lake()
    lake.changes()
    with monkeypatch.context() as patch:
        patch.setattr(SnapshotStore, "publish", killed)
        with pytest.raises(Killed):
            lake.changes()
    lake.sync()
    assert lake.delta_rows("Widget__c") != lake.delta_rows("Widget__c", lake.delta_versions()["Widget__c"])
    lake.check()


def test_snapshots_that_no_reader_needs_are_removed_with_their_metadata(
    make_lake: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = make_lake()
    for _ in range(4):
        lake.changes()
    table = lake.table("widget__c")
    assert len(table.inspect.manifests()) <= 3, "manifests without a live file"
    assert 1 < len(table.snapshots()) < 4, "snapshots of versions that the replica removed"
    monkeypatch.setattr(mirror, "READABLE", timedelta(0))
    lake.changes()
    table = lake.table("widget__c")
    (snapshot,) = table.snapshots()
    named = {
        Path(snapshot.manifest_list).name,
        *(Path(each.manifest_path).name for each in snapshot.manifests(table.io)),
    }
    assert {path.name for path in Path(lake.output).glob("_sfstream/iceberg/Widget__c/metadata/*.avro")} == named
    lake.check()
    assert all(not task.file.lower_bounds for task in table.scan().plan_files()), "values that an erasure would miss"
    assert table.properties["gc.enabled"] == "false", "readers would remove Delta's files"


def test_a_table_that_is_not_a_mirror_is_not_changed(make_lake: Make, caplog: pytest.LogCaptureFixture) -> None:
    lake = make_lake()
    lake.events(catalog_conn_id=None)
    lake.catalog.create_namespace("lake")
    foreign = lake.catalog.create_table("lake.order__e", lake.arrow_schema("Order__e"), f"file://{lake.folder}/other")
    lake.sync()
    assert "lake.order__e is not up to date in the Iceberg catalog: ConfigurationError" in caplog.text
    assert lake.table("order__e").metadata == foreign.metadata
    assert len(lake.table("_quarantine").scan().to_arrow())


def test_a_failed_mirror_does_not_fail_the_task_and_shows_no_secret(
    make_lake: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lake = make_lake()
    set_connection(monkeypatch, "status", conn_type="sqlite", host=f"{lake.folder}/status.db")
    monkeypatch.setenv("AIRFLOW__SFSTREAM__STATUS_CONN_ID", "status")
    with rest_catalog(lake.catalog, "another token") as uri:
        set_connection(monkeypatch, "catalog", conn_type="iceberg", host=uri, extra={"token": TOKEN})
        lake.events()
        since = outdated_since()
        lake.events()
    assert outdated_since() == since is not None
    assert "is not up to date in the Iceberg catalog" in caplog.text
    assert TOKEN not in caplog.text
    assert lake.delta_rows("Order__e")
    check = CheckSalesforceStreamsOperator(task_id="check", streams=[lake.output], max_unclean_age=timedelta(0))
    with pytest.raises(AirflowFailException, match="is not up to date in the Iceberg catalog since") as unhealthy:
        check.execute(context_for("check"))
    assert TOKEN not in str(unhealthy.value)
    set_connection(monkeypatch, "catalog", conn_type="generic", extra=lake.catalog_properties)
    lake.events()
    assert check.execute(context_for("check")) == 1
    assert outdated_since() is None
    with pytest.raises(AirflowFailException) as caught:
        lake.events(catalog_namespace="lake.")
    assert "catalog_namespace='lake.' has an empty level" in error_text(caught.value)
    monkeypatch.delenv("AIRFLOW_CONN_CATALOG")
    with pytest.raises(AirflowFailException) as caught:
        lake.events()
    assert "catalog_conn_id='catalog' does not exist" in error_text(caught.value)
    assert "Nothing was written" in error_text(caught.value)
