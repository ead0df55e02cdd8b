"""Landed windows of change events made by hand, each the next link of the chain, and the replica made from them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow_provider_sfstream.localorg.entity import Entity
from airflow_provider_sfstream.localorg.fields import Field
from airflow_provider_sfstream.spark.replica_job import ReplicaMetrics, ReplicaOptions, run
from airflow_provider_sfstream.spark.replica_reader import read_replica
from airflow_provider_sfstream.spark.replica_snapshots import Snapshot, SnapshotReader
from tests.support.landing_files import LandedEvent, land_window

TOPIC = "/data/ChangeEvents"
START = datetime(2026, 1, 10, tzinfo=UTC)
WIDGET = Entity(
    "Widget__c", "a0W", (Field("Name", "Text"), Field("Amount__c", "Double"), Field("Place__c", "Location"))
)
GADGET = Entity("Gadget__c", "a0G", (Field("Name", "Text"),))
SCHEMAS = {entity.name: entity.schema() for entity in (WIDGET, GADGET)}


def change(
    number: int, type_: str, ids: Sequence[str], transaction: str, *, entity: Entity = WIDGET, **values: Any
) -> LandedEvent:
    """Return a change event. The values given are the changed fields of an UPDATE."""
    header = {
        "entityName": entity.name,
        "recordIds": list(ids),
        "changeType": type_,
        "changeOrigin": "",
        "transactionKey": transaction,
        "sequenceNumber": 1,
        "commitTimestamp": int((START + timedelta(seconds=number)).timestamp() * 1000),
        "commitNumber": number,
        "commitUser": "005000000000001AAA",
        "nulledFields": entity.bitmap([name for name, value in values.items() if value is None]),
        "diffFields": [],
        "changedFields": entity.bitmap(list(values)) if type_ == "UPDATE" else [],
    }
    if type_ != "UPDATE":
        header["nulledFields"] = []
    return LandedEvent(number, entity.name, {"ChangeEventHeader": header, **entity.body(values)})


class ChangeLake:
    """A landing and a replica below one folder."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.output = str(folder / "replica")
        self.landing = folder / "landing"
        self._windows: list[dict[str, Any]] = []

    def land(self, *events: LandedEvent, **window: Any) -> str:
        """Land the next window of the chain and return its manifest's URL."""
        number = len(self._windows)
        before = self._windows[-1] if self._windows else {"id": None, "through": None}
        window_id = f"20260110T{number // 60:02d}{number % 60:02d}00Z-window{number}"
        through = events[-1].replay_id if events else before["through"]
        link = {"previous_window_id": before["id"], "after": before["through"], "through": through, **window}
        times = (START, START + timedelta(days=1)) if events else None
        url = land_window(self.landing, window_id, events, SCHEMAS, event_times=times, topic=TOPIC, **link)
        self._windows.append({"id": window_id, "through": through})
        return url

    def run(self, *manifests: str, **options: Any) -> ReplicaMetrics:
        """Run the job."""
        given = {"output": self.output, "buckets": 2, "manifests": manifests, **options}
        return run(self.spark, ReplicaOptions(**given))

    def snapshot(self) -> Snapshot:
        """Return the replica as it is."""
        return SnapshotReader(_LocalFiles(), self.output).current()

    def rows(self, table: str = "Widget__c", **which: Any) -> dict[str, dict[str, Any]]:
        """Return the rows of a table by record id."""
        collected = read_replica(self.spark, self.output, table, **which).collect()
        return {row["Id"]: row.asDict() for row in collected}

    def values(self, column: str, table: str = "Widget__c") -> dict[str, Any]:
        """Return one column of a table by record id."""
        return {record_id: row[column] for record_id, row in self.rows(table).items()}

    def files(self) -> set[Path]:
        """Return all files of the replica, checksums of the file system aside."""
        return {path for path in Path(self.output).rglob("*") if path.is_file() and not path.name.endswith(".crc")}


class _LocalFiles:
    def read_text(self, url: str) -> str:
        return Path(url).read_text()

    def file_names(self, url: str) -> list[str]:
        return [path.name for path in Path(url).iterdir()] if Path(url).is_dir() else []
