"""File groups of a table that Spark tasks read, merge and rewrite."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_sfstream.tables.decode.avro_columns import ColumnType
from airflow_provider_sfstream.tables.delta import table_files
from airflow_provider_sfstream.tables.job_config import BATCH_BYTES
from airflow_provider_sfstream.tables.replica import file_groups, rewriting
from airflow_provider_sfstream.tables.replica.file_groups import file_groups_of_table
from airflow_provider_sfstream.tables.rows import shuffle
from airflow_provider_sfstream.tables.rows.history_batches import version_schema
from airflow_provider_sfstream.tables.rows.merging import ChangesMerge, Deletes, table_schema
from airflow_provider_sfstream.tables.rows.replica_columns import TABLE_ENVELOPE
from tests.support import history_model
from tests.support.local_table import LocalTable
from tests.support.replica_changes import COLUMNS, START, batch_of, change_batch, random_changes
from tests.support.replica_model import Row, apply_window

RECORDS = [f"001{number:04d}" for number in range(60)]
FIRST_COLUMNS = dict(list(COLUMNS.items())[:10])


@dataclass
class Replica:
    """Table of a replica, as a job writes it."""

    folder: Path
    deletes: Deletes = "soft"
    columns: dict[str, ColumnType] = field(default_factory=lambda: dict(FIRST_COLUMNS))
    target: int = 1 << 27
    batch_bytes: int = BATCH_BYTES

    def __post_init__(self) -> None:
        self.table = LocalTable(self.folder, target=self.target, batch_bytes=self.batch_bytes)

    def run(self, changes: Sequence[Row], parts: int = 1, *, more: Sequence[str] = ()) -> list[dict]:
        batches = [change_batch(changes[part::parts], self.columns) for part in range(parts)]
        merge = ChangesMerge(self.columns, self.deletes)
        return self.table.merge(batches, merge, more=more)

    def rows(self) -> dict[str, Row]:
        return self.table.rows()


def in_layout(versions: list[Row], columns: dict[str, ColumnType]) -> list[Row]:
    schema = version_schema(columns)
    rows = [{name: version.get(name) for name in schema.names} for version in versions]
    rows.sort(key=lambda row: (row["Id"], row["_sequence"], row["_valid_from"]))
    return pa.Table.from_pylist(rows, schema).to_pylist()


@pytest.mark.parametrize("target", [1 << 27, 8_000])
@pytest.mark.parametrize("deletes", ["soft", "hard"])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.extended) for seed in range(1, 12))])
def test_rows_after_random_windows_equal_the_model(tmp_path: Path, seed: int, deletes: Deletes, target: int) -> None:
    shape = random.Random(seed)
    replica, model, sequence = Replica(tmp_path, deletes, target=target), {}, 1
    past: list[Row] = []
    for window in range(4):
        if window == 2:
            replica.columns = COLUMNS
        some = shape.sample(RECORDS, shape.choice((3, len(RECORDS))))
        changes = random_changes(shape, some, shape.randrange(1, 200), replica.columns, sequence)
        sequence += len(changes)
        more = shape.sample(RECORDS, 3) if shape.random() < 0.5 else ()
        replica.run(changes, shape.randrange(1, 4), more=sorted(more))
        past += history_model.closed_versions(model, changes, replica.columns, hard=deletes == "hard")
        apply_window(model, changes, replica.columns, hard=deletes == "hard")
        assert replica.rows() == model
    assert replica.table.versions(COLUMNS) == in_layout(past, COLUMNS)
    replica.run(changes)
    assert replica.rows() == model, "running the last window again changed rows"


def test_every_change_applies_to_rows_in_every_state() -> None:
    """Rows that are dirty, deleted, fetched, ahead, behind and missing are merged with the changes of one window."""
    shape = random.Random(7)
    records = [f"001{number:05d}" for number in range(500)]
    changes = random_changes(shape, records, 1_000, COLUMNS, first_sequence=1_000, disorder=200)
    model: dict[str, Row] = {}
    apply_window(model, random_changes(shape, records, 1_000, COLUMNS), COLUMNS)
    for row in model.values():
        row["_sequence"] = shape.choice((None, 0, 999, 9_000))
        row["_refreshed_at"] = shape.choice((None, START, START + timedelta(seconds=shape.randrange(2_200))))
        if shape.random() < 0.5:
            row |= {"_dirty": False, "_dirty_since": None, "_dirty_reason": None}
    ids = sorted({change["Id"] for change in changes})
    base = batch_of([model.get(each, {}) for each in ids], TABLE_ENVELOPE | COLUMNS)
    for deletes in ("soft", "hard"):
        change = change_batch(sorted(changes, key=lambda change: (change["Id"], change["_sequence"])), COLUMNS)
        expected = {key: dict(row) for key, row in model.items() if key in ids}
        apply_window(expected, changes, COLUMNS, hard=deletes == "hard")
        new, dropped = ChangesMerge(COLUMNS, deletes)(base, change)
        assert new.schema == table_schema(COLUMNS)
        assert {row["Id"]: row for row in new.filter(pa.compute.invert(dropped)).to_pylist()} == expected
        assert pa.compute.any(dropped).as_py() is (deletes == "hard")


def test_records_fetched_after_a_change_keep_the_fetched_values(tmp_path: Path) -> None:
    shape, replica = random.Random(5), Replica(tmp_path)
    model: dict[str, Row] = {}
    before = random_changes(shape, RECORDS, 200, replica.columns)
    apply_window(model, before, replica.columns)
    for row in model.values():
        row["_refreshed_at"] = shape.choice((None, START + timedelta(seconds=shape.randrange(200, 300))))
        row |= {"_dirty": False, "_dirty_since": None, "_dirty_reason": None}
    table = batch_of(list(model.values()), TABLE_ENVELOPE | replica.columns)

    class ReplacedRows:
        columns = replica.columns

        def __call__(self, base: pa.RecordBatch, change: pa.RecordBatch) -> tuple:
            return change, pa.array([False] * len(change))

    replica.table.merge([table], ReplacedRows())
    changes = random_changes(shape, RECORDS, 200, replica.columns, 201, disorder=40)
    replica.run(changes)
    apply_window(model, changes, replica.columns)
    assert replica.rows() == model


def test_a_record_that_was_fetched_twice_has_one_row(tmp_path: Path) -> None:
    """Pages of a query may overlap. ``Replica.rows`` fails for a record with two rows."""
    replica = Replica(tmp_path)
    rows = [{"Id": each, "_deleted": False, "_dirty": False} for each in RECORDS[:5]]
    table = batch_of(rows, TABLE_ENVELOPE | replica.columns)

    class ReplacedRows:
        columns = replica.columns

        def __call__(self, base: pa.RecordBatch, change: pa.RecordBatch) -> tuple:
            return change, pa.array([False] * len(change))

    replica.table.merge([table, table.slice(1, 3)], ReplacedRows(), gone_at=0)
    assert sorted(replica.rows()) == RECORDS[:5]


def test_unchanged_files_are_kept_and_large_files_are_divided(tmp_path: Path) -> None:
    shape, replica = random.Random(11), Replica(tmp_path, target=700)
    replica.run(random_changes(shape, RECORDS, 400, replica.columns), parts=3)
    before = replica.table.log.version().files
    assert len(before) > 2
    lines = replica.run(random_changes(shape, RECORDS[:1], 5, replica.columns, 1_000))
    after = replica.table.log.version().files
    assert len(before.keys() - after.keys()) == 1, "only the file of the changed record is replaced"
    rewritten = {path: file for path, file in after.items() if path not in before}
    assert {line["path"]: line["rows"] for line in lines} == {p: file["num_records"] for p, file in rewritten.items()}
    divided = file_groups_of_table(after)
    assert [file_group.through for file_group in divided[:-1]] == sorted(file["max.Id"] for file in after.values())[:-1]


def test_overlapping_files_of_other_writers_form_one_file_group_until_rewritten(tmp_path: Path) -> None:
    shape, replica = random.Random(3), Replica(tmp_path, target=700)
    model: dict[str, Row] = {}
    changes = random_changes(shape, RECORDS, 400, replica.columns)
    replica.run(changes)
    apply_window(model, changes, replica.columns)
    version = replica.table.log.version()
    assert len(version.files) > 2
    stored = [pa.parquet.read_table(f"{replica.table.log.location.uri}/{path}") for path in version.files]
    mixed = pa.concat_tables(stored)
    mixed = mixed.take(pa.array(shape.sample(range(len(mixed)), len(mixed))))
    files = []
    for part in (mixed.slice(0, 30), mixed.slice(30)):
        writer = table_files.TableFileWriter(
            replica.table.log.location.filesystem(), f"x{len(files)}.parquet", part.schema
        )
        for batch in part.to_batches():
            writer.append(batch)
        files.append(writer.close())
    replica.table.log.commit(version, mixed.schema, files, list(version.files))
    (file_group,) = replica.table.file_groups()
    assert len(file_group.files) == 2
    changes = random_changes(shape, RECORDS, 20, replica.columns, 1_000)
    replica.run(changes)
    apply_window(model, changes, replica.columns)
    assert replica.rows() == model


@dataclass
class Ranges:
    """Ranges of IDs that were merged, with the bytes of their incoming rows."""

    merged: list[tuple[str | None, str | None]] = field(default_factory=list)
    most: int = 0

    def count(self, monkeypatch: pytest.MonkeyPatch) -> Ranges:
        range_of_group = rewriting._Range

        def merge(plan, file_group, incoming, *others) -> Any:
            self.merged.append((file_group.after, file_group.through))
            self.most = max(self.most, sum(rows.nbytes for rows in incoming))
            return range_of_group(plan, file_group, incoming, *others)

        monkeypatch.setattr(rewriting, "_Range", merge)
        return self


@pytest.mark.parametrize("held", [pytest.param(shuffle._MEMORY_LIMIT, id="in-memory"), pytest.param(100, id="spilled")])
@pytest.mark.parametrize("target", [pytest.param(1 << 27, id="one-file"), pytest.param(1_500, id="files")])
@pytest.mark.parametrize("deletes", ["soft", "hard"])
def test_file_group_rewritten_in_ranges_equals_one_rewritten_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deletes: Deletes, target: int, held: int
) -> None:
    monkeypatch.setattr(shuffle, "_MEMORY_LIMIT", held)
    shape, sequence, columns = random.Random(target), 1, FIRST_COLUMNS
    whole = Replica(tmp_path / "whole", deletes, target=target)
    divided = Replica(tmp_path / "divided", deletes, target=target, batch_bytes=3_000)
    for _ in range(3):
        changes = random_changes(shape, RECORDS, 120, columns, sequence)
        sequence += len(changes)
        whole.run(changes, 3)
        ranges = Ranges().count(monkeypatch)
        divided.run(changes, 3)
        monkeypatch.undo()
        monkeypatch.setattr(shuffle, "_MEMORY_LIMIT", held)
        assert len(ranges.merged) > 4
        assert ranges.most < 8_000
    assert divided.rows() == whole.rows()
    assert divided.table.versions(columns) == whole.table.versions(columns)
    assert divided.table.ranges() == whole.table.ranges()
    assert (len(whole.table.ranges()) > 1) is (target == 1_500)
    assert len(divided.table.past.version().files) == len(whole.table.past.version().files)


def test_records_without_changes_are_kept(tmp_path: Path) -> None:
    replica, model, shape = Replica(tmp_path, batch_bytes=2_000), {}, random.Random(2)
    for records, first in ((RECORDS, 1), (RECORDS[20:23], 1_000)):
        changes = random_changes(shape, records, 200, replica.columns, first)
        replica.run(changes)
        apply_window(model, changes, replica.columns)
    assert replica.rows() == model


def test_row_groups_outside_a_range_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "ROW_GROUP", 800)
    monkeypatch.setattr(rewriting, "_STEPS", 10)
    replica, shape, read = Replica(tmp_path, batch_bytes=4_000), random.Random(3), []
    replica.run([full(each, number) for number, each in enumerate(RECORDS, 1)])
    groups = next(iter(_metadata(replica))).num_row_groups
    original = file_groups.as_batch
    monkeypatch.setattr(file_groups, "as_batch", lambda table: read.append(len(table)) or original(table))
    ranges = Ranges().count(monkeypatch)
    replica.run(random_changes(shape, RECORDS, 200, replica.columns, 1_000))
    assert groups > 4
    assert len(ranges.merged) > 4
    assert len(read) < groups + 2 * len(ranges.merged)


def full(record: str, sequence: int) -> Row:
    change = {"_operation": "full", "_set": frozenset(FIRST_COLUMNS), "_commit_time": START}
    return change | {"Id": record, "_sequence": sequence, "Name": f"{record} as created"}


def _metadata(replica: Replica) -> Iterator[pa.parquet.FileMetaData]:
    for path in replica.table.log.version().files:
        yield pa.parquet.read_metadata(f"{replica.table.log.location.uri}/{path}")


def test_texts_of_a_file_group_are_merged_within_the_memory_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An Arrow column holds at most 2 GiB of text, but a file group may receive any amount."""
    replica = Replica(tmp_path, batch_bytes=1 << 20)
    ranges = Ranges().count(monkeypatch)
    replica.run([full(each, number) | {"Name": each * 20_000} for number, each in enumerate(RECORDS, 1)], parts=8)
    assert ranges.most < 2 << 20
    assert len(ranges.merged) == 9
    assert {key: row["Name"] for key, row in replica.rows().items()} == {each: each * 20_000 for each in RECORDS}


