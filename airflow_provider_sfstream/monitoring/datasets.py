"""Datasets of OpenLineage, with their facets.

Imported only when a listener requests lineage: the provider of OpenLineage is optional.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from openlineage.client.event_v2 import InputDataset, OutputDataset
from openlineage.client.facet_v2 import (
    DatasetFacet,
    dataset_version_dataset,
    input_statistics_input_dataset,
    output_statistics_output_dataset,
    schema_dataset,
    symlinks_dataset,
)

from airflow_provider_sfstream.monitoring.lineage import DatasetName


def input_dataset(
    name: DatasetName,
    columns: Mapping[str, Any] | None = None,
    *,
    rows: int | None = None,
    size: int | None = None,
    folder: DatasetName | None = None,
) -> InputDataset:
    """Return a dataset that was read; for the parameters see :func:`output_dataset`."""
    statistics = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(rows, size)
    return InputDataset(
        namespace=name.namespace,
        name=name.name,
        facets=_facets(columns, None, folder),
        inputFacets={} if rows is None and size is None else {"inputStatistics": statistics},
    )


def output_dataset(
    name: DatasetName,
    columns: Mapping[str, Any] | None = None,
    *,
    rows: int | None = None,
    size: int | None = None,
    files: int | None = None,
    version: str | None = None,
    folder: DatasetName | None = None,
) -> OutputDataset:
    """Return a dataset that was written. Facets exist only for arguments that are not ``None``, and for columns.

    :param columns: column type by name, in order.
    :param size: in bytes, of the ``files``.
    :param folder: the storage location of the data, if it differs from the name.
    """
    statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(rows, size, files)
    return OutputDataset(
        namespace=name.namespace,
        name=name.name,
        facets=_facets(columns, version, folder),
        outputFacets={} if rows is None and size is None and files is None else {"outputStatistics": statistics},
    )


def _facets(
    columns: Mapping[str, Any] | None, version: str | None, folder: DatasetName | None
) -> dict[str, DatasetFacet]:
    facets: dict[str, DatasetFacet] = {}
    if columns:
        fields = [schema_dataset.SchemaDatasetFacetFields(name, type_text(type_)) for name, type_ in columns.items()]
        facets["schema"] = schema_dataset.SchemaDatasetFacet(fields)
    if version is not None:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(version)
    if folder is not None:
        facets["symlinks"] = symlinks_dataset.SymlinksDatasetFacet(
            [symlinks_dataset.Identifier(folder.namespace, folder.name, "LOCATION")]
        )
    return facets


def type_text(type_: Any) -> str:
    """Return a column type as SQL writes it: ``struct<Street:string>``, ``array<long>``, ``map<string,double>``."""
    if isinstance(type_, str):
        return type_
    ((kind, inside),) = type_.items()
    if kind == "struct":
        return f"struct<{','.join(f'{name}:{type_text(field)}' for name, field in inside.items())}>"
    return f"map<string,{type_text(inside)}>" if kind == "map" else f"{kind}<{type_text(inside)}>"
