"""Landed windows as a job reads them: what their manifests say, and their rows.

A manifest's ``files`` are names in its own folder; each of its ``schemas`` is a path relative to that folder.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any, Protocol

from airflow_provider_sfstream.exceptions import ConfigurationError, ManifestError
from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.landing.row_groups import SCHEMA
from airflow_provider_sfstream.salesforce.streams import ReplayWindow
from airflow_provider_sfstream.tables.decode.payload_formats import Format, own_format

_WINDOW_ID = re.compile(r"[0-9]{8}[A-Za-z0-9_-]{0,100}")


class TextFiles(Protocol):
    """Where manifests and schemas are read from."""

    def url(self, url: str) -> str: ...

    def read_text(self, url: str) -> str: ...


@dataclass(frozen=True)
class MissingSchema:
    """A schema that could not be had when its window landed: where it is if it has been fetched since (``None``: the
    events name no schema), and why it could not be had."""

    url: str | None
    reason: str


@dataclass(frozen=True)
class LandedWindow:
    """One window: its stream, its Parquet files and its schema files as URLs, the SHA-256 of each of ``files`` (hex),
    and what its manifest counts."""

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
    missing_schemas: dict[str, MissingSchema] = field(default_factory=dict)
    sums: tuple[str, ...] = ()
    has_erased: bool = False

    @property
    def stream(self) -> str:
        """Identifies the window's stream."""
        return "|".join((self.org_id, self.api, self.topic, self.subscription))

    def manifest_url_of(self, window_id: str) -> str:
        """Return where the manifest of another window of the stream is.

        :raises ManifestError: if that is no window id.
        """
        if not _WINDOW_ID.fullmatch(window_id):
            raise ManifestError(f"{self.manifest_url} names {window_id!r}, which is no window id. Nothing was written.")
        windows = self.manifest_url.rsplit("/", 5)[0]
        return f"{windows}/{window_id[:4]}/{window_id[4:6]}/{window_id[6:8]}/{window_id}/manifest.json"

    @classmethod
    def from_json(cls, text: str, url: str) -> LandedWindow:
        """Return the window of the manifest at ``url``.

        :raises ManifestError: if it is not a manifest, of an unknown version, or names files outside its folder.
        """
        try:
            manifest = Manifest.from_json(text, url)
        except ManifestError as error:
            raise ManifestError(f"{error} Nothing was written.") from error.__cause__
        return cls.of(manifest)

    @classmethod
    def of(cls, manifest: Manifest) -> LandedWindow:
        """Return the window of a manifest that was read."""
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
                schema_id: MissingSchema(missing.file and manifest.url_of(missing.file), missing.reason)
                for schema_id, missing in manifest.missing_schemas.items()
            },
        )

    def event_dates(self) -> tuple[date, date] | None:
        """Return the first and last event date (UTC) that the window can touch; ``None`` where that is not known.

        One day more on either side, so that it does not matter how exactly the landing told event times. It could not
        tell those of events without their schema.
        """
        if self.first_event_time is None or self.last_event_time is None or self.missing_schemas:
            return None
        day = timedelta(days=1)
        return self.first_event_time.date() - day, self.last_event_time.date() + day


def read_windows(files: TextFiles, manifest_urls: Iterable[str]) -> list[LandedWindow]:
    """Return the windows of the manifests, each once, in :func:`reading_order`.

    :raises ManifestError: if a manifest is missing or broken, or two different ones have one window id.
    """
    windows: dict[str, LandedWindow] = {}
    for manifest_url in dict.fromkeys(manifest_urls):
        window = read_window(files, manifest_url)
        if windows.setdefault(window.window_id, window) != window:
            raise ManifestError(f"Two manifests have the window id {window.window_id}. Nothing was written.")
    return sorted(windows.values(), key=reading_order)


def reading_order(window: LandedWindow | ReplayWindow) -> tuple[bool, float, str]:
    """Return what windows are sorted by: of an event in several of them, the first one's row is written.

    Live windows come first, in order of their ids: each is read by the run of every interval that an event of it may
    count in. Backfill windows follow, that which counts from the latest moment on first: no event counts before that,
    so that its row counts in the interval at hand wherever a row of another one does.
    """
    if window.kind == "live":
        return False, 0.0, window.window_id
    return True, math.inf if window.counts_from is None else -window.counts_from.timestamp(), window.window_id


