"""What a refresh hands to the ``replica`` job: one JSON document that names the files with the records fetched.

``{output}/_sfstream/replica/refresh/{refresh_id}/refresh.json``, written last, and beside it for each table files of
JSON lines, one for each record: all values as text, as Salesforce writes them in CSV; what is null is left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from airflow_provider_sfstream.exceptions import ConfigurationError
from airflow_provider_sfstream.tables.decode.avro_columns import ColumnType

FORMAT, VERSION = "sfstream-refresh", 1
FOLDER = "_sfstream/replica/refresh"
"""Below the output folder."""

FILE_NAME = "refresh.json"
IMAGE_ENVELOPE = ("Id", "_found", "_sequence", "_deleted", "_refreshed_at")
"""What a line has beside the record's columns: ``_found`` is false where the org no longer has the record at all;
``_sequence`` of the row when it was listed, for records that were asked for by id; ``_deleted`` is ``IsDeleted``, and
``_refreshed_at`` is ``SystemModstamp``."""

Mode = Literal["records", "full", "columns", "computed", "compare"]


@dataclass(frozen=True)
class TableRefresh:
    """What was fetched for one table.

    :param mode: ``"records"``: the rows that were listed as dirty, or as changed; ``"full"``: all records that the org
        has; ``"columns"``: some columns of all records; ``"computed"``: the columns of all records that no event
        carries; ``"compare"``: all records, to be compared and not merged.
    :param columns: the columns of the table that were fetched, and those that the org has no field for any longer,
        which become null; others stay as they are.
    :param files: relative to the document's folder.
    :param fetched: how many lines they have.
    :param stream: key of the stream that the table is made from.
    :param applied_sequence: of the last event applied when the fetch began: a row that has seen later ones may have
        changes that the record as fetched lacks.
    :param next_sequence: of the first event that had not landed when the fetch began.
    :param last_window: id of the last window taken in when the fetch began.
    :param began_at: when the fetch began (ISO 8601, UTC).
    :param computed: those of ``columns`` that no event carries, with their types: all that the table is to have, if
        the values of all records were fetched; ``None`` if nobody asked for them.
    :param hidden: columns that a flag ``schema`` names and that could not be fetched, since the user does not see them.
    :param on_change: whether rows that an event changes are to be listed for them from now on.
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
    """A refresh.

    :param snapshot: number of the replica's snapshot that it began with.
    :param tables: by name.
    """

    refresh_id: str
    snapshot: int
    tables: Mapping[str, TableRefresh] = field(default_factory=dict)

    def to_json(self) -> str:
        document = {"format": FORMAT, "version": VERSION, "refresh_id": self.refresh_id, "snapshot": self.snapshot}
        return json.dumps(document | {"tables": {name: asdict(table) for name, table in self.tables.items()}}, indent=1)

    @classmethod
    def from_json(cls, text: str, where: str) -> RefreshDocument:
        """Return the refresh stored at ``where``.

        :raises ConfigurationError: if it is not one of a version known here.
        """
        try:
            document = json.loads(text)
            if document["format"] != FORMAT or document["version"] != VERSION:
                raise ValueError(f"it is {document['format']!r} of version {document['version']!r}")
            tables = {name: _table(each) for name, each in document["tables"].items()}
            return cls(document["refresh_id"], document["snapshot"], tables)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ConfigurationError(
                f"{where} is not a refresh that this version of the package can read ({error}). "
                "Install one version of the package on the worker and in Spark. Nothing was written."
            ) from error


def _table(document: dict[str, Any]) -> TableRefresh:
    listed = {name: tuple(document[name]) for name in ("columns", "files", "hidden")}
    table = TableRefresh(**{**document, **listed})
    if table.mode not in get_args(Mode):
        raise ValueError(f"there is no mode {table.mode!r}")
    return table
