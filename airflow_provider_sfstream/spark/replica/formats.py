"""Replica tables in Delta Lake and Apache Iceberg, through Spark's own writers: one ``MERGE`` for each table of a run.

A merge gets complete new rows, made as for Parquet. After it the rows are there, whether or not the run goes on to
publish its snapshot: a second run finds that each row has seen its changes (``_sequence``), and merges nothing.
"""

from __future__ import annotations

import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.spark.decode.avro_columns import ColumnType
from airflow_provider_sfstream.spark.replica.sql import add_columns, create_table, merge, quoted
from airflow_provider_sfstream.spark.rows.replica_merge import with_bucket
from airflow_provider_sfstream.spark.rows.replica_rows import BUCKET, TABLE_ENVELOPE
from airflow_provider_sfstream.spark.storage.column_registry import type_of_spark
from airflow_provider_sfstream.spark.storage.hadoop_files import HadoopFiles

BUCKETS_PROPERTY = "sfstream.buckets"
"""Property of a table that says in how many buckets it is: what tells it from any other table of that name."""

_CATALOGS: dict[str, tuple[str, ...]] = {
    "delta": ("org.apache.spark.sql.delta.catalog.DeltaCatalog",),
    "iceberg": ("org.apache.iceberg.spark.SparkCatalog", "org.apache.iceberg.spark.SparkSessionCatalog"),
}
_EXTENSIONS: dict[str, str] = {
    "delta": "io.delta.sql.DeltaSparkSessionExtension",
    "iceberg": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
}
_PACKAGES: dict[str, str] = {
    "delta": "io.delta:delta-spark_{spark}_{scala}",
    "iceberg": "org.apache.iceberg:iceberg-spark-runtime-{spark}_{scala}",
}
_NAME_PART = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


