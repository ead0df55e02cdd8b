"""Replica tables in Apache Iceberg, through its own writer for Spark: one ``MERGE`` for each table of a run.

A merge gets complete new rows. After it they are there, whether or not the run goes on to publish its snapshot: a
second run finds that each row has seen its changes (``_sequence``), and merges nothing.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.spark.decode.avro_columns import ColumnType
from airflow_provider_sfstream.spark.replica.sql import add_columns, create_table, merge, quoted
from airflow_provider_sfstream.spark.rows.replica_merge import with_bucket
from airflow_provider_sfstream.spark.rows.replica_rows import TABLE_ENVELOPE
from airflow_provider_sfstream.spark.storage.column_registry import type_of_spark

BUCKETS_PROPERTY = "sfstream.buckets"
"""Property of a table that says in how many buckets it is: what tells it from any other table of that name."""
RENAMED = {"_deleted": "_is_deleted"}
"""Columns that have another name in Iceberg, which keeps ``_deleted`` for itself."""

_CATALOGS = ("org.apache.iceberg.spark.SparkCatalog", "org.apache.iceberg.spark.SparkSessionCatalog")
_EXTENSION = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
_PACKAGE = "org.apache.iceberg:iceberg-spark-runtime-{spark}_{scala}"
_NAME_PART = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


@dataclass(frozen=True)
class IcebergTable:
    """The table of one entity, with the hidden partitioning ``bucket(buckets, Id)``.

    Call :func:`check_session` before the first of a run, and :meth:`prepare` before anything else here.

    :param spark: the ``SparkSession``.
    :param name: the table, as SQL names it.
    :param buckets: how many buckets it has, for ever.
    """

    spark: Any
    name: str
    buckets: int

    @classmethod
    def of(cls, spark: Any, entity: str, table_prefix: str | None, buckets: int) -> IcebergTable:
        """Return the table of an entity.

        :param table_prefix: catalog and namespace: ``lake.salesforce``.
        """
        return cls(spark, quoted(*_prefix_parts(table_prefix), entity), buckets)

    def prepare(self, columns: dict[str, ColumnType]) -> None:
        """Create the table, or add the columns that it lacks.

        :param columns: the record's columns.
        :raises ConfigurationError: if the table that is there is not this one, or a column has another type; nothing
            was changed.
        """
        wanted = self.all_columns(columns)
        if not self.spark.catalog.tableExists(self.name):
            self.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {self.name.rpartition('.')[0]}")
            self.spark.sql(create_table(self.name, wanted, self.layout(), {BUCKETS_PROPERTY: str(self.buckets)}))
            return
        self._check_property()
        fields = self.spark.table(self.name).schema.jsonValue()["fields"]
        stored = {field["name"]: type_of_spark(field["type"]) for field in fields}
        statement = add_columns(self.name, stored, wanted)
        if statement is not None:
            self.spark.sql(statement)

    def parts_of(self, rows: Any) -> list[int] | None:
        """Return the parts of the table that these rows belong to, as :meth:`read` and :meth:`upsert` take them.

        Runs a job over the rows, so persist them. ``None`` stands for all parts.

        :param rows: rows with ``Id``.
        """
        from pyspark.sql import functions as f

        parts = sorted(row[0] for row in rows.select(f.expr(self.part())).distinct().collect())
        return None if len(parts) >= self.buckets else parts

    def read(self, parts: Sequence[int] | None = None) -> Any:
        """Return the table's rows with their bucket, of these parts or of all, in the replica's own column names."""
        rows = self.spark.table(self.name)
        if parts is not None:
            rows = rows.where(_is_one_of(self.part(), parts))
        return with_bucket(rows.withColumnsRenamed({stored: name for name, stored in RENAMED.items()}), self.buckets)

    def upsert(self, rows: Any, columns: dict[str, ColumnType], parts: Sequence[int] | None = None) -> None:
        """Insert, update and delete rows: all of them, or, if it fails, none.

        :param rows: complete new rows with ``_dropped`` and their bucket, one for each ``Id``; persisted, since a merge
            reads its source more than once.
        :param columns: the record's columns.
        :param parts: the parts that the rows belong to, if known; the rest of the table is not looked at.
        """
        condition = f"target.{quoted('Id')} = source.{quoted('Id')}"
        if parts is not None:
            condition += f" AND {_is_one_of(self.part('target.'), parts)}"
        view = f"sfstream_{uuid.uuid4().hex}"
        rows.withColumnsRenamed(RENAMED).createOrReplaceTempView(view)
        try:
            self.spark.sql(merge(self.name, view, list(self.all_columns(columns)), condition))
        finally:
            self.spark.catalog.dropTempView(view)

    @staticmethod
    def all_columns(columns: dict[str, ColumnType]) -> dict[str, ColumnType]:
        """Return the columns that the table has for a record with ``columns``, as they are named there."""
        return {RENAMED.get(name, name): type_ for name, type_ in TABLE_ENVELOPE.items()} | columns

    def layout(self) -> str:
        """Return the clauses of ``CREATE TABLE`` that say the format and the partitions."""
        return f"USING iceberg PARTITIONED BY (bucket({self.buckets}, {quoted('Id')}))"

    def part(self, side: str = "") -> str:
        """Return the SQL expression for the part of the table that a row is in."""
        return f"{self.name.partition('.')[0]}.system.bucket({self.buckets}, {side}{quoted('Id')})"

    def _check_property(self) -> None:
        properties = {row["key"]: row["value"] for row in self.spark.sql(f"SHOW TBLPROPERTIES {self.name}").collect()}
        found = properties.get(BUCKETS_PROPERTY)
        if found != str(self.buckets):
            what = "was not made by this job" if found is None else f"has {found} buckets and not {self.buckets}"
            raise ConfigurationError(
                f"{self.name} exists and {what}. Give another output or table prefix, or the number of buckets that "
                "the table was made with. Nothing was written."
            )


def check_session(spark: Any, table_prefix: str | None) -> None:
    """Make sure that a session can write Iceberg tables.

    :raises ConfigurationError: if Iceberg's package is not there, or the session is not configured for it; the text
        says what to set on the Spark connection. Nothing was written.
    """
    catalog = _prefix_parts(table_prefix)[0]
    if not _has_class(spark, _CATALOGS[0]):
        raise _refused(
            f"its classes are not in this session: {_CATALOGS[0]} is missing. Add the package "
            f"{_PACKAGE.format(**_versions(spark))} (spark.jars.packages, or its jar in spark.jars)"
        )
    check_settings(catalog, lambda name: spark.conf.get(name, None))


def check_settings(catalog: str, setting: Callable[[str], str | None]) -> None:
    """Make sure that a session is configured for Iceberg.

    :param catalog: of the tables.
    :param setting: returns a setting of the session, ``None`` if it is not set.
    :raises ConfigurationError: if it is not. Nothing was written.
    """
    name = f"spark.sql.catalog.{catalog}"
    if setting(name) not in _CATALOGS:
        raise _refused(f"the session's {name} is not {' or '.join(_CATALOGS)}. Set it")
    if _EXTENSION not in re.split(r"\s*,\s*", setting("spark.sql.extensions") or ""):
        raise _refused(f"MERGE needs {_EXTENSION} in spark.sql.extensions. Add it")


def _refused(why: str) -> ConfigurationError:
    return ConfigurationError(
        f"table_format='iceberg' cannot be written: {why} on the Spark connection. Nothing was written."
    )


def _prefix_parts(table_prefix: str | None) -> list[str]:
    parts = (table_prefix or "").split(".")
    if len(parts) < 2 or not all(map(_NAME_PART.fullmatch, parts)):
        raise ConfigurationError(
            f"table_prefix={table_prefix!r} does not name an Iceberg catalog and a namespace in it, such as "
            "lake.salesforce. Nothing was written."
        )
    return parts


def _has_class(spark: Any, name: str) -> bool:
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    java = spark._jvm.java.lang
    try:
        java.Class.forName(name, False, java.Thread.currentThread().getContextClassLoader())
    except Py4JJavaError as error:
        if error.java_exception.getClass().getSimpleName() not in ("ClassNotFoundException", "NoClassDefFoundError"):
            raise
        return False
    return True


def _versions(spark: Any) -> dict[str, str]:
    scala = re.search(r"\d+\.\d+", spark._jvm.scala.util.Properties.versionNumberString())
    return {"spark": ".".join(spark.version.split(".")[:2]), "scala": scala[0] if scala else "2.13"}


def _is_one_of(expression: str, parts: Sequence[int]) -> str:
    return f"{expression} IN ({', '.join(map(str, parts))})" if parts else "false"
