"""Readers of the Spark data source: they plan partitions on the driver and read rows on executors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.tables.source.options import SourceOptions
from airflow_provider_sfstream.tables.source.parts import Planner, event_columns, may_pass, part_rows
from pyspark_sfstream.landed import Heads, LandedSource, heads_of, offset_of

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow
except ImportError:  # Spark 4.0 and 4.1 do not pass the start of a batch
    ReadAllAvailable = ReadMaxRows = None
    SupportsTriggerAvailableNow = object

READS_STREAMS = ReadMaxRows is not None


class _RowsReader:
    """Base of the readers: the rows of windows in the columns of a schema.

    :param heads: the windows from which the schema was derived; ``None`` if the user passed the schema.
    """

    def __init__(self, options: SourceOptions, schema: Any, heads: Heads | None) -> None:
        self._options, self._schema, self._heads = options, schema, heads
        self._events = event_columns(options.rows, schema.jsonValue()["fields"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition is None or partition.value is None:  # Spark passes this partition if there is no file
            return iter(())
        return iter(part_rows(partition.value, self._options, _arrow_schema(self._schema)))

    def _partitions(
        self, source: LandedSource, windows: Sequence[Manifest], filters: Sequence[Any] = ()
    ) -> list[InputPartition]:
        is_decoded = self._options.rows == "decoded"
        planner = Planner(source.files, self._events, is_given=self._heads is None or not is_decoded)
        if filters:
            dated = [(window, planner.dates(window) if is_decoded else None) for window in windows]
            windows = [window for window, dates in dated if may_pass(filters, window, dates)]
        return [InputPartition(part) for part in planner.parts(windows, decode=self._options.rows != "raw")]


class BatchReader(_RowsReader, DataSourceReader):  # type: ignore[misc]
    """Batch reader of all committed windows, up to the windows from which the schema was derived."""

    _filters: Sequence[Any] = ()

    def partitions(self) -> list[InputPartition]:
        source = LandedSource(self._options)
        windows = source.windows({}, source.heads() if self._heads is None else self._heads)
        if not windows:
            raise source.missing()
        return self._partitions(source, windows, self._filters)


class FilteringReader(BatchReader):
    """Batch reader that skips windows without rows that can match the query's filters.

    It is a separate class because Spark rejects a reader with ``pushFilters`` unless
    ``spark.sql.python.filterPushdown.enabled`` is set.
    """

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802
        self._filters = list(filters)
        return filters


class StreamReader(_RowsReader, DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Streaming reader of newly committed windows. An offset is the last window read from each stream."""

    _target: Heads | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return offset_of({})

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: N802
        """Return the offset of the newest windows, or an earlier one if a limit bounds the events of the batch.

        A batch has at least one window.
        """
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        newest = self._source.heads() if self._target is None else self._target
        return offset_of(self._source.up_to(heads_of(start), newest, most))

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        most = self._options.max_events
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._source.heads()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return self._partitions(self._source, self._source.windows(heads_of(start), heads_of(end)))

    @cached_property
    def _source(self) -> LandedSource:
        return LandedSource(self._options)


def _arrow_schema(schema: Any) -> pa.Schema:
    try:
        return to_arrow_schema(schema, timezone="UTC")
    except TypeError:  # Spark 4.0 and 4.1 have only the one-argument version
        return to_arrow_schema(schema)
