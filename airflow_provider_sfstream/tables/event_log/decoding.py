"""Decoding of landed rows in one pass: each row is decoded once and written to its table or to the quarantine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_sfstream.tables.decode.self_described import WITH_SCHEMA
from airflow_provider_sfstream.tables.delta.delta_table import TableFile
from airflow_provider_sfstream.tables.delta.table_files import WRITTEN, PartitionFiles
from airflow_provider_sfstream.tables.delta.table_location import TableLocation
from airflow_provider_sfstream.tables.event_log.tables import PARTITION_BY
from airflow_provider_sfstream.tables.job_config import BATCH_BYTES
from airflow_provider_sfstream.tables.quarantine import QUARANTINE_TABLE
from airflow_provider_sfstream.tables.rows.arrow_rows import NO_PLACES, Places, decoded_at_once, places_of
from airflow_provider_sfstream.tables.rows.event_batches import (
    Batches,
    DecodedRows,
    Rows,
    TablePlan,
    WindowReference,
    decode_rows,
    refused_rows,
)
from airflow_provider_sfstream.tables.rows.shuffle import Spool, gathered, packed, small_first, split, unpacked

if TYPE_CHECKING:
    from airflow_provider_sfstream.tables.rows.change_batches import ChangePlan

LINES = pa.schema([("table", pa.string()), *WRITTEN, ("counts", pa.map_(pa.string(), pa.int64()))])
"""Result of :func:`write_events`: a line for each file, and one without a file that has counts."""
OUTSIDE, DECODER = "outside_interval", "decoder:"
"""Keys of ``counts``: events that do not count in the interval, and (as a prefix) events that a decoder has read."""
_OPEN_TABLES = 16
"""Tables whose files are written at the same time. Rows of more tables are spooled, so that each has few files."""


@dataclass(frozen=True)
class EventPlan:
    """Decoding plan of one run for landed rows.

    :param tables: plan of each table, by name.
    :param refused: why a schema cannot be used, by schema ID.
    :param own_tables: by number of the window, the table of its self-described events.
    :param duplicates: landed rows that are not written.
    """

    tables: Mapping[str, TablePlan]
    refused: Mapping[str, str]
    windows: tuple[WindowReference, ...]
    own_tables: tuple[str, ...]
    batch_bytes: int = BATCH_BYTES
    duplicates: Places = field(default=NO_PLACES)

    def decode(self, batches: Batches) -> Iterator[tuple[str, DecodedRows]]:
        """Yield decoded rows with the name of their table; for rows whose schema cannot be used, the quarantine's."""
        rows, tables = self._without_duplicates(batches), list(self.tables.items())
        for number, landed in by_table(rows, self.tables, self.batch_bytes, self.own_tables):
            if number == len(tables):
                yield QUARANTINE_TABLE, DecodedRows(quarantined=[refused_rows(landed, self.refused, self.windows)])
            else:
                table, plan = tables[number]
                yield table, decode_rows(landed, plan)

    def _without_duplicates(self, batches: Batches) -> Batches:
        for batch in batches:
            mask = ~self.duplicates.include(places_of(batch)) if len(self.duplicates) else None
            yield batch if mask is None or mask.all() else batch.filter(pa.array(mask))


def by_table(
    batches: Batches, plans: Mapping[str, TablePlan | ChangePlan], batch_bytes: int, own_tables: Sequence[str] = ()
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield landed rows, each batch with the number of its table among ``plans``. Rows whose schema cannot be used have
    the number after the last table's.

    :param own_tables: by number of the window, the table of its self-described events.
    """
    pairs = [(id_, number) for number, plan in enumerate(plans.values()) for id_ in plan.schemas]
    schema_ids, tables = pa.array([id_ for id_, _ in pairs], pa.string()), pa.array([n for _, n in pairs], pa.int32())
    own = pc.index_in(pa.array(own_tables, pa.string()), value_set=pa.array(list(plans), pa.string()))
    columns = [*(len(plan.columns) for plan in plans.values()), 0]
    # Splitting small batches by table would result in few rows at a time, which have a high overhead.
    for batch in gathered(batches, batch_bytes) if len(plans) > 1 else batches:
        numbers = tables.take(pc.index_in(batch.column("schema_id"), value_set=schema_ids))
        if own_tables:
            has_schema = pc.is_in(batch.column("format"), value_set=pa.array(WITH_SCHEMA))
            numbers = pc.if_else(has_schema, numbers, own.take(batch.column("window")))
        for table, part in split(batch, pc.fill_null(numbers, len(plans)).to_numpy()):
            for landed in decoded_at_once(part, columns[table], batch_bytes):
                yield table, landed


def write_events(plan: EventPlan, location: TableLocation) -> Rows:
    """Return a function for ``mapInArrow`` that writes landed rows to files of their tables, and yields :data:`LINES`.

    The files of a failed task are not returned, so they are never committed.
    """

    def write(batches: Batches) -> Batches:
        counts: Counter[str] = Counter()

        def write_table(table: str) -> list[tuple[str, TableFile]]:
            with PartitionFiles(location) as files_of_table:
                for rows in map(unpacked, spool.read(table)):
                    for batch in rows.to_batches():
                        files_of_table.append(table, batch, PARTITION_BY)
                return files_of_table.close()

        with PartitionFiles(location) as files, Spool[str]() as spool:
            for table, decoded in plan.decode(batches):
                for rows in decoded.rows:
                    if len(plan.tables) > _OPEN_TABLES:
                        spool.add(table, packed(rows))
                    else:
                        files.append(table, rows, PARTITION_BY)
                for rows in decoded.quarantined:
                    files.append(QUARANTINE_TABLE, rows, ())
                counts[OUTSIDE] += decoded.outside_interval
                counts.update({f"{DECODER}{name}": count for name, count in decoded.decoders.items()})
            closed = chain(files.close(), *small_first(write_table, spool.keys, spool.size))
            lines: list[dict[str, Any]] = [{"table": table, **vars(file)} for table, file in closed]
        yield pa.RecordBatch.from_pylist([*lines, {"counts": dict(counts)}], schema=LINES)

    return write
