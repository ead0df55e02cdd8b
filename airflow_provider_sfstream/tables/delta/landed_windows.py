"""Landed windows as a job reads them: the contents of their manifests, and their rows.

A manifest's ``files`` are names in its own folder; each of its ``schemas`` is a path relative to that folder.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
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


@dataclass(frozen=True)
class UnavailableSchema:
    """Schema that was not available when its window landed: its URL if it has been fetched since (``None``: the events
    name no schema), and why it was not available."""

    url: str | None
    reason: str


@dataclass(frozen=True)
class LandedWindow:
    """Landed window: its stream, its Parquet files and its schema files as URLs, the SHA-256 of each of ``files``
    (hex), and the counts of its manifest."""

    window_id: str
    org_id: str
    topic: str
    files: tuple[str, ...]
    schemas: dict[str, str]
    event_count: int
    first_event_time: datetime | None
    last_event_time: datetime | None
    payload_encoding: str = "avro"
    api: str = "pubsub"
    subscription: str = "airflow"
    kind: str = "live"
    after: str | None = None
    through: str | None = None
    previous_window_id: str | None = None
    stop_reason: str = "caught_up"
    has_gap: bool = False
    manifest_url: str = ""
    counts_from: datetime | None = None
    late_before: datetime | None = None
    is_timed: bool = True
    missing_schemas: dict[str, UnavailableSchema] = field(default_factory=dict)
    sums: tuple[str, ...] = ()
    has_erased: bool = False

    @property
    def stream(self) -> str:
        """Identifier of the window's stream."""
        return "|".join((self.org_id, self.api, self.topic, self.subscription))

    def manifest_url_of(self, window_id: str) -> str:
        """Return the manifest URL of another window of the stream."""
        if not _WINDOW_ID.fullmatch(window_id):
            raise ManifestError(f"{self.manifest_url} names an invalid window ID: {window_id!r}. Nothing was written.")
        windows = self.manifest_url.rsplit("/", 5)[0]
        return f"{windows}/{window_id[:4]}/{window_id[4:6]}/{window_id[6:8]}/{window_id}/manifest.json"

    @classmethod
    def from_json(cls, text: str, url: str) -> LandedWindow:
        """Return the window of the manifest at ``url``."""
        try:
            manifest = Manifest.from_json(text, url)
        except ManifestError as error:
            raise ManifestError(f"{error} Nothing was written.") from error.__cause__
        return cls.from_manifest(manifest)

    @classmethod
    def from_manifest(cls, manifest: Manifest) -> LandedWindow:
        """Return the window of a parsed manifest."""
        window, stream = manifest.window, manifest.stream
        with_rows = [file for file in manifest.files if file.rows]
        return cls(
            window_id=window.window_id,
            **vars(stream),
            files=tuple(manifest.url_of(file.name) for file in with_rows),
            sums=tuple(file.sha256 for file in with_rows),
            schemas={schema_id: manifest.url_of(name) for schema_id, name in manifest.schemas.items()},
            event_count=window.event_count,
            first_event_time=window.first_event_time,
            last_event_time=window.last_event_time,
            payload_encoding=manifest.payload_encoding,
            kind=window.kind,
            after=_hex(window.after),
            through=_hex(window.through),
            previous_window_id=window.previous_window_id,
            stop_reason=manifest.stop_reason,
            has_gap=window.gap is not None,
            manifest_url=window.manifest_url,
            counts_from=window.counts_from,
            late_before=manifest.late_before,
            is_timed=window.contact_at is not None,
            has_erased=bool(manifest.erased),
            missing_schemas={
                schema_id: UnavailableSchema(missing.file and manifest.url_of(missing.file), missing.reason)
                for schema_id, missing in manifest.missing_schemas.items()
            },
        )

    def event_dates(self) -> tuple[date, date] | None:
        """Return the first and last event date (UTC) that the window can contain; ``None`` if unknown.

        The range is one day longer on either side, in case the landing's event times are not exact. The event times of
        events without their schema are unknown.
        """
        if self.first_event_time is None or self.last_event_time is None or self.missing_schemas:
            return None
        day = timedelta(days=1)
        return self.first_event_time.date() - day, self.last_event_time.date() + day


