"""Landed windows as a job reads them: what their manifests say, and their rows.

A manifest's ``files`` are names in its own folder; each of its ``schemas`` is a path relative to that folder.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import reduce
from typing import Any, Protocol

from airflow_provider_sfstream.exceptions import ManifestError
from airflow_provider_sfstream.spark.payload_formats import ENCODINGS, own_format

FORMAT, VERSIONS = "sfstream-manifest", (1,)
RAW_SCHEMA = (
    "ordinal bigint, replay_id binary, event_id string, schema_id string, payload binary, received_at timestamp"
)


_WINDOW_ID = re.compile(r"[0-9]{8}[A-Za-z0-9_-]{0,100}")


class TextFiles(Protocol):
    """Where manifests and schemas are read from."""

    def url(self, url: str) -> str: ...

    def read_text(self, url: str) -> str: ...


@dataclass(frozen=True)
class LandedWindow:
    """One window: its stream, its Parquet files and its schema files as URLs, and what its manifest counts."""

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
            document = json.loads(text)
            if document["format"] != FORMAT or document["version"] not in VERSIONS:
                raise ValueError("not a manifest of a version known here")
            if document["payload_encoding"] not in ENCODINGS:
                raise ValueError(f"its payloads are {document['payload_encoding']!r}, this job decodes {ENCODINGS}")
            folder = url.rpartition("/")[0]
            window = cls(
                window_id=_segment(document["window_id"]),
                org_id=document["stream"]["org_id"],
                topic=document["stream"]["topic"],
                files=tuple(f"{folder}/{_segment(file['name'])}" for file in document["files"] if file["rows"]),
                schemas={name: _relative(folder, path) for name, path in document["schemas"].items()},
                event_count=document["event_count"],
                first_event_time=_time(document["first_event_time"]),
                last_event_time=_time(document["last_event_time"]),
                payload_encoding=document["payload_encoding"],
                api=document["stream"]["api"],
                subscription=document["stream"]["subscription"],
                kind=document["kind"],
                after=document["after"],
                through=document["through"],
                previous_window_id=document["previous_window_id"],
                stop_reason=document["stop_reason"],
                has_gap=document["gap"] is not None,
                manifest_url=url,
            )
            if sum(file["rows"] for file in document["files"]) != window.event_count:
                raise ValueError("its files do not add up to its event count")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ManifestError(
                f"{url} cannot be used as a manifest ({type(error).__name__}: {error}). Give the manifest_url that the "
                "drain returned. Nothing was written."
            ) from error
        return window

    def event_dates(self) -> tuple[date, date] | None:
        """Return the first and last event date (UTC) that the window can touch; ``None`` where that is not known.

        One day more on either side, so that it does not matter how exactly the landing told event times.
        """
        if self.first_event_time is None or self.last_event_time is None:
            return None
        day = timedelta(days=1)
        return self.first_event_time.date() - day, self.last_event_time.date() + day


def read_windows(files: TextFiles, manifest_urls: Iterable[str]) -> list[LandedWindow]:
    """Return the windows of the manifests, each once, in order of their ids.

    :raises ManifestError: if a manifest is missing or broken, or two different ones have one window id.
    """
    windows: dict[str, LandedWindow] = {}
    for manifest_url in dict.fromkeys(manifest_urls):
        window = read_window(files, manifest_url)
        if windows.setdefault(window.window_id, window) != window:
            raise ManifestError(f"Two manifests have the window id {window.window_id}. Nothing was written.")
    return [windows[name] for name in sorted(windows)]


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


def read_rows(spark: Any, windows: list[LandedWindow]) -> Any:
    """Return the raw rows of all windows, with the number of each window in the list as ``window`` and what the
    payload is as ``format``."""
    from pyspark.sql import functions

    parts = [
        spark.read.schema(RAW_SCHEMA)
        .parquet(*window.files)
        .withColumn("window", functions.lit(number))
        .withColumn("format", _format(window))
        for number, window in enumerate(windows)
        if window.files
    ]
    return reduce(lambda one, other: one.unionByName(other), parts)


def _format(window: LandedWindow) -> Any:
    """Return the format of the window's rows. A JSON payload has the schema that its own window names, or none: what
    a window gives does not depend on which others are read beside it."""
    from pyspark.sql import functions as f

    if window.payload_encoding == "avro":
        return f.lit("avro")
    own = f.lit(own_format(window.topic))
    return f.when(f.col("schema_id").isin(sorted(window.schemas)), "json").otherwise(own) if window.schemas else own


def _segment(name: str) -> str:
    if not name or name in (".", "..") or any(character in name for character in "/\\:*?[]{}=%"):
        raise ValueError(f"{name!r} is not a plain name")
    return name


def _relative(folder: str, path: str) -> str:
    if path.startswith("/") or "://" in path:
        raise ValueError(f"the schema file {path!r} is not relative to the manifest")
    scheme, separator, rest = folder.rpartition("://")
    return scheme + separator + posixpath.normpath(f"{rest}/{path}")


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
