"""Handwritten windows of change events in a landing, and the replica that the job builds from them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from airflow_provider_sfstream.tables.delta.delta_table import DeltaTableLog
from airflow_provider_sfstream.tables.delta.table_location import TableLocation
from airflow_provider_sfstream.tables.quarantine import QUARANTINE_TABLE
from airflow_provider_sfstream.tables.replica.config import ReplicaConfig, ReplicaMetrics
from airflow_provider_sfstream.tables.replica.job import run
from airflow_provider_sfstream.tables.replica.reader import read_replica
from airflow_provider_sfstream.tables.replica.refresh_document import (
    FILE_NAME,
    FOLDER,
    IMAGE_ENVELOPE,
    Mode,
    RefreshDocument,
    TableRefresh,
)
from airflow_provider_sfstream.tables.replica.snapshot_store import FOLDER as SNAPSHOTS
from airflow_provider_sfstream.tables.replica.snapshot_store import SnapshotStore
from airflow_provider_sfstream.tables.replica.snapshots import Snapshot
from airflow_provider_sfstream.tables.runner.engine import Engine
from airflow_provider_sfstream.tables.runner.on_spark import SparkEngine
from sfstream_localorg.records.entity import Entity
from sfstream_localorg.records.fields import Field
from tests.support.landing_files import LandedEvent, land_window

TOPIC = "/data/ChangeEvents"
START = datetime(2026, 1, 10, tzinfo=UTC)
WIDGET = Entity(
    "Widget__c", "a0W", (Field("Name", "Text"), Field("Amount__c", "Double"), Field("Place__c", "Location"))
)
GADGET = Entity("Gadget__c", "a0G", (Field("Name", "Text"),))
SCHEMAS = {entity.name: entity.schema() for entity in (WIDGET, GADGET)}


def change(
    number: int,
    type_: str,
    ids: Sequence[str],
    transaction: str,
    *,
    entity: Entity = WIDGET,
    committed: int | None = None,
    **values: Any,
) -> LandedEvent:
    """Return a change event. The names of ``values`` are the changed fields of an UPDATE.

    :param committed: commit time in seconds after ``START``; default ``number``.
    """
    commit = START + timedelta(seconds=number if committed is None else committed)
    header = {
        "entityName": entity.name,
        "recordIds": list(ids),
        "changeType": type_,
        "changeOrigin": "",
        "transactionKey": transaction,
        "sequenceNumber": 1,
        "commitTimestamp": int(commit.timestamp() * 1000),
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

    def __init__(self, spark: Any, folder: Path, engine: Callable[[], Engine] | None = None) -> None:
        self.spark, self.folder = spark, folder
        self.engine = engine or (lambda: SparkEngine(spark))
        self.output = str(folder / "replica")
        self.landing = folder / "landing"
        self._windows: list[dict[str, Any]] = []
        self._refreshes = 0
        self.schemas = dict(SCHEMAS)

    @property
    def landed(self) -> int:
        """Number of landed windows."""
        return len(self._windows)

    def land(self, *events: LandedEvent, **window: Any) -> str:
        """Land the next window of the stream and return the URL of its manifest."""
        number = len(self._windows)
        before = self._windows[-1] if self._windows else {"id": None, "through": None}
        window_id = f"20260110T{number // 60:02d}{number % 60:02d}00Z-window{number}"
        through = events[-1].replay_id if events else before["through"]
        link = {"previous_window_id": before["id"], "after": before["through"], "through": through, **window}
        times = (START, START + timedelta(days=1)) if events else None
        url = land_window(self.landing, window_id, events, self.schemas, event_times=times, topic=TOPIC, **link)
        self._windows.append({"id": window_id, "through": through})
        return url

    def run(self, *manifests: str, **options: Any) -> ReplicaMetrics:
        """Run the job."""
        arguments = {"output_url": self.output, "manifests": manifests, **options}
        return run(self.engine(), ReplicaConfig(**arguments))

    def refresh(self, *lines: dict[str, Any], mode: Mode = "full", columns: Sequence[str] = (), **options: Any) -> None:
        """Run the job with a refresh of these records; ``columns`` as in :meth:`refreshing`."""
        with self.refreshing(*lines, mode=mode, columns=columns) as url:
            self.run(refresh_url=url, **options)

    @contextmanager
    def refreshing(
        self,
        *lines: dict[str, Any],
        mode: Mode,
        columns: Sequence[str] = (),
        computed: Mapping[str, str] | None = None,
        table: str = "Widget__c",
        on_change: bool = False,
    ) -> Iterator[str]:
        """Write a refresh with these records and yield its URL.

        :param lines: fetched records, all values as text; see
            :mod:`~airflow_provider_sfstream.tables.replica.refresh_document`.
        :param columns: fetched columns; default all columns of the records.
        :param computed: types of the fetched columns that change events do not carry.
        :param on_change: list each row that an event changes after this refresh as a row to fetch.
        """
        snapshot, self._refreshes = self.snapshot(), self._refreshes + 1
        stream = snapshot.streams[snapshot.tables[table].stream]
        refresh = TableRefresh(
            mode=mode,
            columns=tuple(columns or sorted({name for line in lines for name in line} - set(IMAGE_ENVELOPE))),
            files=("part.jsonl",),
            fetched=len(lines),
            stream=snapshot.tables[table].stream,
            applied_sequence=stream.applied_sequence,
            next_sequence=stream.next_sequence,
            last_window=stream.last.window_id,
            began_at=START.isoformat(),
            computed=dict(computed or {}) if mode == "computed" else None,
            on_change=on_change,
        )
        folder = Path(self.output) / FOLDER / f"refresh{self._refreshes}"
        folder.mkdir(parents=True)
        (folder / "part.jsonl").write_text("".join(json.dumps({"_found": "true"} | line) + "\n" for line in lines))
        document = RefreshDocument(folder.name, snapshot.number, {table: refresh})
        (folder / FILE_NAME).write_text(document.to_json())
        yield str(folder / FILE_NAME)

    def snapshot(self) -> Snapshot:
        """Return the newest snapshot of the replica."""
        return SnapshotStore(_LocalFiles(), self.output).current()

    def record_deletes(self, deletes: str) -> None:
        """Rewrite the newest snapshot with another choice for deleted records."""
        snapshot = self.snapshot()
        path = Path(self.output) / SNAPSHOTS / f"{snapshot.number:012d}.json"
        document = json.loads(path.read_text())
        for table in document["tables"].values():
            table["deletes"] = deletes
        path.write_text(json.dumps(document))
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)  # Hadoop's checksum of the former text

    def rows(self, table: str = "Widget__c", **which: Any) -> dict[str, dict[str, Any]]:
        """Return the rows of a table by record ID."""
        collected = read_replica(self.spark, self.output, table, **which).collect()
        return {row["Id"]: row.asDict() for row in collected}

    def log(self, table: str = "Widget__c") -> DeltaTableLog:
        """Return the Delta log of a table."""
        return DeltaTableLog(TableLocation(f"{self.output}/{table}"))

    def quarantine(self) -> list[dict[str, Any]]:
        """Return the quarantined events in stream order."""
        rows = DeltaTable(f"{self.output}/{QUARANTINE_TABLE}").to_pyarrow_table().to_pylist()
        return sorted(rows, key=lambda row: (row["window_id"], row["ordinal"]))

    def values(self, column: str, table: str = "Widget__c") -> dict[str, Any]:
        """Return the values of one column of a table by record ID."""
        return {record_id: row[column] for record_id, row in self.rows(table).items()}

    def files(self) -> set[Path]:
        """Return all files of the replica, except for the checksum files of Hadoop's file system."""
        return {path for path in Path(self.output).rglob("*") if path.is_file() and not path.name.endswith(".crc")}


class _LocalFiles:
    def read_text(self, url: str) -> str:
        return Path(url).read_text()

    def file_names(self, url: str) -> list[str]:
        return [path.name for path in Path(url).iterdir()] if Path(url).is_dir() else []
