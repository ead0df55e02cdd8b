"""What a landing holds of a stream, to be compared with the org's record."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pyarrow.parquet as pq

from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.protocol.streams import Stream


def landed_replay_ids(lake: Path, stream: Stream) -> list[bytes]:
    """Return the replay IDs of every committed window of ``stream``, in the order of the chain of windows."""
    paths = list((lake / stream.path / "windows").rglob("manifest.json"))
    manifests = {manifest.window.window_id: manifest for manifest in map(_read, paths)}
    followed = {manifest.window.previous_window_id: manifest for manifest in manifests.values()}
    assert len(followed) == len(manifests), "two windows follow the same one"
    replay_ids: list[bytes] = []
    current: str | None = None
    while current in followed:
        manifest = followed[current]
        folder = Path(urlsplit(manifest.window.manifest_url).path).parent
        for file in manifest.files:
            replay_ids += pq.read_table(folder / file.name, columns=["replay_id"])["replay_id"].to_pylist()
        current = manifest.window.window_id
    return replay_ids


def _read(path: Path) -> Manifest:
    return Manifest.from_json(path.read_text(), str(path))