@dataclass(frozen=True)
class MergeTable(ABC):
    """The table of one entity, in a format that has ``MERGE``.

    Call :func:`check_session` before the first of a run, and :meth:`prepare` before anything else here.

    :param spark: the ``SparkSession``.
    :param name: the table, as SQL names it.
    :param buckets: how many buckets it has, for ever.
    """

    spark: Any
    name: str
    buckets: int
    renamed: ClassVar[Mapping[str, str]] = {}
    """Columns that have another name in tables of this format."""

    def prepare(self, columns: dict[str, ColumnType]) -> None:
        """Create the table, or add the columns that it lacks.

        :param columns: the record's columns.
        :raises ConfigurationError: if the table that is there is not this one, or a column has another type; nothing
            was changed.
        """
        wanted = self.all_columns(columns)
        if not self.exists():
            self.make_place()
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

        :param rows: rows with ``Id`` and their bucket.
        """
        from pyspark.sql import functions as f

        parts = sorted(row[0] for row in rows.select(f.expr(self.part())).distinct().collect())
        return None if len(parts) >= self.buckets else parts

    def read(self, parts: Sequence[int] | None = None) -> Any:
        """Return the table's rows with their bucket, of these parts or of all, in the replica's own column names."""
        rows = self.spark.table(self.name)
        if parts is not None:
            rows = rows.where(_is_one_of(self.part(), parts))
        rows = rows.withColumnsRenamed({stored: name for name, stored in self.renamed.items()})
        return rows if BUCKET in rows.columns else with_bucket(rows, self.buckets)

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
        rows.withColumnsRenamed(dict(self.renamed)).createOrReplaceTempView(view)
        try:
            self.spark.sql(merge(self.name, view, list(self.all_columns(columns)), condition))
        finally:
            self.spark.catalog.dropTempView(view)

    def all_columns(self, columns: dict[str, ColumnType]) -> dict[str, ColumnType]:
        """Return the columns that the table has for a record with ``columns``, as they are named there."""
        return {self.renamed.get(name, name): type_ for name, type_ in TABLE_ENVELOPE.items()} | columns

    @abstractmethod
    def exists(self) -> bool:
        """Tell whether a table is there."""

    @abstractmethod
    def make_place(self) -> None:
        """Make what the table is created in, if it is not there."""

    @abstractmethod
    def layout(self) -> str:
        """Return the clauses of ``CREATE TABLE`` that say the format and the partitions."""

    @abstractmethod
    def part(self, side: str = "") -> str:
        """Return the SQL expression for the part of the table that a row is in."""

    def _check_property(self) -> None:
        properties = {row["key"]: row["value"] for row in self.spark.sql(f"SHOW TBLPROPERTIES {self.name}").collect()}
        found = properties.get(BUCKETS_PROPERTY)
        if found != str(self.buckets):
            what = "was not made by this job" if found is None else f"has {found} buckets and not {self.buckets}"
            raise ConfigurationError(
                f"{self.name} exists and {what}. Give another output or table prefix, or the number of buckets that "
                "the table was made with. Nothing was written."
            )


@dataclass(frozen=True)
class DeltaTable(MergeTable):
    """A Delta table at a path, partitioned by ``_bucket``.

    :param location: the path, as Hadoop names it.
    """

    location: str

    def all_columns(self, columns: dict[str, ColumnType]) -> dict[str, ColumnType]:
        return {**TABLE_ENVELOPE, BUCKET: "int", **columns}

    def exists(self) -> bool:
        return "_delta_log" in HadoopFiles(self.spark).folders(self.location)

    def make_place(self) -> None:
        """Do nothing: a path needs no more."""

    def layout(self) -> str:
        return f"USING DELTA PARTITIONED BY ({quoted(BUCKET)})"

    def part(self, side: str = "") -> str:
        return f"{side}{quoted(BUCKET)}"


class IcebergTable(MergeTable):
    """An Iceberg table in a catalog, with the hidden partitioning ``bucket(buckets, Id)``.

    Iceberg keeps the name ``_deleted`` for itself.
    """

    renamed: ClassVar[Mapping[str, str]] = {"_deleted": "_is_deleted"}

    def exists(self) -> bool:
        return bool(self.spark.catalog.tableExists(self.name))

    def make_place(self) -> None:
        self.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {self.name.rpartition('.')[0]}")

    def layout(self) -> str:
        return f"USING iceberg PARTITIONED BY (bucket({self.buckets}, {quoted('Id')}))"

    def part(self, side: str = "") -> str:
        return f"{self.name.partition('.')[0]}.system.bucket({self.buckets}, {side}{quoted('Id')})"


def merge_table(
    spark: Any, table_format: str, entity: str, *, output: str, table_prefix: str | None, buckets: int
) -> MergeTable:
    """Return the table of an entity.

    :param output: folder of Delta tables, as Hadoop names it.
    :param table_prefix: catalog and namespace of Iceberg tables: ``lake.salesforce``.
    """
    if table_format == "delta":
        location = f"{output}/{entity}"
        return DeltaTable(spark, f"delta.{quoted(location)}", buckets, location)
    return IcebergTable(spark, quoted(*_prefix_parts(table_prefix), entity), buckets)


def check_session(spark: Any, table_format: str, table_prefix: str | None = None) -> None:
    """Make sure that a session can write a format.

    :raises ConfigurationError: if the format's package is not there, or the session is not configured for it; the
        text says what to set on the Spark connection. Nothing was written.
    """
    catalog = "spark_catalog" if table_format == "delta" else _prefix_parts(table_prefix)[0]
    needed = _CATALOGS[table_format][0]
    if not _has_class(spark, needed):
        raise _refused(
            table_format,
            f"its classes are not in this session: {needed} is missing. Add the package "
            f"{_PACKAGES[table_format].format(**_versions(spark))} (spark.jars.packages, or its jar in spark.jars)",
        )
    check_settings(table_format, catalog, lambda name: spark.conf.get(name, None))


def check_settings(table_format: str, catalog: str, setting: Callable[[str], str | None]) -> None:
    """Make sure that a session is configured for a format.

    :param catalog: of the tables; Delta's are in ``spark_catalog``.
    :param setting: returns a setting of the session, ``None`` if it is not set.
    :raises ConfigurationError: if it is not. Nothing was written.
    """
    name, accepted = f"spark.sql.catalog.{catalog}", _CATALOGS[table_format]
    if setting(name) not in accepted:
        raise _refused(table_format, f"the session's {name} is not {' or '.join(accepted)}. Set it")
    extension = _EXTENSIONS[table_format]
    if extension not in re.split(r"\s*,\s*", setting("spark.sql.extensions") or ""):
        raise _refused(table_format, f"MERGE needs {extension} in spark.sql.extensions. Add it")


def _refused(table_format: str, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"table_format={table_format!r} cannot be written: {why} on the Spark connection. Nothing was written."
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
