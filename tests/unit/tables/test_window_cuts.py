"""The rows and the history of a table do not depend on which changes are applied in one run."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_provider_sfstream.tables.rows.history_batches import holding_versions
from airflow_provider_sfstream.tables.rows.merging import ChangesMerge, Deletes, table_schema
from airflow_provider_sfstream.tables.rows.replica_columns import TABLE_ENVELOPE
from tests.support.local_table import LocalTable
from tests.support.replica_changes import COLUMNS, START, batch_of, change_batch, random_changes, random_value
from tests.support.replica_model import Row, apply_window

FEW = {name: COLUMNS[name] for name in ("Name", "Tags__c", "Number1__c")}
RECORDS = [f"001{number:04d}" for number in range(60)]
ROUNDS = 7
"""Changes of each record."""


class StoredRows:
    """Merge that replaces rows by the incoming ones."""

    columns = FEW

    def __call__(self, base: pa.RecordBatch, change: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.BooleanArray]:
        return change, pa.array([False] * len(change))


def rows_before(shape: random.Random) -> list[Row]:
    """Return rows that are clean, dirty, deleted and fetched; some records have none."""
    table: dict[str, Row] = {}
    apply_window(table, random_changes(shape, RECORDS[::2], len(RECORDS), FEW), FEW)
    for row in table.values():
        if shape.random() < 0.4:
            row |= {name: random_value(type_, shape) for name, type_ in FEW.items()}
            row |= {"_dirty": False, "_dirty_since": None, "_dirty_reason": None, "_deleted": False}
            row["_refreshed_at"] = START + timedelta(seconds=len(RECORDS) * shape.randint(1, ROUNDS))
    return list(table.values())


def rounds_of_changes(shape: random.Random, disorder: int) -> list[Row]:
    """Return ``ROUNDS`` changes of each record: the first change of every record, then the second, and so on."""
    changes: list[Row] = []
    for number in range(1, ROUNDS + 1):
        for record_id in RECORDS:
            sequence = number * len(RECORDS) + len(changes) % len(RECORDS) + 1
            changes += random_changes(shape, [record_id], 1, FEW, sequence, disorder=disorder)
    return changes


def windows(changes: list[Row], ends: set[int]) -> Iterator[list[Row]]:
    return (changes[one:other] for one, other in itertools.pairwise(sorted({0, len(changes), *ends})))


def applied(
    folder: Path, before: list[Row], changes: list[Row], ends: set[int], deletes: Deletes
) -> tuple[dict[str, Row], list[Row]]:
    """Return the rows and all versions after applying changes in windows that end at ``ends``."""
    folder.mkdir()
    table = LocalTable(folder)
    if before:
        table.merge([batch_of(before, TABLE_ENVELOPE | FEW)], StoredRows())
    for window in windows(changes, ends):
        table.merge([change_batch(window, FEW)], ChangesMerge(FEW, deletes))
    rows = table.rows()
    stored = pa.RecordBatch.from_pylist(list(rows.values()), table_schema(FEW))
    current = [row for batch in holding_versions(FEW)(iter([stored])) for row in batch.to_pylist()]
    versions = [*table.versions(FEW), *current]
    return rows, sorted(versions, key=lambda version: (version["Id"], version["_sequence"]))


def change(number: int, operation: str, seconds: int, **values: object) -> Row:
    chosen = frozenset(FEW if operation == "full" else values)
    described = {"Id": RECORDS[0], "_sequence": number, "_operation": operation, "_set": chosen, "_dirty_reason": None}
    return described | {"_commit_time": START + timedelta(seconds=seconds)} | dict.fromkeys(chosen) | values


def spans(versions: list[Row]) -> list[tuple]:
    """Return the operation and the name of each version, and the seconds of its start and end."""
    times = [
        [version[name] and (version[name] - START).seconds for name in ("_valid_from", "_valid_to")]
        for version in versions
    ]
    return [(version["_operation"], version["Name"], *span) for version, span in zip(versions, times, strict=True)]


@pytest.mark.parametrize("ends", [set(), {1}, {2}, {1, 2}])
def test_a_record_becomes_known_with_its_first_whole_event(tmp_path: Path, ends: set[int]) -> None:
    changes = [change(1, "patch", 1, Name="a"), change(2, "patch", 2, Name="b"), change(3, "full", 3, Name="c")]
    rows, versions = applied(tmp_path / "table", [], changes, ends, "soft")
    assert spans(versions) == [("unknown", "a", 1, 2), ("unknown", "b", 2, 3), ("upsert", "c", 3, None)]
    assert not rows[RECORDS[0]]["_dirty"]


@pytest.mark.parametrize("ends", [set(), {1}, {2}, {1, 2}])
def test_row_after_a_hard_delete_has_no_values_of_the_deleted_row(tmp_path: Path, ends: set[int]) -> None:
    changes = [change(1, "full", 8, Name="a", Number1__c=1), change(2, "delete", 9), change(3, "patch", 5, Name="b")]
    rows, versions = applied(tmp_path / "table", [], changes, ends, "hard")
    assert spans(versions) == [("upsert", "a", 8, 9), ("unknown", "b", 5, None)]
    row = rows[RECORDS[0]]
    assert (row["Number1__c"], row["_deleted"], row["_dirty_reason"]) == (None, False, "unknown_record")


@pytest.mark.parametrize("ends", [set(), {1}])
def test_fetch_before_a_hard_delete_hides_no_later_change(tmp_path: Path, ends: set[int]) -> None:
    row = {"Id": RECORDS[0], "_sequence": 0, "_deleted": False, "_dirty": False, "Name": "fetched"}
    row["_refreshed_at"] = START + timedelta(seconds=10)
    changes = [change(1, "delete", 11), change(2, "full", 9, Name="undeleted")]
    rows, versions = applied(tmp_path / "table", [row], changes, ends, "hard")
    assert spans(versions) == [("refresh", "fetched", 10, 11), ("upsert", "undeleted", 9, None)]
    assert rows[RECORDS[0]]["_refreshed_at"] is None


@pytest.mark.parametrize("disorder", [0, 4 * len(RECORDS)])
@pytest.mark.parametrize("deletes", ["soft", "hard"])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.extended) for seed in range(1, 12))])
def test_rows_and_history_are_the_same_for_every_cut(
    tmp_path: Path, seed: int, deletes: Deletes, disorder: int
) -> None:
    shape = random.Random(seed)
    before, changes = rows_before(shape), rounds_of_changes(shape, disorder)
    cuts = {
        "each change of a record alone": set(range(0, len(changes), len(RECORDS))),
        "anywhere": {shape.randrange(len(changes)) for _ in range(4)},
    }
    rows, versions = applied(tmp_path / "one", before, changes, set(), deletes)
    for name, ends in cuts.items():
        other_rows, other_versions = applied(tmp_path / name, before, changes, ends, deletes)
        assert other_rows == rows, name
        assert other_versions == versions, name
    for version, following in itertools.pairwise(versions):
        if version["_valid_to"] is None:
            continue
        assert version["_valid_from"] <= version["_valid_to"]
        if deletes == "soft":
            assert (following["Id"], following["_valid_from"]) == (version["Id"], version["_valid_to"])
