"""``spark.read.format("sfstream")``: landed windows as a source of Spark.

Spark finds sources in the modules whose name begins with ``pyspark_``, by the name :class:`DefaultSource`. It loads all
of them once a session first asks for a source, whichever that is: so nothing heavy is imported here.
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

    Only windows that a position is known to cover are read, each once, those of a stream in their order; what cannot be
    decoded fails the read unless it is left out on purpose, and is told by ``rows=quarantine``. Executors read the
    storage, and need no Salesforce credentials. docs/reference/spark-source.md has the options.
    """

    _heads: Heads | None = None
    """The windows whose fields the schema was made of; ``None``: the user gave it, or it is always the same."""

    @classmethod
    def name(cls) -> str:
        return "sfstream"

    def schema(self) -> Any:
        """Return the columns of the windows that are landed by now.

        :raises ConfigurationError: if there are none, or an option cannot be used.
        """
        from pyspark.sql.pandas.types import from_arrow_schema

        from airflow_provider_sfstream.tables.source.rows import all_columns, arrow_schema

        options = SourceOptions.of(self.options)
        events = self._event_columns(options) if options.rows == "decoded" else {}
        return from_arrow_schema(arrow_schema(all_columns(options.rows, events)))

    def reader(self, schema: Any) -> BatchReader:
        from pyspark_sfstream.readers import BatchReader, FilteringReader, RowsReader

        options = SourceOptions.of(self.options)
        made = FilteringReader if options.pushdown else BatchReader
        return made(RowsReader(options, schema, self._heads is None), self._heads)

    def streamReader(self, schema: Any) -> StreamReader:  # noqa: N802
        from pyspark_sfstream.readers import READS_STREAMS, RowsReader, StreamReader

        options = SourceOptions.of(self.options)
        if not READS_STREAMS:
            raise ConfigurationError("readStream needs Spark 4.2 or later; spark.read does not. Nothing was read.")
        if options.manifests or options.pushdown:
            raise ConfigurationError("manifests and pushdown are for spark.read, not for readStream. Nothing was read.")
        return StreamReader(RowsReader(options, schema, self._heads is None))

    def _event_columns(self, options: SourceOptions) -> dict[str, Any]:
        from airflow_provider_sfstream.tables.source.planning import Planner
        from pyspark_sfstream.landed import LandedSource

        source = LandedSource(options)
        heads = source.heads()
        windows = source.windows({}, heads)
        if not windows:
            raise source.missing()
        self._heads = heads
        return Planner(source.files, {}, is_given=False).columns(windows)
