"""The statements that make, widen and merge into a replica table. Text only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.spark.decode.avro_columns import ColumnType
from airflow_provider_sfstream.spark.rows.merging import DROPPED

_INSIDE = {"array": "element", "map": "value"}
"""How a column path names what an array or a map holds."""


def quoted(*parts: str) -> str:
    """Return a name, or one of several parts, as an identifier."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


def sql_type(type_: ColumnType) -> str:
    """Return a column type as SQL names it."""
    if isinstance(type_, str):
        return {"long": "bigint"}.get(type_, type_)
    ((kind, inside),) = type_.items()
    if kind == "struct":
        return f"struct<{', '.join(f'{quoted(name)}: {sql_type(member)}' for name, member in inside.items())}>"
    return f"array<{sql_type(inside)}>" if kind == "array" else f"map<string, {sql_type(inside)}>"


def create_table(table: str, columns: Mapping[str, ColumnType], layout: str, properties: Mapping[str, str]) -> str:
    """Return the statement that creates a table.

    :param table: its name, quoted.
    :param layout: the clauses that say its format and its partitions.
    """
    listed = ", ".join(f"{quoted(name)} {sql_type(type_)}" for name, type_ in columns.items())
    stated = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
    return f"CREATE TABLE {table} ({listed}) {layout} TBLPROPERTIES ({stated})"


def add_columns(table: str, stored: Mapping[str, ColumnType], wanted: Mapping[str, ColumnType]) -> str | None:
    """Return the statement that adds what ``wanted`` has and ``stored`` lacks, ``None`` if that is nothing.

    :raises ConfigurationError: if a column of both has two types.
    """
    added = ", ".join(f"{path} {sql_type(type_)}" for path, type_ in _missing(table, (), stored, wanted))
    return f"ALTER TABLE {table} ADD COLUMNS ({added})" if added else None


def merge(table: str, source: str, columns: Sequence[str], condition: str) -> str:
    """Return the statement that merges the rows of the view ``source``, in which :data:`DROPPED` rows are deletions.

    :param condition: what a pair of rows named ``target`` and ``source`` must meet.
    """
    names = [quoted(name) for name in columns]
    settings = ", ".join(f"target.{name} = source.{name}" for name in names if name != quoted("Id"))
    listed = f"({', '.join(names)}) VALUES ({', '.join(f'source.{name}' for name in names)})"
    dropped = f"source.{quoted(DROPPED)}"
    clauses = (
        f"MERGE INTO {table} AS target",
        f"USING {source} AS source ON {condition}",
        f"WHEN MATCHED AND {dropped} THEN DELETE",
        f"WHEN MATCHED THEN UPDATE SET {settings}",
        f"WHEN NOT MATCHED AND NOT {dropped} THEN INSERT {listed}",
    )
    return " ".join(clauses)


def _missing(
    table: str, path: tuple[str, ...], stored: Mapping[str, ColumnType], wanted: Mapping[str, ColumnType]
) -> Iterator[tuple[str, ColumnType]]:
    spelling = {name.lower(): name for name in stored}
    for name, type_ in wanted.items():
        known = spelling.get(name.lower())
        if known is None:
            yield quoted(*path, name), type_
        else:
            yield from _missing_inside(table, (*path, known), stored[known], type_)


def _missing_inside(
    table: str, path: tuple[str, ...], stored: ColumnType, wanted: ColumnType
) -> Iterator[tuple[str, ColumnType]]:
    if stored == wanted:
        return
    if not isinstance(stored, dict) or not isinstance(wanted, dict) or stored.keys() != wanted.keys():
        raise ConfigurationError(
            f"Column {'.'.join(path)} of {table} is {sql_type(stored)}, and the replica needs {sql_type(wanted)}: the "
            "table was changed by others. Give it that type again, or another output. Nothing was written."
        )
    ((kind, inside),) = stored.items()
    if kind == "struct":
        yield from _missing(table, path, inside, wanted[kind])
    else:
        yield from _missing_inside(table, (*path, _INSIDE[kind]), inside, wanted[kind])
