"""What tasks have in common that are given windows of drains, for their links and their lineage."""

from __future__ import annotations

from typing import Any

from airflow_provider_sfstream.tasks.landed import all_manifests, flat_windows
from airflow_provider_sfstream.tasks.lineage import TellsLineage


class TakesWindows(TellsLineage):
    """For operators with an argument ``windows``."""

    windows: Any

    @property
    def stream_uri(self) -> str | None:
        """The URI of the asset of the landed stream that the windows are of; ``None`` if they are of several, or the
        task was given manifests, which do not tell.

        :raises ConfigurationError: if something else is among the windows.
        """
        uris = {each.get("asset_uri") if isinstance(each, dict) else None for each in flat_windows(self.windows)}
        return uris.pop() if len(uris) == 1 else None

    @property
    def window_manifests(self) -> list[str]:
        """The URLs of the windows' manifests.

        :raises ConfigurationError: if something else is among the windows.
        """
        return list(all_manifests(self.windows)[0])
