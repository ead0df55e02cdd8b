"""What a Spark task was given to read: landed streams, from the results of drains or the URLs of manifests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_sfstream.protocol.dataset_names import DatasetName, name_of_landed, name_of_stream
from airflow_provider_sfstream.protocol.stream_uris import StreamUri
from airflow_provider_sfstream.tasks.landed import flat_windows, manifests_in
from airflow_provider_sfstream.tasks.lineage.told import Told


@dataclass
class GivenStream:
    """A landed stream of which a task was given windows. ``rows`` and ``size`` are ``None`` where not all are known.

    :param uri: of its asset; ``None`` where only manifests were given, which do not tell the connection.
    """

    name: DatasetName
    uri: StreamUri | None
    manifests: list[str] = field(default_factory=list)
    rows: int | None = 0
    size: int | None = 0

    def add(self, manifests: Iterable[str], rows: int | None, size: int | None) -> None:
        """Count some windows more."""
        self.manifests += manifests
        self.rows = None if self.rows is None or rows is None else self.rows + rows
        self.size = None if self.size is None or size is None else self.size + size

    def told(self, *, has_ended: bool) -> Told:
        """Return it as an input."""
        also = name_of_landed(self.manifests[0]) if self.uri is not None and self.manifests else None
        return Told(self.name, rows=self.rows, size=self.size, also=also) if has_ended else Told(self.name, also=also)


def given_streams(windows: Any) -> list[GivenStream]:
    """Return the streams that windows are of.

    :param windows: as the Spark operators take them.
    :raises ConfigurationError: if something else is among them.
    """
    streams: dict[DatasetName, GivenStream] = {}
    for each in flat_windows(windows):
        manifests = manifests_in(each, with_empty=True)
        told = each if isinstance(each, dict) else {}
        uri = StreamUri.parse(told["asset_uri"]) if told.get("asset_uri") else None
        if uri is None and not manifests:
            continue
        name = name_of_landed(manifests[0]) if uri is None else name_of_stream(uri)
        stream = streams.setdefault(name, GivenStream(name, uri))
        stream.add(manifests, told.get("event_count"), told.get("payload_bytes"))
    return list(streams.values())
