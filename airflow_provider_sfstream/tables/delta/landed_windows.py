"""Landed windows as a job reads them: their manifests, and their rows."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from typing import Any, Protocol

import pyarrow as pa

from airflow_provider_sfstream.exceptions import ConfigurationError, ManifestError
from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.landing.row_groups import SCHEMA
from airflow_provider_sfstream.salesforce.streams import ReplayWindow
from airflow_provider_sfstream.tables.decode.self_described import Format, own_format

_WINDOW_ID = re.compile(r"[0-9]{8}[A-Za-z0-9_-]{0,100}")


class TextFiles(Protocol):
    """Source of manifests and schemas."""

    def url(self, url: str) -> str: ...

    def read_text(self, url: str) -> str: ...


def manifest_url_of(manifest: Manifest, window_id: str) -> str:
    """Return the manifest URL of another window of the stream."""
    url = manifest.window.manifest_url
    if not _WINDOW_ID.fullmatch(window_id):
        raise ManifestError(f"{url} names an invalid window ID: {window_id!r}. Nothing was written.")
    windows = url.rsplit("/", 5)[0]
    return f"{windows}/{window_id[:4]}/{window_id[4:6]}/{window_id[6:8]}/{window_id}/manifest.json"


def event_dates(manifest: Manifest) -> tuple[date, date] | None:
    """Return the first and last event date (UTC) that the window can contain; ``None`` if unknown.

    The range is one day longer on either side, in case the landing's event times are not exact. The event times of
    events without their schema are unknown.
    """
    first, last = manifest.window.first_event_time, manifest.window.last_event_time
    if first is None or last is None or manifest.missing_schemas:
        return None
    return first.date() - timedelta(days=1), last.date() + timedelta(days=1)


def load_windows(files: TextFiles, manifest_urls: Iterable[str]) -> list[Manifest]:
    """Return the manifests of windows, each once, in :func:`reading_order`."""
    manifests: dict[str, Manifest] = {}
    for manifest_url in dict.fromkeys(manifest_urls):
        manifest = read_window(files, manifest_url)
        window_id = manifest.window.window_id
        if manifests.setdefault(window_id, manifest) != manifest:
            raise ManifestError(f"Two manifests have the window ID {window_id}. Nothing was written.")
    return sorted(manifests.values(), key=lambda manifest: reading_order(manifest.window))


def reading_order(window: ReplayWindow) -> tuple[bool, float, str]:
    """Return the sort key of windows: of an event in several windows, the row of the first one is written.

    Live windows come first, in the order of their IDs: the run of every interval in which one of its events may count
    reads the window. Backfill windows follow, in descending order of ``counts_from``: no event counts before that time,
    so the row of the first one counts in the current interval if a row of any other one does.
    """
    if window.kind == "live":
        return False, 0.0, window.window_id
    return True, math.inf if window.counts_from is None else -window.counts_from.timestamp(), window.window_id


def read_window(files: TextFiles, manifest_url: str) -> Manifest:
    """Return the manifest at a URL."""
    url = files.url(manifest_url)
    try:
        text = files.read_text(url)
    except FileNotFoundError:
        raise ManifestError(
            f"There is no manifest at {manifest_url}. A window exists only after its manifest is written. Use the "
            "manifest_url that the drain returned. Nothing was written."
        ) from None
    try:
        return Manifest.from_json(text, url)
    except ManifestError as error:
        raise ManifestError(f"{error} Nothing was written.") from error.__cause__


def check_files(spark: Any, manifests: Sequence[Manifest]) -> None:
    """Compare the files of windows with the SHA-256 in their manifests."""
    # The name identifies the file: Spark writes URLs in another form, and file names are unique to an attempt.
    sums = {url: sum_ for manifest in manifests for url, sum_ in manifest.file_sums().items()}
    expected = {_last_parts(url): sum_ for url, sum_ in sums.items()}
    if not expected:
        return
    files = spark.read.format("binaryFile").load([*sums])
    for row in files.selectExpr("path", "sha2(content, 256) AS sum").collect():
        if expected.pop(_last_parts(row["path"]), None) != row["sum"]:
            raise ConfigurationError(changed(row["path"], row["sum"]))
    if expected:
        raise ConfigurationError(f"Files of windows are missing: {', '.join(sorted(expected))}. Nothing was written.")


def changed(url: str, sha256: str) -> str:
    """Return the error message for a landed file whose SHA-256 differs from its manifest."""
    return (
        f"{url} differs from the manifest of its window: its SHA-256 is {sha256}. It was changed after it landed, or "
        "damaged. Nothing was written. Restore it, or drain the interval again while Salesforce retains its events "
        "(72 hours)."
    )


def _last_parts(url: str) -> str:
    return "/".join(url.rsplit("/", 2)[1:])


def read_rows(spark: Any, manifests: Sequence[Manifest]) -> Any:
    """Return the raw rows of all windows, with the index of each window in the list as ``window`` and the format of the
    payload as ``format``.

    All files are read in one operation: Spark would need longer to plan a union of a thousand reads than to read them.
    A file's folder identifies its window. The lookup per row took a fifth of an event log's time; one window skips it.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import from_arrow_schema

    with_rows = {number: manifest for number, manifest in enumerate(manifests) if manifest.window.event_count}
    schema_ids, formats = zip(*map(payload_formats, with_rows.values()), strict=True)
    attributes = pa.table(
        {
            "folder": pa.array(check_folders(with_rows.values()), pa.string()),
            "window": pa.array(list(with_rows), pa.int32()),
            "json_schema_ids": pa.array(schema_ids, pa.list_(pa.string())),
            "own_format": pa.array(formats, pa.string()),
        }
    )
    files = (url for manifest in with_rows.values() for url in manifest.file_sums())
    rows = spark.read.schema(from_arrow_schema(SCHEMA)).parquet(*files)
    if len(with_rows) == 1:
        [window] = attributes.drop_columns(["folder", "json_schema_ids"]).to_pylist()
        schema_ids = f.array(*map(f.lit, attributes["json_schema_ids"][0].as_py())).cast("array<string>")
        rows = rows.withColumns({name: f.lit(value) for name, value in window.items()})
        rows = rows.withColumn("json_schema_ids", schema_ids)
    else:
        path = f.col("_metadata.file_path")
        rows = rows.withColumn("folder", f.substring_index(f.substring_index(path, "/", -2), "/", 1))
        rows = rows.join(f.broadcast(spark.createDataFrame(attributes)), "folder")
    # A JSON payload has the schema that its own window names (also as missing), or none, so the rows of a window do not
    # depend on the other windows of the run.
    format_ = f.when(f.array_contains("json_schema_ids", f.col("schema_id")), "json").otherwise(f.col("own_format"))
    return rows.withColumn("format", format_).drop("folder", "json_schema_ids", "own_format")


def check_folders(manifests: Iterable[Manifest]) -> list[str]:
    """Return the name of the folder of each window's files."""
    folders = [manifest.window.manifest_url.split("/")[-2] for manifest in manifests]
    if len(set(folders)) < len(folders):
        raise ManifestError("The files of two windows are in folders with the same name. Nothing was written.")
    return folders


def payload_formats(manifest: Manifest) -> tuple[list[str], Format]:
    """Return the schema IDs of the window's JSON payloads, and the format of its other payloads."""
    if manifest.payload_encoding == "avro":
        return [], "avro"
    return sorted(manifest.schemas.keys() | manifest.missing_schemas.keys()), own_format(manifest.stream.topic)