def load_windows(files: TextFiles, manifest_urls: Iterable[str]) -> list[LandedWindow]:
    """Return the windows of the manifests, each once, in :func:`reading_order`."""
    windows: dict[str, LandedWindow] = {}
    for manifest_url in dict.fromkeys(manifest_urls):
        window = read_window(files, manifest_url)
        if windows.setdefault(window.window_id, window) != window:
            raise ManifestError(f"Two manifests have the window ID {window.window_id}. Nothing was written.")
    return sorted(windows.values(), key=reading_order)


def reading_order(window: LandedWindow | ReplayWindow) -> tuple[bool, float, str]:
    """Return the sort key of windows: of an event in several windows, the row of the first one is written.

    Live windows come first, in the order of their IDs: the run of every interval in which one of its events may count
    reads the window. Backfill windows follow, in descending order of ``counts_from``: no event counts before that time,
    so the row of the first one counts in the current interval if a row of any other one does.
    """
    if window.kind == "live":
        return False, 0.0, window.window_id
    return True, math.inf if window.counts_from is None else -window.counts_from.timestamp(), window.window_id


def read_window(files: TextFiles, manifest_url: str) -> LandedWindow:
    """Return the window of one manifest."""
    url = files.url(manifest_url)
    try:
        text = files.read_text(url)
    except FileNotFoundError:
        raise ManifestError(
            f"There is no manifest at {manifest_url}. A window exists only after its manifest is written. Use the "
            "manifest_url that the drain returned. Nothing was written."
        ) from None
    return LandedWindow.from_json(text, url)


def check_files(spark: Any, windows: Sequence[LandedWindow]) -> None:
    """Compare the files of windows with the SHA-256 in their manifests."""
    # The name identifies the file: Spark writes URLs in another form, and file names are unique to an attempt.
    expected = {
        _last_parts(url): sum_ for window in windows for url, sum_ in zip(window.files, window.sums, strict=True)
    }
    if not expected:
        return
    files = spark.read.format("binaryFile").load([url for window in windows for url in window.files])
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


def read_rows(spark: Any, windows: Sequence[LandedWindow]) -> Any:
    """Return the raw rows of all windows, with the index of each window in the list as ``window`` and the format of the
    payload as ``format``.

    All files are read in one operation: Spark would need longer to plan a union of a thousand reads than to read them.
    A file's folder identifies its window. The lookup per row took a fifth of an event log's time; one window skips it.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import from_arrow_schema

    with_rows = {number: window for number, window in enumerate(windows) if window.files}
    schema_ids, formats = zip(*map(payload_formats, with_rows.values()), strict=True)
    attributes = pa.table(
        {
            "folder": pa.array(check_folders(with_rows.values()), pa.string()),
            "window": pa.array(list(with_rows), pa.int32()),
            "json_schema_ids": pa.array(schema_ids, pa.list_(pa.string())),
            "own_format": pa.array(formats, pa.string()),
        }
    )
    files = (file for window in with_rows.values() for file in window.files)
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


def check_folders(windows: Iterable[LandedWindow]) -> list[str]:
    """Return the name of the folder of each window's files."""
    folders = [window.files[0].split("/")[-2] for window in windows]
    if len(set(folders)) < len(folders):
        raise ManifestError("The files of two windows are in folders with the same name. Nothing was written.")
    return folders


def payload_formats(window: LandedWindow) -> tuple[list[str], Format]:
    """Return the schema IDs of the window's JSON payloads, and the format of its other payloads."""
    if window.payload_encoding == "avro":
        return [], "avro"
    return sorted(window.schemas.keys() | window.missing_schemas.keys()), own_format(window.topic)


def _hex(replay_id: bytes | None) -> str | None:
    return None if replay_id is None else replay_id.hex()
