"""``spark.read.format("sfstream")``: Spark data source for landed windows.

Spark searches modules whose name begins with ``pyspark_`` for a class :class:`DefaultSource`. It imports all of these
modules when a session uses any data source for the first time, so this module imports nothing heavy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.tables.source.options import SourceOptions

if TYPE_CHECKING:
    from pyspark_sfstream.landed import Heads
    from pyspark_sfstream.readers import BatchReader, StreamReader


class DefaultSource(DataSource):  # type: ignore[misc]
    """Landed windows as rows, batch and streaming: ``spark.read.format("sfstream")``, ``spark.readStream``.

    The source reads only committed windows, each once and in the order of their stream. A payload that cannot be
    decoded fails the read unless the options exclude such rows; ``rows=quarantine`` returns them. Executors read the
    storage and need no Salesforce credentials. docs/reference/spark-source.md lists the options.
    """

    _heads: Heads | None = None
    """The windows from which the schema was derived; ``None``: the user passed the schema, or the schema is fixed."""

    @classmethod
    def name(cls) -> str:
        return "sfstream"

    def schema(self) -> Any:
        """Return the columns of the windows that are landed now.

        :raises ConfigurationError: if no window is landed, or an option is invalid.
        """
        from pyspark.sql.pandas.types import from_arrow_schema

        from airflow_provider_sfstream.tables.decode.arrow_columns import arrow_schema
        from airflow_provider_sfstream.tables.source.parts import all_columns

        options = SourceOptions.from_options(self.options)
        events = self._event_columns(options) if options.rows == "decoded" else {}
        return from_arrow_schema(arrow_schema(all_columns(options.rows, events)))

    def reader(self, schema: Any) -> BatchReader:
        from pyspark_sfstream.readers import BatchReader, FilteringReader

        options = SourceOptions.from_options(self.options)
        kind = FilteringReader if options.pushdown else BatchReader
        return kind(options, schema, self._heads)

    def streamReader(self, schema: Any) -> StreamReader:  # noqa: N802
        from pyspark_sfstream.readers import READS_STREAMS, StreamReader

        options = SourceOptions.from_options(self.options)
        if not READS_STREAMS:
            raise ConfigurationError("readStream requires Spark 4.2 or later; spark.read does not. Nothing was read.")
        if options.manifests or options.pushdown:
            raise ConfigurationError(
                "readStream has no options manifests and pushdown; spark.read has. Nothing was read."
            )
        return StreamReader(options, schema, self._heads)

    def _event_columns(self, options: SourceOptions) -> dict[str, Any]:
        from airflow_provider_sfstream.tables.source.parts import Planner
        from pyspark_sfstream.landed import LandedSource

        source = LandedSource(options)
        heads = source.heads()
        windows = source.windows({}, heads)
        if not windows:
            raise source.missing()
        self._heads = heads
        return Planner(source.files, {}, is_given=False).columns(windows)
