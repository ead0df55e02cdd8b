"""In which format the tables below a folder are kept. A folder has one."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.spark.engines.engine import Engine, JobFiles
from airflow_provider_sfstream.spark.event_log.delta_tables import DeltaTables
from airflow_provider_sfstream.spark.event_log.parquet_tables import ParquetTables
from airflow_provider_sfstream.spark.event_log.tables import (
    QUARANTINE_TABLE,
    TABLE_NAME,
    Dates,
    EventTables,
    TableFormat,
)
from airflow_provider_sfstream.spark.rows.event_batches import WindowReference


def find_tables(files: JobFiles, base: str, wanted: TableFormat) -> list[str]:
    """Return the names of the tables of events below a folder.

    :raises ConfigurationError: if one of them, or the quarantine, is of another format than the wanted one.
    """
    names = [name for name in files.folders(base) if TABLE_NAME.fullmatch(name) or name == QUARANTINE_TABLE]
    formats = {name: _format_of(files, f"{base}/{name}") for name in names}
    for name, found in formats.items():
        if found not in (None, wanted):
            raise ConfigurationError(
                f"{base}/{name} is a table in the format {found!r}, and table_format is {wanted!r}: a folder has one "
                f"format. Nothing was written. Give table_format={found!r} (--table-format {found}), or another output "
                "folder and run the windows again that are still landed."
            )
    return [name for name, found in formats.items() if found and name != QUARANTINE_TABLE]


def open_tables(
    engine: Engine,
    base: str,
    names: Sequence[str],
    table_format: TableFormat,
    windows: Sequence[WindowReference],
    dates: Dates,
    job: str,
) -> EventTables:
    """Return the tables below a folder, for a run over these windows.

    :param names: what :func:`find_tables` has found.
    :param dates: the event dates that the run's rows can have.
    :param job: who runs, as another job's error names it.
    """
    if table_format == "delta":
        return DeltaTables(engine, base, names, windows, dates, job)
    return ParquetTables(engine, base, names, {window.partition for window in windows}, dates)


def _format_of(files: JobFiles, table: str) -> TableFormat | None:
    """Return the format of an event log's table; ``None`` for another folder, or files of which none counts yet."""
    folders = files.folders(table)
    dated = [folder for folder in folders if folder.startswith("event_date=")]
    if "_delta_log" in folders:
        return "delta" if dated or table.endswith(f"/{QUARANTINE_TABLE}") else None
    windows = folders if table.endswith(f"/{QUARANTINE_TABLE}") else []
    if "_sfstream" not in folders and dated:
        windows = files.folders(f"{table}/{dated[0]}")
    is_parquet = "_sfstream" in folders or any(folder.startswith("window_id=") for folder in windows)
    return "parquet" if is_parquet else None
