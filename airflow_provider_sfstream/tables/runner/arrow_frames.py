"""Arrow batches as the frames of a job, recomputed at each use, one at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.tables.delta.landed_windows import LandedWindow, changed, payload_formats
from airflow_provider_sfstream.tables.rows.event_batches import Batches, Rows

Columns = tuple[str, ...] | None
"""Names of the requested columns; ``None``: all."""


@dataclass(frozen=True)
class ArrowFrame:
    """Lazy sequence of record batches.

    :param batches: creates the batches, with the requested columns.
    """

    batches: Callable[[Columns], Batches]

    def select(self, *columns: str) -> ArrowFrame:
        return ArrowFrame(lambda requested: self.batches(requested or columns))

    def map_batches(self, make: Rows, schema: pa.Schema) -> ArrowFrame:
        def batches(requested: Columns) -> Batches:
            for batch in make(self.batches(None)):
                yield batch if requested is None else batch.select(list(requested))

        return ArrowFrame(batches)

    def collect(self) -> list[Mapping[str, Any]]:
        return [row for batch in self.batches(None) for row in batch.to_pylist(maps_as_pydicts="strict")]


def as_mask(chosen: pa.BooleanArray) -> np.ndarray[Any, Any]:
    """Return an Arrow array as a numpy mask; null is false."""
    return pc.fill_null(chosen, False).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


_ROWS = 8_192
"""Maximum rows of a batch: a row group of a landing has no more."""
_COPIED = 1 << 20
"""Bytes of a file to read at a time."""


def copy_part(source: BinaryIO, target: BinaryIO, url: str, sha256: str | None) -> None:
    """Copy the landed file at ``url``, and compare it with its SHA-256 if that is not ``None``.

    :raises ConfigurationError: if it was changed after it landed.
    """
    checksum = hashlib.sha256()
    while content := source.read(_COPIED):
        checksum.update(content)
        target.write(content)
    if sha256 is not None and checksum.hexdigest() != sha256:
        raise ConfigurationError(changed(url, checksum.hexdigest()))


def part_batches(source: Any, columns: Sequence[str] | None) -> Batches:
    """Yield the rows of a Parquet file, a part of a row group at a time, with the ``columns`` that the file has."""
    file = pq.ParquetFile(source, buffer_size=_COPIED)
    if columns is not None:
        columns = [name for name in dict.fromkeys(columns) if name in file.schema_arrow.names]
    for number in range(file.num_row_groups):  # in one call, a batch would contain the rows of many small groups
        yield from file.iter_batches(_ROWS, row_groups=[number], columns=columns)


def numbered(batch: pa.RecordBatch, window: LandedWindow, number: int, wanted: Columns) -> pa.RecordBatch:
    """Return landed rows with the number of their window and the format of their payloads, if requested."""
    if wanted is None or "window" in wanted:
        batch = batch.append_column("window", pa.array(np.full(len(batch), number, np.int32)))
    if wanted is None or "format" in wanted:
        json_schema_ids, other = payload_formats(window)
        is_json = pc.fill_null(pc.is_in(batch.column("schema_id"), pa.array(json_schema_ids, pa.string())), False)
        batch = batch.append_column("format", pc.if_else(is_json, pa.scalar("json"), pa.scalar(other)))
    return batch if wanted is None else batch.select(list(wanted))
