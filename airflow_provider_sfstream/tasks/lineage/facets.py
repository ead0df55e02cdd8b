"""Lineage in the words of OpenLineage. Imported only where a listener asks, so only where its provider is installed."""

from __future__ import annotations

from typing import Any

import attrs
from airflow.providers.openlineage.extractors import OperatorLineage
from openlineage.client.event_v2 import InputDataset, OutputDataset
from openlineage.client.facet_v2 import (
    DatasetFacet,
    RunFacet,
    column_lineage_dataset,
    dataset_version_dataset,
    input_statistics_input_dataset,
    output_statistics_output_dataset,
    schema_dataset,
    symlinks_dataset,
)

from airflow_provider_sfstream.tasks.lineage.told import Column, Lineage, Told

WINDOWS_FACET = "sfstream_windows"
"""Name of the run facet of this package."""


@attrs.define
class ReplayWindowsRunFacet(RunFacet):
    """The replay windows that a run landed or was given."""

    windows: list[dict[str, Any]]


def operator_lineage(lineage: Lineage) -> OperatorLineage:
    """Return what a listener takes."""
    windows = [dict(window) for window in lineage.windows]
    return OperatorLineage(
        inputs=[_input(told) for told in lineage.inputs],
        outputs=[_output(told) for told in lineage.outputs],
        run_facets={WINDOWS_FACET: ReplayWindowsRunFacet(windows)} if windows else {},
    )


def _input(told: Told) -> InputDataset:
    statistics = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(told.rows, told.size, told.files)
    return InputDataset(
        namespace=told.name.namespace,
        name=told.name.name,
        facets=_facets(told),
        inputFacets={"inputStatistics": statistics} if _counted(told) else {},
    )


def _output(told: Told) -> OutputDataset:
    statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(told.rows, told.size, told.files)
    return OutputDataset(
        namespace=told.name.namespace,
        name=told.name.name,
        facets=_facets(told),
        outputFacets={"outputStatistics": statistics} if _counted(told) else {},
    )


def _counted(told: Told) -> bool:
    return any(number is not None for number in (told.rows, told.size, told.files))


def _facets(told: Told) -> dict[str, DatasetFacet]:
    facets: dict[str, DatasetFacet] = {}
    if told.columns:
        fields = [schema_dataset.SchemaDatasetFacetFields(name, type_) for name, type_ in told.columns.items()]
        facets["schema"] = schema_dataset.SchemaDatasetFacet(fields)
    if told.origins:
        origins = {name: column_lineage_dataset.Fields([*map(_field, of)]) for name, of in told.origins.items()}
        facets["columnLineage"] = column_lineage_dataset.ColumnLineageDatasetFacet(origins)
    if told.version is not None:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(told.version)
    if told.also is not None:
        folder = symlinks_dataset.Identifier(told.also.namespace, told.also.name, "LOCATION")
        facets["symlinks"] = symlinks_dataset.SymlinksDatasetFacet([folder])
    return facets


def _field(column: Column) -> column_lineage_dataset.InputField:
    unchanged = column_lineage_dataset.Transformation("DIRECT", "IDENTITY")
    return column_lineage_dataset.InputField(column.dataset.namespace, column.dataset.name, column.name, [unchanged])
