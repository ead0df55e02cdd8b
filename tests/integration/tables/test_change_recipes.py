"""The recipes of docs/reference/changes.md update copies with the clients of DuckDB, PostgreSQL and others."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars
import psycopg2
import psycopg2.extras
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from airflow_provider_sfstream.changes import read_changes
from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.tables.changes import table_changes
from airflow_provider_sfstream.tables.event_log.config import EventLogConfig
from airflow_provider_sfstream.tables.event_log.job import run as run_event_log
from sfstream_localorg.records.fields import Field
from tests.support.change_lake import WIDGET, ChangeLake, change
from tests.support.engines import embedded
from tests.support.guides import SNIPPETS
from tests.support.postgres import PostgresServer, postgres_server  # noqa: F401 (a fixture)

WIDER = dataclasses.replace(WIDGET, fields=(*WIDGET.fields, Field("Note__c", "Text")))
PLACE = {"Place__Latitude__s": 50.9, "Place__Longitude__s": -6.9}
IDS = [f"a0W{number:012d}AAA" for number in range(9)]
TEXTS = (None, "", "tab\t, line\n, return\r, \\N, \"quotes\" and 'more'", "Köln \U0001f600")
OBJECT, EVENTS = "Widget__c", "Widget__ChangeEvent"
Row = dict[str, Any]


def recipe(name: str) -> Callable[..., Any]:
    """Return the function of this name that the page of changed rows defines."""
    (code,) = (
        code for page, code in SNIPPETS.items() if page.startswith("reference/changes-") and f"def {name}(" in code
    )
    names: dict[str, Any] = {}
    exec(compile(code, name, "exec"), names)
    return names[name]  # type: ignore[no-any-return]


def wider_schema() -> dict[str, Any]:
    """Return a schema with one more field, and one more member of the compound field."""
    schema = WIDER.schema()
    (place,) = (field["type"][1] for field in schema["fields"] if field["name"] == "Place__c")
    place["fields"] = [*place["fields"], {"name": "Height", "type": ["null", "double"], "default": None}]
    return schema


class Lake:
    """A replica with hard deletes, and an event log of the same windows, below one folder."""

    def __init__(self, folder: Path) -> None:
        self._lake = ChangeLake(None, folder, lambda: embedded(folder / "engine"))
        self._lake.schemas["wider"] = wider_schema()
        self._numbers, self._random = iter(range(1, 1_000)), random.Random(1)
        self.output = self._lake.output

    def run(self, *, is_wider: bool = False, keep_snapshots: int = 10) -> None:
        """Run both jobs on a new window."""
        events = []
        for number in (next(self._numbers) for _ in range(12)):
            kind = self._random.choice(["CREATE", "UPDATE", "DELETE"])
            values = {} if kind == "DELETE" else {"Name": self._random.choice(TEXTS), "Amount__c": number / 3, **PLACE}
            entity = WIDER if is_wider else WIDGET
            if is_wider and values:
                values["Note__c"] = f"note {number}"
            ids = self._random.sample(IDS, 1)
            made = change(number, kind, ids, f"t{number}", entity=entity, **values)
            events.append(dataclasses.replace(made, schema_id="wider" if is_wider else "Widget__c"))
        manifest = self._lake.land(*events)
        self._lake.run(manifest, deletes="hard", keep_snapshots=keep_snapshots)
        config = EventLogConfig(output_url=f"{self.output}/events", manifests=(manifest,))
        run_event_log(embedded(self._lake.folder / "engine"), config)

    def output_of(self, table: str) -> str:
        return self.output if table == OBJECT else f"{self.output}/events"

    def rows(self, table: str) -> list[Row]:
        return in_order(DeltaTable(f"{self.output_of(table)}/{table}").to_pyarrow_table().to_pylist())


def in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: str([row.get(name) for name in ("Id", "window_id", "_ordinal")]))


class DuckDb:
    """Copies in a DuckDB database."""

    def __init__(self, folder: Path) -> None:
        self.database = str(folder / "copy.duckdb")
        self.update = recipe("update_duckdb")

    def execute(self, statement: str) -> None:
        with duckdb.connect(self.database) as db:
            db.execute(statement)

    def rows(self, table: str) -> list[Row]:
        with duckdb.connect(self.database) as db:
            found: list[Row] = db.sql(f'SELECT * FROM "{table}"').to_arrow_table().to_pylist()
        return found

    expected = staticmethod(lambda value: value)


class Postgres:
    """Copies in a PostgreSQL database."""

    def __init__(self, server: PostgresServer) -> None:
        self.database = server.new_database().set(drivername="postgresql").render_as_string(hide_password=False)
        self.update = recipe("update_postgres")

    def execute(self, statement: str) -> None:
        with psycopg2.connect(self.database) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
        connection.close()

    def rows(self, table: str) -> list[Row]:
        factory = psycopg2.extras.RealDictCursor
        with psycopg2.connect(self.database) as connection, connection.cursor(cursor_factory=factory) as cursor:
            cursor.execute(f'SELECT * FROM "{table}"')
            rows = [dict(row) for row in cursor.fetchall()]
        connection.close()
        return [{name: bytes(v) if isinstance(v, memoryview) else v for name, v in row.items()} for row in rows]

    @staticmethod
    def expected(value: Any) -> Any:
        return json.loads(json.dumps(value, default=str)) if isinstance(value, dict | list) else value


def comparable(value: Any) -> Any:
    """Return a value without the members of structs that are null: jsonb lacks those that came later."""
    if not isinstance(value, dict):
        return value
    return {name: comparable(item) for name, item in value.items() if item is not None}


@pytest.fixture(params=["duckdb", "postgres"])
def copies(request: pytest.FixtureRequest, tmp_path: Path) -> DuckDb | Postgres:
    if request.param == "duckdb":
        return DuckDb(tmp_path)
    return Postgres(request.getfixturevalue("postgres_server"))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


def check(lake: Lake, copies: DuckDb | Postgres, table: str) -> None:
    expected = [{name: copies.expected(value) for name, value in row.items()} for row in lake.rows(table)]
    found = copies.rows(table)
    assert {*found[0]} == {*expected[0]}
    assert list(map(comparable, in_order(found))) == list(map(comparable, expected))


def test_a_database_recipe_updates_copies(lake: Lake, copies: DuckDb | Postgres) -> None:
    for number in range(4):
        lake.run(is_wider=number >= 2)
        for table in (OBJECT, EVENTS):
            copies.update(copies.database, lake.output_of(table), table)
            check(lake, copies, table)
    copies.update(copies.database, lake.output, OBJECT)
    check(lake, copies, OBJECT)


def test_a_database_recipe_replaces_a_copy_whose_version_was_removed(lake: Lake, copies: DuckDb | Postgres) -> None:
    lake.run(keep_snapshots=1)
    copies.update(copies.database, lake.output, OBJECT)
    before = copies.rows(OBJECT)
    for _ in range(3):
        lake.run(keep_snapshots=1)
    with pytest.raises(ConfigurationError, match="replace the consumer's copy"):
        copies.update(copies.database, lake.output, OBJECT)
    assert copies.rows(OBJECT) == before
    copies.execute("DELETE FROM sfstream_versions")
    copies.update(copies.database, lake.output, OBJECT)
    check(lake, copies, OBJECT)


def test_a_failed_update_leaves_copy_and_version_as_they_were(
    lake: Lake, copies: DuckDb | Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.run()
    copies.update(copies.database, lake.output, OBJECT)
    before = copies.rows(OBJECT)
    lake.run()
    with monkeypatch.context() as patch:
        read = table_changes.read_table_changes
        patch.setattr(
            table_changes,
            "read_table_changes",
            lambda *each: dataclasses.replace(read(*each), next_since=object()),  # no database stores it
        )
        with pytest.raises((duckdb.Error, psycopg2.Error)):
            copies.update(copies.database, lake.output, OBJECT)
    assert copies.rows(OBJECT) == before
    copies.update(copies.database, lake.output, OBJECT)
    check(lake, copies, OBJECT)


def test_arrow_libraries_read_the_changes(lake: Lake, tmp_path: Path) -> None:
    lake.run()
    changes = read_changes(lake.output, OBJECT, since=None)
    expected = pa.table(changes).to_pylist()
    assert expected
    assert polars.DataFrame(changes).to_dicts() == expected
    frame = pa.table(changes).to_pandas(types_mapper=pd.ArrowDtype)
    assert pa.Table.from_pandas(frame, changes.schema).to_pylist() == expected
    assert recipe("write_changes")(str(tmp_path / "changes.parquet"), lake.output, OBJECT, None) == changes.next_since
    assert pq.read_table(tmp_path / "changes.parquet").to_pylist() == expected
