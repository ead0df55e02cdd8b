"""OpenLineage datasets as a data catalog receives them."""

from __future__ import annotations

import json
from typing import Any

from openlineage.client.serde import Serde

from airflow_provider_sfstream.monitoring.lineage import DatasetName


class SentDataset:
    """A serialized dataset. Attributes without a facet are ``None`` or empty.

    :ivar rows: number of rows read or written; ``size`` is the size in bytes, ``files`` the number of files.
    :ivar columns: type of each column by name, in order.
    :ivar folder: dataset name of the folder that contains the data.
    """

    def __init__(self, dataset: Any) -> None:
        self.document = as_sent(dataset)
        self.name = DatasetName(self.document["namespace"], self.document["name"])
        facets = self.document["facets"]
        self.columns = {each["name"]: each["type"] for each in facets.get("schema", {}).get("fields", [])}
        self.version = facets.get("version", {}).get("datasetVersion")
        (identifier,) = facets.get("symlinks", {}).get("identifiers", [None])
        self.folder = identifier and DatasetName(identifier["namespace"], identifier["name"])
        by_kind = self.document.get("inputFacets") or self.document.get("outputFacets") or {}
        statistics = by_kind.get("inputStatistics") or by_kind.get("outputStatistics") or {}
        self.rows = statistics.get("rowCount")
        self.size = statistics.get("size")
        self.files = statistics.get("fileCount")


def as_sent(facet: Any) -> dict[str, Any]:
    """Return a dataset or facet as a JSON document."""
    document: dict[str, Any] = json.loads(Serde.to_json(facet))
    return document