def read_window(files: TextFiles, manifest_url: str) -> LandedWindow:
    """Return the window of one manifest.

    :raises ManifestError: if the manifest is missing or broken.
    """
    url = files.url(manifest_url)
    try:
        text = files.read_text(url)
    except FileNotFoundError:
        raise ManifestError(
            f"There is no manifest at {manifest_url}. A window exists once its manifest is written: give the "
            "manifest_url that the drain returned. Nothing was written."
        ) from None
    return LandedWindow.from_json(text, url)


def check_files(spark: Any, windows: Sequence[LandedWindow]) -> None:
    """Compare the files of windows with the SHA-256 that their manifests have.

    :raises ConfigurationError: if one was changed after it landed.
    """
    # A name alone says which file it is: Spark writes URLs in another way, and each attempt names its own files.
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
    """Return what an error says of a landed file that has not the SHA-256 of its manifest."""
    return (
        f"{url} is not what its window's manifest says: its SHA-256 is {sha256}. It was changed after it landed, or "
        "damaged. Restore it, or drain the interval again while Salesforce has its events (72 hours). Nothing was "
        "written."
    )


def _last_parts(url: str) -> str:
    return "/".join(url.rsplit("/", 2)[1:])


def read_rows(spark: Any, windows: Sequence[LandedWindow]) -> Any:
    """Return the raw rows of all windows, with the number of each window in the list as ``window`` and what the
    payload is as ``format``.

    One read of all files: Spark would plan a union of a thousand reads for longer than it takes to read them. A file's
    folder tells its window. Looking that up for each row was a fifth of an event log's time: one window is spared it.

    :raises ManifestError: if the files of two windows are in folders of one name.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import from_arrow_schema

    with_rows = {number: window for number, window in enumerate(windows) if window.files}
    folders = check_folders(with_rows.values())
    files = (file for window in with_rows.values() for file in window.files)
    rows = spark.read.schema(from_arrow_schema(SCHEMA)).parquet(*files)
    known = _known(folders, with_rows)
    if len(with_rows) == 1:
        [window] = known.drop_columns(["folder", "named"]).to_pylist()
        named = f.array(*map(f.lit, known["named"][0].as_py())).cast("array<string>")
        rows = rows.withColumns({name: f.lit(value) for name, value in window.items()}).withColumn("named", named)
    else:
        path = f.col("_metadata.file_path")
        rows = rows.withColumn("folder", f.substring_index(f.substring_index(path, "/", -2), "/", 1))
        rows = rows.join(f.broadcast(spark.createDataFrame(known)), "folder")
    # A JSON payload has the schema that its own window names (as missing too), or none: what a window gives does not
    # depend on which others are read beside it.
    format_ = f.when(f.array_contains("named", f.col("schema_id")), "json").otherwise(f.col("own_format"))
    return rows.withColumn("format", format_).drop("folder", "named", "own_format")


def check_folders(windows: Iterable[LandedWindow]) -> list[str]:
    """Return the name of the folder that each window's files are in.

    :raises ManifestError: if two have one name.
    """
    folders = [_folder(window.files[0]) for window in windows]
    if len(set(folders)) < len(folders):
        raise ManifestError("The files of two windows are in folders of one name. Nothing was written.")
    return folders


def payload_formats(window: LandedWindow) -> tuple[list[str], Format]:
    """Return the schema ids with which the window's payloads are JSON, and what its other payloads are."""
    if window.payload_encoding == "avro":
        return [], "avro"
    return sorted(window.schemas.keys() | window.missing_schemas.keys()), own_format(window.topic)


def _known(folders: list[str], windows: Mapping[int, LandedWindow]) -> Any:
    """Return what is known of the rows of each folder, as an Arrow table."""
    import pyarrow as pa

    named, formats = zip(*(payload_formats(window) for window in windows.values()), strict=True)
    return pa.table(
        {
            "folder": pa.array(folders, pa.string()),
            "window": pa.array(list(windows), pa.int32()),
            "named": pa.array(named, pa.list_(pa.string())),
            "own_format": pa.array(formats, pa.string()),
        }
    )


def _folder(file: str) -> str:
    return file.rpartition("/")[0].rpartition("/")[2]


def _hex(replay_id: bytes | None) -> str | None:
    return None if replay_id is None else replay_id.hex()
