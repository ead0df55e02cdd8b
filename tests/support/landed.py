"""Replay IDs of landed windows, for comparisons with the org's record of events."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pyarrow.parquet as pq

from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.salesforce.streams import Stream


def landed_replay_ids(lake: Path, stream: Stream) -> list[bytes]:
    """Return the replay IDs of every committed live window of ``stream``, in the order of the chain of windows."""
    paths = list((lake / stream.path / "windows").rglob("manifest.json"))
    live = [manifest for manifest in map(_read, paths) if manifest.window.kind == "live"]
    manifests = {manifest.window.window_id: manifest for manifest in live}
    followed = {manifest.window.previous_window_id: manifest for manifest in manifests.values()}
    assert len(followed) == len(manifests), "two windows have the same previous window"
    replay_ids: list[bytes] = []
    current: str | None = None
    while current in followed:
        manifest = followed[current]
        replay_ids += _replay_ids(manifest)
        current = manifest.window.window_id
    return replay_ids


def replay_ids_of(manifest_url: str) -> list[bytes]:
    """Return the replay IDs of the window whose manifest is at a ``file:`` URL, in order."""
    return _replay_ids(_read(Path(urlsplit(manifest_url).path)))


def _replay_ids(manifest: Manifest) -> list[bytes]:
    folder = Path(urlsplit(manifest.window.manifest_url).path).parent
    tables = (pq.read_table(folder / file.name, columns=["replay_id"]) for file in manifest.files)
    return [replay_id for table in tables for replay_id in table["replay_id"].to_pylist()]


def _read(path: Path) -> Manifest:
    return Manifest.from_json(path.read_text(), str(path))
