"""Replica table and its history, written without Spark by the functions that the job's tasks run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from airflow_provider_sfstream.tables.decode.arrow_columns import as_table
from airflow_provider_sfstream.tables.decode.avro_columns import ColumnType
from airflow_provider_sfstream.tables.delta.delta_table import DeltaTableLog, TableFile
from airflow_provider_sfstream.tables.delta.table_location import TableLocation
from airflow_provider_sfstream.tables.job_config import BATCH_BYTES
from airflow_provider_sfstream.tables.replica.config import TARGET_FILE_BYTES
from airflow_provider_sfstream.tables.replica.file_groups import FileGroup, ends_of, file_groups_of_table
from airflow_provider_sfstream.tables.replica.rewriting import RewritePlan, rewritten
from airflow_provider_sfstream.tables.rows.history_batches import version_schema
from airflow_provider_sfstream.tables.rows.merging import ChangesMerge, Merge, table_schema
from airflow_provider_sfstream.tables.rows.shuffle import BLOCK, blocks
from tests.support.replica_model import Row


class LocalTable:
    """Delta table below ``folder``, with its history in a second table there."""

    def __init__(self, folder: Path, *, target: int = TARGET_FILE_BYTES, batch_bytes: int = BATCH_BYTES) -> None:
        self.log = DeltaTableLog(TableLocation(str(folder / "Account")))
        self.past = DeltaTableLog(TableLocation(str(folder / "Account__history")))
        self._target, self._batch_bytes = target, batch_bytes

    def file_groups(self, more: Iterable[str] = ()) -> tuple[FileGroup, ...]:
        return file_groups_of_table(self.log.version().files, more)

    def merge(
        self,
        incoming: Sequence[pa.RecordBatch],
        merge: Merge,
        *,
        gone_at: int | None = None,
        more: Iterable[str] = (),
    ) -> list[dict[str, Any]]:
        """Merge incoming changes; return the lines that the tasks report about table files."""
        read, file_groups = self.log.version(), self.file_groups(more)
        has_history = gone_at is not None or isinstance(merge, ChangesMerge)
        plan = RewritePlan(
            location=self.log.location,
            file_groups=file_groups,
            merge=merge,
            incoming=incoming[0].schema,
            history=self.past.location if has_history else None,
            gone_at=gone_at or 0,
            target=self._target,
            batch_bytes=self._batch_bytes,
        )
        sent = [
            *blocks(iter, ends_of(file_groups))(iter(incoming)),
            *self._control_batches(file_groups, plan.everything),
        ]
        lines = [line for batch in rewritten([plan])(iter(sent)) for line in batch.to_pylist()]
        rows = [line for line in lines if line["is_history"] is False]
        removed = {file.path for number in {line["file_group"] for line in rows} for file in file_groups[number].files}
        if rows:
            self.log.commit(read, table_schema(merge.columns), _files(rows), sorted(removed))
        if past := _files(line for line in lines if line["is_history"]):
            self.past.commit(self.past.version(), version_schema(merge.columns), past, [])
        return rows

    def ranges(self) -> list[tuple[str, str, int]]:
        """Return the first ID, the last ID and the number of rows of each file."""
        files = self.log.version().files.values()
        return sorted((file["min.Id"], file["max.Id"], file["num_records"]) for file in files)

    def rows(self) -> dict[str, Row]:
        """Return the rows by ID; assert that no ID is repeated and that the ID ranges of the files do not overlap."""
        stored = _stored(self.log)
        rows = [row for table in stored.values() for row in table.to_pylist()]
        found = {row["Id"]: row for row in rows}
        assert len(found) == len(rows), "a record has several rows"
        ranges = sorted((min(ids), max(ids)) for table in stored.values() if (ids := table["Id"].to_pylist()))
        assert all(one[1] < other[0] for one, other in pairwise(ranges)), ranges
        return found

    def versions(self, columns: dict[str, ColumnType]) -> list[Row]:
        """Return the ended versions, in order, with these columns of the record."""
        stored, schema = _stored(self.past).values(), version_schema(columns)
        rows = [row for table in stored for batch in table.to_batches() for row in as_table(batch, schema).to_pylist()]
        return sorted(rows, key=lambda row: (row["Id"], row["_sequence"], row["_valid_from"]))

    @staticmethod
    def _control_batches(file_groups: Sequence[FileGroup], everything: bool) -> Iterator[pa.RecordBatch]:
        numbers = [number for number, file_group in enumerate(file_groups) if everything or file_group.is_shared]
        if numbers:
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array(numbers, pa.int32()),
                    pa.nulls(len(numbers), pa.binary()),
                    pa.nulls(len(numbers), pa.int64()),
                ],
                schema=BLOCK,
            )


def _files(lines: Iterable[dict[str, Any]]) -> list[TableFile]:
    return [TableFile(line["path"], line["size"], line["rows"], line["stats"]) for line in lines if line["path"]]


def _stored(log: DeltaTableLog) -> dict[str, pa.Table]:
    """Return the tables of the live files by path, each with all columns of the widest file."""
    tables = {path: pa.parquet.read_table(f"{log.location.uri}/{path}") for path in log.version().files}
    if not tables:
        return {}
    widest = max((table.schema for table in tables.values()), key=len)
    return {
        path: pa.Table.from_batches([as_table(table.combine_chunks().to_batches()[0], widest)])
        for path, table in tables.items()
    }
