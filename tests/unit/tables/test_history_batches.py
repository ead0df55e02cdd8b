from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator
from datetime import timedelta

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_sfstream.tables.job_config import BATCH_BYTES
from airflow_provider_sfstream.tables.rows.history_batches import ended_by_changes, version_schema
from airflow_provider_sfstream.tables.rows.replica_columns import TABLE_ENVELOPE
from tests.support import history_model, replica_model
from tests.support.replica_changes import (
    COLUMNS,
    START,
    batch_of,
    change_batch,
    random_changes,
    random_value,
)
from tests.support.replica_model import Row

FEW = {"Name": COLUMNS["Name"], "Tags__c": COLUMNS["Tags__c"], "Number1__c": COLUMNS["Number1__c"]}


def closed(
    table: dict[str, Row], changes: Iterable[Row], columns: dict, *, hard: bool, batch_bytes: int = BATCH_BYTES
) -> list[Row]:
    changes = sorted(changes, key=lambda change: (change["Id"], change["_sequence"]))
    base = batch_of(
        [table.get(each, {}) for each in sorted({change["Id"] for change in changes})], TABLE_ENVELOPE | columns
    )
    deletes = "hard" if hard else "soft"
    made = list(ended_by_changes(base, change_batch(changes, columns), columns, deletes, batch_bytes))
    assert all(batch.schema == version_schema(columns) for batch in made)
    return [row for batch in made for row in batch.to_pylist()]


def in_layout(versions: list[Row], columns: dict) -> list[Row]:
    schema = version_schema(columns)
    rows = [{name: version[name] for name in schema.names} for version in versions]
    return pa.Table.from_pylist(rows, schema).to_pylist()


def refresh(table: dict[str, Row], shape: random.Random, columns: dict, sequence: int) -> None:
    """Make some rows look as if they were fetched at about the time of a sequence."""
    for row in table.values():
        if shape.random() < 0.4:
            row |= {name: random_value(type_, shape) for name, type_ in columns.items()}
            row |= {"_dirty": False, "_dirty_since": None, "_dirty_reason": None, "_deleted": False}
            row["_refreshed_at"] = START + timedelta(seconds=sequence + shape.randrange(-3, 8))
            if shape.random() < 0.3:
                row |= dict.fromkeys(("_commit_time", "_replay_id", "_transaction_key"))


@given(
    seed=st.integers(0, 2**32),
    columns=st.sampled_from((COLUMNS, FEW)),
    hard=st.booleans(),
    batch_bytes=st.integers(1, 20_000),
)
@settings(max_examples=15)
def test_a_window_ends_the_versions_that_the_model_ends(seed: int, columns: dict, hard: bool, batch_bytes: int) -> None:
    shape = random.Random(seed)
    records = [f"001{number}" for number in range(shape.randint(1, 5))]
    table: dict[str, Row] = {}
    before, count = shape.randrange(0, 20), shape.randrange(1, 30)
    disorder = shape.choice((0, 4))
    earlier = random_changes(shape, records, before, columns, disorder=disorder)
    replica_model.apply_window(table, earlier, columns, hard=hard)
    refresh(table, shape, columns, before)
    # Some changes are repeated, as in a retried run.
    changes = random_changes(shape, records, count, columns, first_sequence=max(1, before - 3), disorder=disorder)
    expected = history_model.closed_versions(table, changes, columns, hard=hard)
    assert closed(table, changes, columns, hard=hard, batch_bytes=batch_bytes) == in_layout(expected, columns)


def lives(shape: random.Random, records: list[str], count: int, columns: dict) -> list[Row]:
    """Return realistic changes: each record is created first, and changed until it is deleted."""
    changes, alive = [], {}
    for change in random_changes(shape, records, count, columns):
        if not alive.get(change["Id"]):
            values = {name: random_value(type_, shape) for name, type_ in columns.items()}
            change |= values | {"_operation": "full", "_set": frozenset(columns), "_dirty_reason": None}
        alive[change["Id"]] = change["_operation"] != "delete"
        changes.append(change)
    return changes


def windows(changes: list[Row], shape: random.Random, count: int) -> Iterator[list[Row]]:
    places = sorted({0, len(changes), *(shape.randrange(len(changes) + 1) for _ in range(count))})
    return (changes[one:other] for one, other in itertools.pairwise(places))


def run(changes: list[Row], shape: random.Random, cuts: int, *, hard: bool) -> list[Row]:
    """Return all versions after applying the changes in random windows, each window twice."""
    table: dict[str, Row] = {}
    history: list[Row] = []
    for window in windows(changes, shape, cuts):
        history += closed(table, window, FEW, hard=hard)
        replica_model.apply_window(table, window, FEW, hard=hard)
        again = closed(table, window, FEW, hard=hard)
        assert not [version for version in again if version["Id"] in table]
    history += in_layout([history_model.version_of(row, FEW) for row in table.values()], FEW)
    return sorted(history, key=lambda version: (version["Id"], version["_valid_from"]))


@given(seed=st.integers(0, 2**32), hard=st.booleans())
@settings(max_examples=6)
def test_history_does_not_depend_on_window_boundaries(seed: int, hard: bool) -> None:
    shape = random.Random(seed)
    changes = lives(shape, ["0010", "0011", "0012"], 40, FEW)
    assert run(changes, shape, 8, hard=hard) == run(changes, shape, 0, hard=hard)


@given(seed=st.integers(0, 2**32), hard=st.booleans())
@settings(max_examples=12)
def test_at_any_time_the_history_shows_the_table_as_it_was(seed: int, hard: bool) -> None:
    shape = random.Random(seed)
    changes = lives(shape, ["0010", "0011", "0012"], 30, FEW)
    history = run(changes, shape, 4, hard=hard)
    table: dict[str, Row] = {}
    for change in changes:
        replica_model.apply_window(table, [change], FEW, hard=hard)
        now = change["_commit_time"]
        seen = {
            version["Id"]: version
            for version in history
            if version["_valid_from"] <= now and (version["_valid_to"] is None or now < version["_valid_to"])
        }
        names = ("_deleted", "_dirty", "_dirty_reason", "_replay_id", "_commit_time", *FEW)
        assert {id_: {name: version[name] for name in names} for id_, version in seen.items()} == {
            id_: {name: row[name] for name in names} for id_, row in table.items()
        }


@pytest.mark.parametrize("deletes", ["soft", "hard"])
def test_deleted_record_has_a_version_only_with_soft_deletes(deletes: str) -> None:
    full = {"_operation": "full", "_set": frozenset(FEW), "Name": "Ada", "Tags__c": None, "Number1__c": 1}
    delete = {"_operation": "delete", "_set": frozenset()}
    changes = [
        {"Id": "0010", "_sequence": number, "_commit_time": START + timedelta(seconds=number)} | change
        for number, change in enumerate((full, delete, full), 1)
    ]
    versions = closed({}, changes, FEW, hard=deletes == "hard")
    spans = [(version["_operation"], version["_valid_from"], version["_valid_to"]) for version in versions]
    first, second, third = (change["_commit_time"] for change in changes)
    kept = [("delete", second, third)] if deletes == "soft" else []
    assert spans == [("upsert", first, second), *kept]
