"""Event log and replica below one folder, mirrored in an Iceberg catalog, and the readers of both formats."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table

from airflow_provider_sfstream._airflow import AirflowSkipException
from airflow_provider_sfstream.actions.object_storage_files import ObjectStorageFiles
from airflow_provider_sfstream.actions.tables.iceberg_catalog import mirror_tables
from airflow_provider_sfstream.actions.tables.replica import read_snapshot
from airflow_provider_sfstream.operators.event_log import EventLogOperator
from airflow_provider_sfstream.operators.replica import ReplicaOperator
from airflow_provider_sfstream.tables.maintenance.config import MaintenanceConfig
from airflow_provider_sfstream.tables.maintenance.job import run as maintain
from airflow_provider_sfstream.tables.runner.embedded import EmbeddedEngine
from tests.support.change_lake import ChangeLake, change
from tests.support.landing_files import LandedEvent, encode, land_window
from tests.support.tasks import context_for, set_connection

DAY = 86_400_000
START = 20_463 * DAY


def order_schema(count: int) -> dict[str, Any]:
    """Return the schema of an event with some texts, and as many in a compound field."""
    texts = [{"name": f"Field{number}__c", "type": ["null", "string"]} for number in range(count)]
    compound = {"type": "record", "name": "Compound", "fields": texts}
    created = {"name": "CreatedDate", "type": "long", "doc": "CreatedDate:DateTime"}
    more = [
        {"name": "Place__c", "type": ["null", compound]},
        {"name": "Codes__c", "type": {"type": "array", "items": "int"}},
    ]
    return {"type": "record", "name": "Order__e", "fields": [created, *texts, *more]}


class IcebergLake:
    """Random windows in a landing, and the tables that the worker's operators write from them.

    :param catalog: properties of the Iceberg catalog.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **catalog: str) -> None:
        self.folder, self.output = folder, str(folder / "tables")
        self.catalog_properties = catalog
        self._random = random.Random(1)
        self._numbers = iter(range(1, 1_000_000))
        self.fields = 1
        self._changes = ChangeLake(None, folder)
        set_connection(monkeypatch, "catalog", conn_type="generic", extra=catalog)

    @property
    def catalog(self) -> Catalog:
        return load_catalog("catalog", **self.catalog_properties)

    def table(self, name: str) -> Table:
        return self.catalog.load_table(f"lake.{name}")

    def events(self, **arguments: Any) -> None:
        """Land events of several days, and an invalid one, and write the event log."""
        schema = order_schema(self.fields)
        window, events = f"20260110T{next(self._numbers):06d}Z-orders", []
        for number in (next(self._numbers) for _ in range(self._random.randint(1, 6))):
            texts = {f"Field{each}__c": f"{number}" for each in range(self.fields)}
            created = START + self._random.randrange(3) * DAY
            values = {"CreatedDate": created, "Place__c": texts, "Codes__c": [number], **texts}
            events.append(LandedEvent(number, f"schema{self.fields}", encode(schema, values)))
        events.append(LandedEvent(next(self._numbers), f"schema{self.fields}", b"\xff"))
        manifest = land_window(self.folder / "landing", window, events, {f"schema{self.fields}": schema})
        self._run(EventLogOperator, windows=manifest, **arguments)

    def changes(self, **arguments: Any) -> None:
        """Land changes of a few records, and apply them to the replica, which has a history."""
        events = []
        for number in (next(self._numbers) for _ in range(self._random.randint(1, 6))):
            kind = self._random.choice(["CREATE", "UPDATE", "UPDATE", "DELETE"])
            record = f"a0W00000000000{self._random.randrange(9)}AAA"
            values = {} if kind == "DELETE" else {"Name": f"name {number}", "Amount__c": number / 3}
            events.append(change(number, kind, [record], f"t{number}", **values))
        self._run(ReplicaOperator, windows=self._changes.land(*events), history=True, keep_snapshots=3, **arguments)

    def compact(self) -> None:
        """Run the maintenance job, and then mirror, as its operator does."""
        files = ObjectStorageFiles(None)
        maintain(EmbeddedEngine(files, files, self.output), MaintenanceConfig(output_url=self.output))
        self.sync()

    def sync(self) -> None:
        mirror_tables(self.output, None, "catalog", "lake")

    def _run(self, operator: Callable[..., Any], **arguments: Any) -> None:
        arguments = {"catalog_conn_id": "catalog", "catalog_namespace": "lake", **arguments}
        with suppress(AirflowSkipException):
            operator(task_id="job", output_url=self.output, **arguments).execute(context_for("job"))

    def delta_versions(self) -> dict[str, int | None]:
        """Return the version of each Delta table that readers should see, by name."""
        found: dict[str, int | None] = {path.parent.name: None for path in Path(self.output).glob("*/_delta_log")}
        for name, state in read_snapshot(self.output, None).tables.items():
            versions = {name: state.version, f"{name}__history": state.history}
            found = {each: number for each, number in (found | versions).items() if number != -1}
        return found

    def delta_rows(self, name: str, version: int | None = None) -> list[dict[str, Any]]:
        return ordered(DeltaTable(f"{self.output}/{name}", version).to_pyarrow_table().to_pylist())

    def arrow_schema(self, name: str) -> pa.Schema:
        return DeltaTable(f"{self.output}/{name}").to_pyarrow_table().schema

    def check(self) -> None:
        """Compare the rows of each Delta table with those of its mirror, by each reader."""
        versions = self.delta_versions()
        assert {name for _, name in self.catalog.list_tables("lake")} == {name.lower() for name in versions}
        for name, version in versions.items():
            rows, table = self.delta_rows(name, version), self.table(name.lower())
            assert ordered(table.scan().to_arrow().to_pylist()) == rows, name
            assert ordered(pl.scan_iceberg(table).collect().to_dicts()) == rows, name


def ordered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows in an order, and columns too: Iceberg has new columns at another place."""
    return sorted((dict(sorted(row.items())) for row in rows), key=repr)