def test_a_failed_range_leaves_no_file_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replica, abandoned = Replica(tmp_path, batch_bytes=2_000), []
    replica.run([full(each, number) for number, each in enumerate(RECORDS, 1)])
    monkeypatch.setattr(table_files.TableFileWriter, "abandon", lambda writer: abandoned.append(writer.path))
    merged = rewriting._Range.merge

    def fail(part, fetched) -> None:
        if part._file_group.through is None:
            raise OSError("disk full")
        merged(part, fetched)

    monkeypatch.setattr(rewriting._Range, "merge", fail)
    before = replica.rows()
    with pytest.raises(OSError, match="disk full"):
        replica.run([full(each, number) for number, each in enumerate(RECORDS, 1_000)])
    assert len(abandoned) == 2, "the file of rows and that of versions"
    assert replica.rows() == before


def test_file_of_a_file_group_without_rows_is_removed(tmp_path: Path) -> None:
    replica = Replica(tmp_path, "hard")
    full = {"_operation": "full", "_set": frozenset(FIRST_COLUMNS), "_commit_time": START}
    gone = {"_operation": "delete", "_set": frozenset(), "_commit_time": START}
    replica.run([full | {"Id": each, "_sequence": n} for n, each in enumerate(RECORDS)])
    (line,) = replica.run([gone | {"Id": each, "_sequence": 100 + n} for n, each in enumerate(RECORDS)])
    assert (line["path"], line["rows"]) == (None, 0)
    assert replica.table.log.version().files == {}
    assert replica.rows() == {}
    assert replica.run([]) == [], "a run without changes writes no file"
