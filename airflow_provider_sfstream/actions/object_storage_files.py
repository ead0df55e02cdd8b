"""Files below a folder of object storage, as a job in this process uses them, and the files of a Delta table there."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from airflow_provider_sfstream._airflow import storage_conn_id
from airflow_provider_sfstream.actions.storage import storage_path
from airflow_provider_sfstream.exceptions import LandingError
from airflow_provider_sfstream.extras import require_extra
from airflow_provider_sfstream.landing.storage import is_local, replace_file, write_once

if TYPE_CHECKING:
    from airflow.sdk import ObjectStoragePath

    from airflow_provider_sfstream.tables.delta.delta_table import TableVersion
    from airflow_provider_sfstream.tables.delta.table_location import TableLocation

LOG = "_delta_log"
_NUMBERED = re.compile(r"(\d{20})\.(json|checkpoint\..*parquet)")


class ObjectStorageFiles:
    """Reads, writes, lists and deletes through Airflow's object storage.

    :param conn_id: Airflow connection of the storage, where it needs one.
    """

    def __init__(self, conn_id: str | None) -> None:
        self._conn_id = conn_id

    def url(self, url: str) -> str:
        return url.rstrip("/")

    def open(self, url: str) -> BinaryIO:
        path = self._path(url)
        with _readable(url):
            file: BinaryIO = path.fs.open(path.path, "rb")
        return file

    def read_text(self, url: str) -> str:
        """Return the text of a UTF-8 file, or raise ``FileNotFoundError``."""
        with _readable(url):
            text: str = self._path(url).read_text()
        return text

    def replace_text(self, url: str, text: str) -> None:
        """Write a UTF-8 file, so that a reader sees the old or the new one, never half of one."""
        path = self._path(url)
        replace_file(path.fs, path.path, text.encode())

    def create_text(self, url: str, text: str) -> None:
        """Write a UTF-8 file, or raise ``FileExistsError``; of several jobs at once, one writes it."""
        path = self._path(url)
        if not write_once(path.fs, path.path, text.encode()):
            raise FileExistsError(url)

    def file_names(self, url: str) -> list[str]:
        """Return the names in a folder, none if it does not exist."""
        return sorted(path.name for path in self._inside(url))

    def folders(self, url: str) -> list[str]:
        """Return the names of the folders in a folder, none if it does not exist."""
        return sorted(path.name for path in self._inside(url) if path.is_dir())

    def delete(self, url: str) -> None:
        """Delete a file, or a folder and all that is in it; nothing if it does not exist."""
        path = self._path(url)
        if path.exists():
            path.fs.rm(path.path, recursive=True)

    def table_location(self, url: str) -> TableLocation:
        """Return a folder for delta-rs, with the credentials of the Airflow connection (S3, Azure, Google).

        Without a connection, and on other storage, delta-rs uses those of the worker's environment.
        """
        require_extra("tables")
        from airflow_provider_sfstream.tables.delta.table_location import TableLocation

        path = self._path(url)
        if is_local(path.fs):
            return TableLocation(path.path.rstrip("/"))
        scheme = {"s3a": "s3", "gcs": "gs"}.get(path.protocol, path.protocol)
        options = _OPTIONS.get(scheme)
        return TableLocation(f"{scheme}://{path.path.rstrip('/')}", {} if options is None else options(path))

    def _path(self, url: str) -> Any:
        return storage_path(url, self._conn_id)

    def _inside(self, url: str) -> list[Any]:
        folder = self._path(url)
        return list(folder.iterdir()) if folder.exists() else []


@contextmanager
def _readable(url: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise LandingError(f"{url} cannot be read: {error}. Nothing was written.") from error


def _s3_options(path: Any) -> dict[str, str]:
    """Return the storage options of a path, in the form that ``storage_options`` derives from Hadoop's settings."""
    from airflow.providers.amazon.aws.hooks.base_aws import AwsGenericHook

    from airflow_provider_sfstream.tables.delta.table_location import storage_options

    hook: Any = AwsGenericHook(aws_conn_id=storage_conn_id(path), client_type="s3")
    credentials = hook.get_credentials()
    settings = {
        "access.key": credentials.access_key,
        "secret.key": credentials.secret_key,
        "session.token": credentials.token,
        "endpoint.region": hook.region_name,
        "endpoint": hook.conn_config.get_service_endpoint_url("s3"),
    }
    return storage_options(f"s3://{path.path}", lambda name: settings.get(name.removeprefix("fs.s3a.")))


_AZURE_OPTIONS = ("account_key", "sas_token", "client_id", "client_secret", "tenant_id")
_AZURE_FIELDS = {"AccountKey": "account_key", "SharedAccessSignature": "sas_token", "BlobEndpoint": "endpoint"}
"""Fields of an Azure connection string, and the equivalent option."""


def _azure_options(path: Any) -> dict[str, str]:
    """Return the settings of the path's filesystem: those of the connection, or of the environment."""
    filesystem = path.fs
    fields = dict(field.partition("=")[::2] for field in (filesystem.connection_string or "").split(";"))
    options = {option: getattr(filesystem, option) for option in _AZURE_OPTIONS}
    options["account_name"] = filesystem.service_client.account_name
    options |= {option: fields[name] for name, option in _AZURE_FIELDS.items() if name in fields}
    allow_http = {"azure_allow_http": "true"} if options.get("endpoint", "").startswith("http://") else {}
    return {f"azure_storage_{option}": value for option, value in options.items() if value} | allow_http


def _google_options(path: Any) -> dict[str, str]:
    from airflow.sdk import BaseHook

    conn_id = storage_conn_id(path)
    extra = BaseHook.get_connection(conn_id).extra_dejson if conn_id else {}
    key = extra.get("keyfile_dict")
    options = {
        "google_service_account": extra.get("key_path"),
        "google_service_account_key": key if key is None or isinstance(key, str) else json.dumps(key),
    }
    return {option: value for option, value in options.items() if value}


_OPTIONS: dict[str, Callable[[Any], dict[str, str]]] = {
    "s3": _s3_options,
    **dict.fromkeys(("abfs", "abfss", "az"), _azure_options),
    "gs": _google_options,
}


def newest_version(table: ObjectStoragePath) -> TableVersion:
    """Return the newest version of a table with a log, from a copy of its last checkpoint and the commits since.

    :raises ConfigurationError: if its files alone do not determine its rows.
    """
    require_extra("tables")
    from airflow_provider_sfstream.tables.delta.delta_table import DeltaTableLog
    from airflow_provider_sfstream.tables.delta.table_location import TableLocation

    names = [(_NUMBERED.fullmatch(path.name), path) for path in (table / LOG).iterdir()]
    log_files = [(match[1], match[2], path) for match, path in names if match]
    since = max((number for number, kind, _ in log_files if kind != "json"), default="")
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, LOG)
        log.mkdir()
        for number, kind, path in log_files:
            if number >= since and (kind == "json" or number == since):
                (log / path.name).write_bytes(path.read_bytes())
        return DeltaTableLog(TableLocation(folder)).version()


def values_of(file: ObjectStoragePath, column: str) -> set[Any]:
    """Return the values of a column of a Parquet file."""
    import pyarrow.parquet as pq

    with file.open("rb") as stream:  # type: ignore[no-untyped-call]
        values = pq.ParquetFile(stream).read(columns=[column]).column(column)
    return set(values.unique().to_pylist())
