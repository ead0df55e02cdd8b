"""Input of the ``replica`` job from a refresh: one JSON document that names the files with the fetched records.

``{output}/_sfstream/replica/refresh/{refresh_id}/refresh.json`` is written last. Beside it are, for each table, files
of JSON lines, one line for each record. All values are text in Salesforce's CSV notation; null values are omitted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from airflow_provider_sfstream.landing.documents import from_document, to_document
from airflow_provider_sfstream.tables.decode.avro_columns import ColumnType
from airflow_provider_sfstream.tables.replica.table_schemas import parsed

FORMAT, VERSION = "sfstream-refresh", 1
FOLDER = "_sfstream/replica/refresh"
"""Folder of the refreshes, below the output folder."""

FILE_NAME = "refresh.json"
IMAGE_ENVELOPE = ("Id", "_found", "_sequence", "_deleted", "_refreshed_at")
"""Keys of a line besides the record's columns: ``_found`` is false if the org no longer has the record; ``_sequence``
is the row's sequence number when it was listed, for records fetched by ID; ``_deleted`` is ``IsDeleted``, and
``_refreshed_at`` is ``SystemModstamp``."""

Mode = Literal["records", "full", "columns", "computed", "compare"]


@dataclass(frozen=True)
class TableRefresh:
    """Records fetched for one table.

    :param mode: ``"records"``: the rows listed as dirty or changed; ``"full"``: all records of the org; ``"columns"``:
        some columns of all records; ``"computed"``: the computed columns of all records; ``"compare"``: all records,
        which are compared and not merged.
    :param columns: the fetched columns of the table, and those for which the org no longer has a field, which become
        null. Other columns do not change.
    :param files: file paths, relative to the document's folder.
    :param fetched: number of lines in the files.
    :param stream: key of the stream that feeds the table.
    :param applied_sequence: sequence number of the last event applied when the fetch began. A row that has seen a later
        event may have changes that the fetched record lacks.
    :param next_sequence: sequence number of the first event that had not landed when the fetch began.
    :param last_window: ID of the last window processed when the fetch began.
    :param began_at: start of the fetch (ISO 8601, UTC).
    :param computed: types of the computed columns among ``columns``: all computed columns of the table, if the values
        of all records were fetched; ``None`` if computed columns were not requested.
    :param hidden: columns that a flag ``schema`` names but that the user may not read, so that they were not fetched.
    :param on_change: whether to list rows that an event changes for these columns from now on.
    """

    mode: Mode
    columns: tuple[str, ...]
    files: tuple[str, ...]
    fetched: int
    stream: str
    applied_sequence: int
    next_sequence: int
    last_window: str
    began_at: str
    computed: Mapping[str, ColumnType] | None = None
    on_change: bool = False
    hidden: tuple[str, ...] = ()


@dataclass(frozen=True)
class RefreshDocument:
    """Document of a refresh: its fetched records by table, and the number of the snapshot that it started from."""

    refresh_id: str
    snapshot: int
    tables: Mapping[str, TableRefresh] = field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, "version": VERSION} | to_document(self), indent=1)

    @classmethod
    def from_json(cls, text: str, where: str) -> RefreshDocument:
        """Return the refresh stored at ``where``.

        :raises ConfigurationError: if it is not a refresh of a supported version.
        """
        remedy = "Install the same version of the package on the worker and in Spark."
        return parsed(text, f"{where} is not a refresh", FORMAT, VERSION, partial(from_document, cls), remedy)
