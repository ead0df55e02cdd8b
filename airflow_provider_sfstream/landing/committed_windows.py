"""Up to which window Salesforce is known to go on after, where Salesforce keeps the position."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from airflow_provider_sfstream.landing.catalog import LandingCatalog
from airflow_provider_sfstream.landing.manifest import Manifest
from airflow_provider_sfstream.landing.position_files import PositionFiles
from airflow_provider_sfstream.salesforce.streams import Stream


class CommittedWindows:
    """Up to which window Salesforce is known to have the position: a small file in the landing.

    It saves work and is no promise: where it is behind, or missing, more is looked through and committed again.
    """

    def __init__(self, stream: Stream, catalog: LandingCatalog) -> None:
        self._catalog = catalog
        self._stream = stream
        self._files = PositionFiles(catalog.landing)
        self._key = f"sfstream_committed.{stream.key[:12]}"

    def last(self) -> tuple[str, bytes] | None:
        """Return the id and the end of the last window whose commit was acknowledged, if that is known."""
        document = self._document()
        try:
            return str(document["window_id"]), bytes.fromhex(document["replay_id"])
        except (ValueError, KeyError, TypeError):
            return None

    def subscription_id(self) -> str | None:
        """Return the record ID of the managed subscription that the last commit was recorded for, if it was read."""
        record_id = self._document().get("subscription_id")
        return record_id if isinstance(record_id, str) else None

    def record(self, window_id: str, replay_id: bytes, subscription_id: str | None = None) -> None:
        """Record that Salesforce has acknowledged the end of a window.

        :param subscription_id: record ID of the managed subscription; ``None`` where it was not read.
        """
        document = {"stream": str(self._stream), "window_id": window_id, "replay_id": replay_id.hex()}
        record_id = subscription_id or self.subscription_id()
        if record_id is not None:
            document["subscription_id"] = record_id
        self._files.set(self._key, json.dumps(document, indent=1), "")

    def _document(self) -> dict[str, Any]:
        try:
            document = json.loads(self._files.get(self._key) or "")
        except (ValueError, RecursionError):
            return {}
        return document if isinstance(document, dict) else {}

    def later_windows(self, head: str | None) -> Iterator[Manifest]:
        """Yield the windows up to the recorded ``head`` that Salesforce may not know of yet, newest first."""
        known = self.last()
        if head is None:
            return
        for manifest in self._catalog.chain(self._stream, head):
            if known is not None and manifest.window.window_id == known[0]:
                return
            yield manifest

    def events_of_later_windows(self, head: str | None) -> set[bytes]:
        """Return the replay IDs that those windows hold."""
        windows = self.later_windows(head)
        return {replay_id for manifest in windows for replay_id in self._catalog.replay_ids(manifest)}
