"""Sources of the rows of a publication: a list, landed windows, or the files of a table."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from airflow_provider_sfstream.actions.object_storage_files import ObjectStorageFiles
from airflow_provider_sfstream.actions.windows_argument import WindowsArgument
from airflow_provider_sfstream.exceptions import ConfigurationError, LandingError
from airflow_provider_sfstream.publishing.rows import Row

_ROWS_AT_ONCE = 1_000
_SYSTEM_FIELDS = frozenset({"CreatedDate", "CreatedById"})


class RowSource(Protocol):
    """Rows in order; read more than once, they are the same. Their values are by column.

    ``columns`` are all columns that rows may have, ``fields`` the columns that are event fields by default.
    ``pinned`` identifies the rows if their order does not. ``count`` is ``None`` where it
    is not known.
    """

    columns: Collection[str]
    fields: Collection[str]
    pinned: Mapping[str, Any]
    count: int | None

    def rows(self) -> Iterator[Row]: ...


class ListedRows:
    """Rows in memory, dicts by column."""

    def __init__(self, rows: Any) -> None:
        self._rows = _dicts(rows)
        self.columns: Collection[str] = list(dict.fromkeys(name for row in self._rows for name in row))
        self.fields: Collection[str] = self.columns
        content = json.dumps(self._rows, sort_keys=True, default=str).encode(errors="surrogatepass")
        self.pinned: Mapping[str, Any] = {"rows": len(self._rows), "sha256": hashlib.sha256(content).hexdigest()}
        self.count: int | None = len(self._rows)

    def rows(self) -> Iterator[Row]:
        return (Row(str(number), row) for number, row in enumerate(self._rows))


class WindowRows:
    """The events of landed windows, decoded, each once. The landed files are copied to ``folder``."""

    pinned: Mapping[str, Any] = {}  # a window never changes, nor the places in it
    count: int | None = None

    def __init__(self, landed: WindowsArgument, landing_conn_id: str | None, folder: str) -> None:
        from airflow_provider_sfstream.tables.event_log.config import EventLogConfig
        from airflow_provider_sfstream.tables.event_log.job import events_in_order
        from airflow_provider_sfstream.tables.rows.event_batches import ENVELOPE, PARTITIONS
        from airflow_provider_sfstream.tables.runner.embedded import EmbeddedEngine

        config = landed.added_to(EventLogConfig(output_url=""))
        files = ObjectStorageFiles(landing_conn_id)
        columns, self._batches = events_in_order(EmbeddedEngine(files, files, folder), config)
        self.columns: Collection[str] = [*ENVELOPE, *columns, *PARTITIONS] if columns else []
        self.fields: Collection[str] = [name for name in columns if name not in _SYSTEM_FIELDS]

    def rows(self) -> Iterator[Row]:
        for row in chain.from_iterable(self._batches):
            ordinal = row["_ordinal"] if "_ordinal" in row else row["ordinal"]
            problem = None if "_ordinal" in row else row.get("reason")
            yield Row(f"{row['window_id']}/{ordinal}", row, problem=problem)


class TableRows:
    """The rows of a Delta table at one version, or of Parquet files, file by file in the order of their names.

    :param pinned: of an earlier try, for the same version; empty for the newest.
    :raises ConfigurationError: if it is not a Delta table and has no Parquet files.
    """

    count: int | None = None

    def __init__(self, url: str, conn_id: str | None, pinned: Mapping[str, Any]) -> None:
        import pyarrow as pa

        self._url = url.rstrip("/")
        with _readable(self._url):
            files = ObjectStorageFiles(conn_id)
            is_delta = bool(files.file_names(f"{self._url}/_delta_log"))
            dataset, self.pinned = _delta(self._url, files, pinned) if is_delta else _parquet(self._url, files)
            self._files = sorted(dataset.get_fragments(), key=lambda file: str(file.path))
            schemas = [] if is_delta else [file.physical_schema for file in self._files]
            self._schema = pa.unify_schemas([dataset.schema, *schemas], promote_options="permissive")
        self.columns: Collection[str] = list(self._schema.names)
        self.fields: Collection[str] = [
            name for name in self.columns if not name.startswith("_")
        ]  # no field of Salesforce does

    def rows(self) -> Iterator[Row]:
        for file in self._files:
            number = 0
            with _readable(self._url, has_begun=True):
                for batch in file.to_batches(schema=self._schema, batch_size=_ROWS_AT_ONCE, batch_readahead=1):
                    for row in batch.to_pylist():
                        yield Row(f"{file.path}#{number}", row)
                        number += 1


@contextmanager
def open_source(
    rows: Any,
    windows: Any,
    table: str | None,
    *,
    landing_conn_id: str | None,
    table_conn_id: str | None,
    pinned: Mapping[str, Any],
) -> Iterator[RowSource]:
    """Open the one source that is set.

    :param pinned: source of an earlier try, empty in the first.
    """
    if windows is not None:
        with TemporaryDirectory(prefix="sfstream-") as folder:
            yield WindowRows(WindowsArgument.from_argument(windows, None, None), landing_conn_id, folder)
    elif table is not None:
        yield TableRows(table, table_conn_id, pinned)
    else:
        yield ListedRows(rows)


def _dicts(rows_argument: Any) -> list[Mapping[str, Any]]:
    if isinstance(rows_argument, Iterable) and not isinstance(rows_argument, str | bytes | Mapping):
        rows = list(rows_argument)
        if all(isinstance(row, Mapping) and all(isinstance(name, str) for name in row) for row in rows):
            return rows
    raise ConfigurationError(
        "rows must be a list of dicts whose keys are column names. If it is a template, set "
        "render_template_as_native_obj=True in the DAG; the output of a task needs no template. Nothing was published."
    )


def _delta(url: str, files: ObjectStorageFiles, pinned: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any]]:
    from deltalake import DeltaTable

    location = files.table_location(url)
    table = DeltaTable(location.uri, version=pinned.get("version"), storage_options=dict(location.options))
    return table.to_pyarrow_dataset(filesystem=location.filesystem()), {"version": table.version()}


def _parquet(url: str, files: ObjectStorageFiles) -> tuple[Any, Mapping[str, Any]]:
    import pyarrow.dataset as ds

    folder, _, name = url.rpartition("/") if url.endswith(".parquet") else (url, "", "")
    filesystem = files.table_location(folder).filesystem()
    names = _parquet_files(filesystem, name) if files.file_names(folder) else []
    if not names:
        raise ConfigurationError(
            f"{url} is neither a Delta table nor a folder with Parquet files. Nothing was published."
        )
    sizes = {info.path: info.size for info in filesystem.get_file_info(names)}
    return ds.dataset(names, filesystem=filesystem, format="parquet", partitioning="hive"), {"files": sizes}


def _parquet_files(filesystem: Any, path: str) -> list[str]:
    """Return the Parquet files of a folder and those below it; the path itself if it is a file."""
    import pyarrow.fs as fs

    if path.endswith(".parquet"):
        return [path]
    infos = filesystem.get_file_info(fs.FileSelector(path, recursive=True))
    names = sorted(each.path for each in infos if each.path.endswith(".parquet"))
    return [name for name in names if not any(part.startswith((".", "_")) for part in name.split("/"))]


@contextmanager
def _readable(url: str, *, has_begun: bool = False) -> Iterator[None]:
    import pyarrow as pa
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, pa.ArrowException, OSError) as error:
        is_storage = isinstance(error, OSError) and not isinstance(error, FileNotFoundError | NotADirectoryError)
        if has_begun or is_storage:
            raise LandingError(
                f"Reading {url} failed ({error}). Published rows are recorded, and the next try publishes the "
                "remaining ones."
            ) from error
        raise ConfigurationError(f"{url} cannot be read as a table ({error}). Nothing was published.") from error
